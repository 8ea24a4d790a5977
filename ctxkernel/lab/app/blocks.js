/**
 * The blocks of a projection, as the messages of the request: who speaks, what it costs, why it is there, and what a
 * person can do to it.
 */

import {
  AUTHORS,
  bar,
  clean,
  count,
  dict,
  find,
  findAll,
  flash,
  foldedText,
  h,
  icon,
  list,
  number,
  pictureOf,
  bringToMiddle,
  quoted,
  runOf
} from './base.js';

/** @import {Block, History, RedactionEntry, Violation} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {Item} from './menu.js' */
/** @import {View} from './render.js' */
/** @import {Next} from './returning.js' */

/**
 * What the blocks of one projection are drawn with.
 * @typedef {object} Drawing
 * @property {View} view
 * @property {Map<string, Partial<Violation>[]>} broken violations by block
 * @property {Map<string, string>} pins reasons by event
 * @property {Map<string, Partial<RedactionEntry>>} redactions by event
 * @property {number} widest tokens of the largest block
 * @property {number} total tokens
 *
 * @typedef {{role: string, at: number | null, blocks: Partial<Block>[], tokens: number}} Message
 * @typedef {'human' | 'model' | 'kernel'} Speaker
 */

/** Kinds of the history: they stay as they are from turn to turn, while the rest is made anew. */
const HISTORY_KINDS = new Set([
  'statement',
  'question',
  'answer',
  'thinking',
  'call',
  'result',
  'summary',
  'context'
]);
/** Kinds whose output a person can replace by a note. */
const REDACTABLE = new Set(['statement', 'result']);
/** Kinds of events that can be pinned. */
const PINNABLE = new Set(['statement', 'question', 'answer', 'call', 'result']);
/** @type {Record<string, Speaker>} */
const SPEAKERS = { statement: 'human', question: 'human', answer: 'model', thinking: 'model', call: 'model' };
/** Characters of a summary that the kernel takes. */
const SUMMARY_CHARS = 400;

/** @type {Record<string, string>} */
const ROLES = { user: 'User message', assistant: 'Assistant message', system: 'System message' };

/**
 * The id of the event that a block shows: blocks of one event are told apart after a `#`.
 * @param {Partial<Block>} block
 */
const eventOf = (block) => clean(block.id).split('#')[0];

/**
 * What is recorded about the events of the history: by event, what is pinned, and the redaction that stands or waits.
 * @param {History | null} history
 */
function marksOf(history) {
  const told = dict(history);
  const redactions = list(told.entries)
    .map((one) => /** @type {Partial<RedactionEntry>} */ (dict(one)))
    .filter((one) => one.kind === 'redaction' && ['applied', 'waiting'].includes(one.state ?? ''));
  return {
    pins: new Map(list(told.pins).map((one) => [clean(one?.target), clean(one?.reason)])),
    redactions: new Map(redactions.map((one) => [clean(one.target), one]))
  };
}

/**
 * Blocks put together as the messages that they stand in; `at` is the index in the request, null for the system text.
 * @param {Partial<Block>[]} blocks
 */
function messagesOf(blocks) {
  /** @type {Message[]} */
  const messages = [];
  let at = -1;
  for (const block of blocks) {
    const isText = block.kind === 'system';
    const role = isText ? 'text' : clean(block.role) || 'user';
    let last = messages[messages.length - 1];
    if (last?.role !== role) {
      last = { role, at: isText ? null : (at += 1), blocks: [], tokens: 0 };
      messages.push(last);
    }
    last.blocks.push(block);
    last.tokens += number(block.tokens) ?? 0;
  }
  return messages;
}

/**
 * All messages.
 * @param {View} view
 * @param {Partial<Block>[]} blocks
 * @param {Map<string, Partial<Violation>[]>} broken violations by block
 */
function drawMessages(view, blocks, broken) {
  /** @type {Drawing} */
  const drawing = {
    view,
    broken,
    ...marksOf(view.history),
    widest: Math.max(1, ...blocks.map((block) => number(block.tokens) ?? 0)),
    total: blocks.reduce((sum, block) => sum + (number(block.tokens) ?? 0), 0)
  };
  return messagesOf(blocks).map((message) => {
    const ol = h('ol', { class: 'ctxk-blocks' });
    const messages = list(dict(dict(view.projection).request).messages);
    const sent = message.at === null ? [] : list(dict(messages[message.at]).content);
    let speaker = '';
    for (const [at, block] of message.blocks.entries()) {
      const by = SPEAKERS[block.kind ?? ''] ?? 'kernel';
      const picture = block.kind === 'picture' ? pictureOf(dict(sent[at]).source) : null;
      ol.append(drawBlock(drawing, block, by, by !== speaker, picture));
      speaker = by;
    }
    return h(
      'section',
      { class: 'ctxk-message', 'data-role': message.role },
      h(
        'h3',
        { class: 'ctxk-role' },
        h('span', null, message.at === null ? 'System text' : (ROLES[message.role] ?? message.role)),
        message.at === null ? '' : h('code', { title: 'its place in the request' }, `messages[${message.at}]`),
        h('span', { class: 'ctxk-space' }),
        h('span', { class: 'ctxk-tokens' }, `~${count(message.tokens)}`)
      ),
      ol
    );
  });
}

/**
 * @param {Drawing} drawing
 * @param {Partial<Block>} block
 * @param {Speaker} by
 * @param {boolean} isNew whether another one spoke before
 * @param {Child} picture
 */
function drawBlock(drawing, block, by, isNew, picture) {
  const { view, broken, pins, redactions, widest, total } = drawing;
  const id = String(block.id ?? '');
  const event = eventOf(block);
  const tokens = number(block.tokens) ?? 0;
  /** @param {string} what */
  const key = (what) => `${id}\0${what}`;
  const isOpen = view.openBlocks.has(key('why'));
  const why = h(
    'p',
    { class: 'ctxk-why', hidden: !isOpen },
    block.why || 'No reason was given.',
    block.origin && h('span', { class: 'ctxk-origin' }, 'from ', statementLink(view, block.origin))
  );
  const whyButton = h(
    'button',
    {
      class: 'ctxk-link',
      type: 'button',
      'aria-expanded': String(isOpen),
      'aria-label': `Why ${clean(id)} is here`,
      title: 'Why this block is here',
      'data-keep': key('whybutton'),
      onclick: () => {
        why.hidden = !why.hidden;
        whyButton.setAttribute('aria-expanded', String(!why.hidden));
        view.openBlocks[why.hidden ? 'delete' : 'add'](key('why'));
      }
    },
    'why'
  );
  const share = total ? Math.round((100 * tokens) / total) : 0;
  const redaction = redactions.get(event);
  const items = actionsOf(view, block, event, pins.has(event), redaction);
  const faults = broken.get(id) ?? [];
  const li = h(
    'li',
    {
      class: `ctxk-block ctxk-by-${by}${block.cached ? ' ctxk-cached' : ''}${faults.length ? ' ctxk-broken' : ''}`,
      'data-block': id,
      tabindex: '-1'
    },
    isNew && h('p', { class: 'ctxk-speaker' }, icon(by), AUTHORS[by]),
    h(
      'div',
      { class: 'ctxk-blockline' },
      h('code', { class: 'ctxk-blockid', title: id }, id),
      block.kind && clean(block.kind) !== id && h('span', { class: 'ctxk-tag' }, block.kind),
      pins.has(event) &&
        h(
          'span',
          { class: 'ctxk-tag ctxk-pinned', title: `pinned${pins.get(event) && `: ${pins.get(event)}`}` },
          icon('pin'),
          'pinned'
        ),
      redaction &&
        h(
          'span',
          { class: 'ctxk-tag ctxk-redacted', title: `by ${whose(redaction.by)}: ${clean(redaction.summary)}` },
          redaction.state === 'waiting' ? 'note waits' : 'redacted'
        ),
      h('span', { class: 'ctxk-space' }),
      h(
        'span',
        {
          class: block.cached ? 'ctxk-cachemark' : 'ctxk-freshmark',
          title: block.cached
            ? 'same bytes as in the last projection: a provider’s cache can serve it'
            : 'new or changed since the last projection'
        },
        block.cached ? 'cached' : 'fresh'
      ),
      h('span', { class: 'ctxk-tokens', title: `${share} % of the total` }, `~${count(tokens)}`),
      whyButton,
      items.length > 0 && moreButton(view, block, key, items)
    ),
    bar(tokens / widest, faults.length ? 'error' : 'plain'),
    faults.map((fault) => h('p', { class: 'ctxk-fault' }, h('b', null, fault.rule), `: ${clean(fault.message)}`)),
    why,
    view.drafts.has(event) && id === event && redactForm(view, event),
    picture ?? foldedText(view.openBlocks, key('all'), block.text)
  );
  return li;
}

/** Who gave a directive. @param {string | undefined} by */
const whose = (by) => (by === 'model' ? AUTHORS.model : AUTHORS.human);

/** @param {View} view @param {Partial<Block>} block @param {(what: string) => string} key @param {Item[]} items */
function moreButton(view, block, key, items) {
  const button = h(
    'button',
    {
      class: 'ctxk-more ctxk-blockmore',
      type: 'button',
      'aria-haspopup': 'menu',
      'aria-expanded': 'false',
      'aria-label': `What can be done with ${clean(block.id)}`,
      title: 'What can be done with it',
      'data-keep': key('more')
    },
    icon('more')
  );
  button.addEventListener('click', () => view.menu.open(button, `Block ${clean(block.id)}`, items));
  return button;
}

/**
 * What a person can do with a block of the history.
 * @param {View} view
 * @param {Partial<Block>} block
 * @param {string} event
 * @param {boolean} isPinned
 * @param {Partial<RedactionEntry> | undefined} redaction
 */
function actionsOf(view, block, event, isPinned, redaction) {
  const kind = clean(block.kind);
  if (!block.role || !HISTORY_KINDS.has(kind)) return [];
  /** @type {Item[]} */
  const items = [];
  if (REDACTABLE.has(kind)) {
    if (redaction) items.push({ text: 'Undo the redaction', icon: 'undo', run: () => undoRedaction(view, redaction) });
    else
      items.push({
        text: 'Redact its output…',
        icon: 'redact',
        off: isPinned,
        title: isPinned ? 'It is pinned: unpin it first' : 'A note of yours stands in its place; the output is kept',
        run: () => draftRedaction(view, event)
      });
  }
  if (PINNABLE.has(kind))
    items.push({
      text: isPinned ? 'Unpin' : 'Pin',
      icon: 'pin',
      title: isPinned ? '' : 'It is never condensed, masked or redacted',
      run: () => setPin(view, event, !isPinned)
    });
  if (kind === 'summary') {
    const condensation = event.replace(/~summary\d+$/, '');
    items.push({
      text: 'What it stands for',
      icon: 'fold',
      run: () => view.showEntry(condensation)
    });
    items.push({ text: 'Undo the condensation', icon: 'undo', run: () => undoCondensation(view, condensation) });
  }
  items.push({ text: 'Show the statement', icon: 'flag', run: () => view.showRun(runOf(event)) });
  return items;
}

/* ------------------------------------------------------------ gestures */

/** Show the field for the note that is to stand in an output's place. @param {View} view @param {string} event */
function draftRedaction(view, event) {
  view.drafts.set(event, view.drafts.get(event) ?? '');
  view.refresh('projection');
  const block = blockOf(view, event);
  if (block) find(block, '.ctxk-input')?.focus();
}

/** @param {View} view @param {string} event */
function redactForm(view, event) {
  const input = h('input', {
    class: 'ctxk-input',
    type: 'text',
    'aria-label': `What mattered in the output of ${event}`,
    placeholder: 'What mattered in this output, in one line',
    maxlength: SUMMARY_CHARS,
    'data-keep': `${event}\0draft`
  });
  input.value = view.drafts.get(event) ?? '';
  input.addEventListener('input', () => view.drafts.set(event, input.value));
  const close = () => {
    view.drafts.delete(event);
    view.refresh('projection');
    const block = blockOf(view, event);
    if (block) find(block, '.ctxk-blockmore')?.focus();
  };
  input.addEventListener('keydown', (key) => {
    if (key.key !== 'Escape') return;
    key.stopPropagation();
    close();
  });
  const form = h(
    'form',
    { class: 'ctxk-form ctxk-redact' },
    input,
    h(
      'div',
      { class: 'ctxk-buttons' },
      h('button', { class: 'ctxk-button ctxk-primary', type: 'submit' }, 'Redact'),
      h('button', { class: 'ctxk-button', type: 'button', onclick: close }, 'Cancel')
    )
  );
  form.addEventListener('submit', async (submitted) => {
    submitted.preventDefault();
    if (!input.value.trim()) return input.focus();
    // What is undone is the newest of the statement: this one.
    const back = `redact --undo ${event.split('.')[0]}`;
    const done = await runLine(view, `redact ${event} ${quoted(input.value)}`, { back });
    if (done) close();
  });
  return form;
}

/**
 * Run a `%ctx` line as a gesture. What it said has the button for what comes next: `back`, the line that takes it back,
 * or `next`. Returns whether it went well.
 * @param {View} view
 * @param {string} line
 * @param {{back?: string, next?: Next | null}} [then]
 */
function runLine(view, line, { back = '', next = null } = {}) {
  const undo = back ? { text: 'Undo', run: () => void runLine(view, back) } : null;
  return view.returning.perform(`%ctx ${line}`, 'Done.', next ?? undo);
}

/** @param {View} view @param {Partial<RedactionEntry>} redaction */
const undoRedaction = (view, redaction) => runLine(view, `redact --undo ${clean(redaction.id)}`);
/** @param {View} view @param {string} id */
const undoCondensation = (view, id) => runLine(view, `condense --undo ${clean(id)}`);
/** @param {View} view @param {string} event @param {boolean} on */
const setPin = (view, event, on) =>
  runLine(view, `${on ? 'pin' : 'unpin'} ${event}`, { back: `${on ? 'unpin' : 'pin'} ${event}` });

/** The button that asks for a condensation. @param {View} view */
function condenseButton(view) {
  return h(
    'button',
    {
      class: 'ctxk-button',
      type: 'button',
      title: 'A summary stands for the older part of the history, which is kept (%ctx condense)',
      'data-keep': 'condense',
      onclick: () =>
        void runLine(view, 'condense', { next: { text: 'Show', run: () => view.select('history') } })
    },
    'Condense now'
  );
}

/* ------------------------------------------------------------ where things are */

/**
 * A statement's id, as a button that goes to its row where it is one.
 * @param {View} view
 * @param {string | undefined} id
 * @param {string} [text]
 */
function statementLink(view, id, text = clean(id)) {
  const run = runOf(id);
  if (!/^s\d+/.test(run)) return h('code', null, id);
  return h(
    'button',
    {
      class: 'ctxk-link ctxk-where',
      type: 'button',
      'aria-label': `Show statement ${run} in the timeline`,
      title: 'Show its row in the timeline',
      onclick: () => view.showRun(run)
    },
    text
  );
}

/**
 * A block's id, as a button that goes to it where it is shown.
 * @param {View} view
 * @param {string | null | undefined} id
 */
function blockLink(view, id) {
  const shown = list(view.projection?.blocks).some((block) => block?.id === id);
  if (!id || !shown) return h('code', { class: 'ctxk-blockid' }, id);
  return h(
    'button',
    {
      class: 'ctxk-link ctxk-where',
      type: 'button',
      'aria-label': `Show block ${clean(id)}`,
      title: 'Show the block',
      onclick: () => view.showBlock(id)
    },
    id
  );
}

/** @param {View} view @param {string} id */
const blockOf = (view, id) =>
  findAll(view.sections.projection, '[data-block]').find((el) => el.dataset.block === id);

/** Bring a block into view, with the keyboard. @param {View} view @param {string} id */
function goToBlock(view, id) {
  const el = blockOf(view, id);
  if (!el) return;
  bringToMiddle(view.sections.projection, el);
  el.focus({ preventScroll: true });
  flash(el);
  // Blocks that come into view get their real heights.
  requestAnimationFrame(() => bringToMiddle(view.sections.projection, el));
}

export {
  HISTORY_KINDS,
  drawMessages,
  whose,
  runLine,
  undoRedaction,
  undoCondensation,
  setPin,
  condenseButton,
  statementLink,
  blockLink,
  goToBlock
};
