/**
 * The blocks of a projection, as the messages of the request: who speaks, what it costs, why it is there, and what a
 * person can do to it.
 */

import {
  AUTHORS,
  askKernel,
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
  plural,
  put,
  runOf
} from './base.js';
import { madeLater, makeNow } from './lazylist.js';
import { priced } from './pricing.js';

/** @import {Block, Handle, History, RedactionEntry, Violation} from '../messages.js' */
/** @import {PricedItem} from './pricing.js' */
/** @import {View} from './view.js' */
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
 * @property {number | null} price US dollars a token of an image that is not in the cache; null where it is not known
 * @property {string} words what is searched for, in lower case; empty for nothing
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
  'context',
  'image'
]);
/** Kinds of blocks that are an image: of a cell, or of a handle. */
const IMAGES = new Set(['image', 'picture']);
/** Kinds whose output a person can replace by a note. */
const REDACTABLE = new Set(['statement', 'result']);
/** Kinds of events that can be pinned. */
const PINNABLE = new Set(['statement', 'question', 'answer', 'call', 'result']);
/** @type {Record<string, Speaker>} */
const SPEAKERS = { statement: 'human', question: 'human', answer: 'model', thinking: 'model', call: 'model' };
/** Kinds of blocks that show a handle: their ids are `view:NAME`. */
const OF_HANDLE = new Set(['view', 'group', 'note', 'shown', 'picture']);
/** What the levels of detail show. */
const LEVELS = ['the text', 'structure', 'summary', 'diff'];
/** Pictures that are kept. */
const MOST_PICTURES = 40;
/** Lines of a found block that are shown. */
const FOUND_LINES = 12;
/** Characters of a line that are shown around what was found. */
const FOUND_CHARS = 240;
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
 * The messages that the chosen blocks are in.
 * @param {View} view
 * @param {Partial<Block>[]} blocks all blocks
 * @param {Set<Partial<Block>>} chosen
 * @param {Map<string, Partial<Violation>[]>} broken violations by block
 * @param {string} words what is searched for, in lower case
 */
function drawMessages(view, blocks, chosen, broken, words) {
  const images = dict(dict(view.projection).images);
  const usd = number(images.usd);
  /** @type {Drawing} */
  const drawing = {
    view,
    broken,
    words,
    price: usd !== null && images.tokens ? usd / images.tokens : null,
    ...marksOf(view.history),
    widest: Math.max(1, ...blocks.map((block) => number(block.tokens) ?? 0)),
    total: blocks.reduce((sum, block) => sum + (number(block.tokens) ?? 0), 0)
  };
  return messagesOf(blocks).map((message) => {
    const ol = h('ol', { class: 'ctxk-blocks' });
    let speaker = '';
    for (const block of message.blocks) {
      if (!chosen.has(block)) continue;
      const by = SPEAKERS[block.kind ?? ''] ?? 'kernel';
      ol.append(drawBlock(drawing, block, by, by !== speaker));
      speaker = by;
    }
    if (!ol.childElementCount) return null;
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
 * The images of a block, by their digests: each is asked for when it comes into view.
 * @param {View} view
 * @param {Partial<Block>} block
 */
function picturesOf(view, block) {
  const digests = list(block.images).map(clean);
  return digests.map((digest, n) => {
    const known = view.pictures.get(digest);
    const name = digests.length > 1 ? `image ${n + 1} of ${clean(block.id)}` : `image of ${clean(block.id)}`;
    if (known) return copyOf(known, name);
    const box = h('div', { class: 'ctxk-picturewait' }, h('span', { class: 'ctxk-hint' }, 'Reading the image…'));
    const root = view.sections.projection;
    const seen = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        seen.disconnect();
        void askKernel(view.actions.ask, 'image', { of: digest }).then((answer) => {
          const picture = 'image' in answer ? pictureOf(answer.image) : null;
          if (!picture)
            return void box.replaceChildren(h('span', { class: 'ctxk-hint' }, clean(answer.error) || 'It cannot be shown.'));
          view.pictures.set(digest, picture);
          while (view.pictures.size > MOST_PICTURES) view.pictures.delete([...view.pictures.keys()][0]);
          box.replaceWith(copyOf(picture, name));
        });
      },
      { root, rootMargin: '800px 0px' }
    );
    seen.observe(box);
    return box;
  });
}

/** A name that has the text that is seen in it, so that it can be spoken. @param {string} name @param {string} text */
const named = (name, text) => (name.includes(text) ? name : `${text}: ${name}`);

/** @param {HTMLImageElement} picture @param {string} name */
function copyOf(picture, name) {
  const copy = picture.cloneNode();
  if (copy instanceof HTMLImageElement) copy.alt = name;
  return copy;
}

/**
 * The lines of a text that have what is searched for, with marks.
 * @param {unknown} text
 * @param {string} words in lower case
 */
function foundText(text, words) {
  const lines = clean(text).split('\n');
  const found = lines.map((line, n) => ({ line, n })).filter(({ line }) => line.toLowerCase().includes(words));
  const shown = found.slice(0, FOUND_LINES).map(({ line, n }) => {
    const first = line.toLowerCase().indexOf(words);
    const start = Math.max(0, first - FOUND_CHARS / 2);
    let rest = line.slice(start, start + FOUND_CHARS);
    const parts = /** @type {(string | HTMLElement)[]} */ ([start ? '…' : '']);
    for (let at = rest.toLowerCase().indexOf(words); at >= 0; at = rest.toLowerCase().indexOf(words)) {
      parts.push(rest.slice(0, at), h('mark', { class: 'ctxk-found' }, rest.slice(at, at + words.length)));
      rest = rest.slice(at + words.length);
    }
    return h('span', { class: 'ctxk-foundline' }, h('span', { class: 'ctxk-lineno' }, count(n + 1)), ...parts, rest, '\n');
  });
  if (!shown.length) return null;
  const more = found.length - shown.length;
  return [h('pre', { class: 'ctxk-pre' }, shown), more > 0 && h('p', { class: 'ctxk-hint' }, `… and ${plural(more, 'more line')}`)];
}

/**
 * A block; its content is made when it comes near to what is seen.
 * @param {Drawing} drawing
 * @param {Partial<Block>} block
 * @param {Speaker} by
 * @param {boolean} isNew whether another one spoke before
 */
function drawBlock(drawing, block, by, isNew) {
  const id = String(block.id ?? '');
  const li = h(
    'li',
    {
      class: `ctxk-block ctxk-by-${by}${block.cached ? ' ctxk-cached' : ''}${drawing.broken.has(id) ? ' ctxk-broken' : ''}`,
      'data-block': id,
      tabindex: '-1'
    },
    `${clean(id)} ~${count(block.tokens)}`
  );
  return madeLater(li, id, () => fillBlock(li, drawing, block, by, isNew));
}

/**
 * @param {HTMLElement} li
 * @param {Drawing} drawing
 * @param {Partial<Block>} block
 * @param {Speaker} by
 * @param {boolean} isNew
 */
function fillBlock(li, drawing, block, by, isNew) {
  const { view, broken, pins, redactions, widest, total, price, words } = drawing;
  const pictures = picturesOf(view, block);
  const isImage = IMAGES.has(block.kind ?? '');
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
  put(
    li,
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
      isImage &&
        price !== null &&
        h('span', { class: 'ctxk-tokens', title: 'Its cost where it is not in the cache' }, `~$${(price * tokens).toFixed(4)}`),
      h('span', { class: 'ctxk-tokens', title: `${share} % of the total` }, `~${count(tokens)}`),
      whyButton,
      items.length > 0 && moreButton(view, block, key, items)
    ),
    bar(tokens / widest, faults.length ? 'error' : 'plain'),
    faults.map((fault) => h('p', { class: 'ctxk-fault' }, h('b', null, fault.rule), `: ${clean(fault.message)}`)),
    why,
    view.drafts.has(event) && id === event && redactForm(view, event),
    isImage && pictures.length
      ? null
      : ((words ? foundText(block.text, words) : null) ?? foldedText(view.openBlocks, key('all'), block.text)),
    pictures
  );
}

/** Who gave a directive. @param {string | undefined} by */
const whose = (by) => (by === 'model' ? AUTHORS.model : AUTHORS.human);

/** @param {View} view @param {Partial<Block>} block @param {(what: string) => string} key @param {PricedItem[]} items */
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
  button.addEventListener('click', () => view.menu.open(button, `Block ${clean(block.id)}`, priced(view, items)));
  return button;
}

/**
 * What a person can do with a block.
 * @param {View} view
 * @param {Partial<Block>} block
 * @param {string} event
 * @param {boolean} isPinned
 * @param {Partial<RedactionEntry> | undefined} redaction
 * @returns {PricedItem[]}
 */
function actionsOf(view, block, event, isPinned, redaction) {
  const kind = clean(block.kind);
  if (OF_HANDLE.has(kind)) {
    const handle = handleOf(view, clean(block.id));
    return handle ? handleActions(view, handle) : [];
  }
  if (!block.role || !HISTORY_KINDS.has(kind)) return [];
  /** @type {PricedItem[]} */
  const items = [];
  if (REDACTABLE.has(kind)) {
    if (redaction)
      items.push({
        text: 'Undo the redaction',
        icon: 'undo',
        change: `withdraw=${clean(redaction.id)}`,
        run: () => undoRedaction(view, redaction)
      });
    else
      items.push({
        text: 'Redact its output…',
        icon: 'redact',
        off: isPinned,
        change: `redact=${event}`,
        title: isPinned ? 'It is pinned: unpin it first' : 'A note of yours stands in its place; the output is kept',
        run: () => draftRedaction(view, event)
      });
  }
  if (PINNABLE.has(kind)) {
    const isShort = !isPinned && clean(block.why).includes('in one line');
    items.push({
      text: isPinned ? 'Unpin' : isShort ? 'Show in full, and keep (pin)' : 'Pin',
      icon: 'pin',
      change: `${isPinned ? 'unpin' : 'pin'}=${event}`,
      title: isPinned ? '' : 'It is never condensed, masked or redacted',
      run: () => setPin(view, event, !isPinned)
    });
  }
  if (kind === 'statement')
    items.push({
      text: 'Leave out',
      icon: 'close',
      off: isPinned,
      change: `leave=${event}`,
      title: isPinned ? 'It is pinned: unpin it first' : 'The model does not see this statement; it stays in the timeline',
      run: () => runLine(view, `condense --leave ${event}`, { next: { text: 'Show', run: () => view.select('history') } })
    });
  if (kind === 'summary') {
    const condensation = event.replace(/~summary\d+$/, '');
    items.push({
      text: 'What it stands for',
      icon: 'fold',
      run: () => view.showEntry(condensation)
    });
    items.push({
      text: 'Undo the condensation',
      icon: 'undo',
      change: `withdraw=${condensation}`,
      run: () => undoCondensation(view, condensation)
    });
  }
  items.push({ text: 'Show the statement', icon: 'flag', run: () => view.showRun(runOf(event)) });
  return items;
}

/** The handle that a block shows. @param {View} view @param {string} id such as `view:v` or `view:v:picture` */
function handleOf(view, id) {
  const own = id.split('#')[0].replace(/:picture$/, '');
  return view.handles.map(dict).find((one) => `${one.obj_type}:${one.name}` === own) ?? null;
}

/**
 * What a person can do with a handle, wherever it is shown.
 * @param {View} view
 * @param {Partial<Handle>} handle
 * @returns {PricedItem[]}
 */
function handleActions(view, handle) {
  const name = clean(handle.name);
  if (!/^\w+$/.test(name)) return [];
  /** @type {PricedItem[]} */
  const items = LEVELS.map((told, lod) => ({
    text: `Level ${lod}: ${told}`,
    checked: handle.lod === lod,
    change: handle.lod === lod ? '' : `${name}.lod=${lod}`,
    run: () => void runLine(view, `set ${name}.lod=${lod}`, { back: `set ${name}.lod=${handle.lod}` })
  }));
  const pinned = Boolean(handle.pinned);
  items.push({
    text: pinned ? 'Unpin' : 'Pin',
    icon: 'pin',
    change: `${name}.pinned=${pinned ? 'no' : 'yes'}`,
    title: pinned ? '' : 'Its content is in each request',
    run: () => void setPin(view, name, !pinned)
  });
  if (/^[\p{L}_]/u.test(name))
    items.push(
      {
        text: 'Expand: show it once',
        icon: 'fold',
        change: `${name}.shown=yes`,
        title: 'The next request has its content',
        run: () => void view.returning.perform(`show(${name})`, 'Done.', null)
      },
      {
        text: 'Leave out',
        icon: 'close',
        change: `private=${name}`,
        title: 'Its name and content are kept out of every request (%ctx private)',
        run: () => void runLine(view, `private ${name}`, { back: `private --off ${name}` })
      }
    );
  return items;
}

/* ------------------------------------------------------------ gestures */

/** Show the field for the note that is to stand in an output's place. @param {View} view @param {string} event */
function draftRedaction(view, event) {
  view.drafts.set(event, view.drafts.get(event) ?? '');
  view.refresh('projection');
  const block = blockOf(view, event);
  if (!block) return;
  makeNow(block);
  find(block, '.ctxk-input')?.focus();
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
    if (!block) return;
    makeNow(block);
    find(block, '.ctxk-blockmore')?.focus();
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
      'aria-label': named(`Show statement ${run} in the timeline`, clean(text)),
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
 * @param {string | null | undefined} [text]
 */
function blockLink(view, id, text = id) {
  const shown = list(view.blocks?.blocks).some((block) => block?.id === id);
  if (!id || !shown) return h('code', { class: 'ctxk-blockid' }, id);
  return h(
    'button',
    {
      class: 'ctxk-link ctxk-where',
      type: 'button',
      'aria-label': named(`Show block ${clean(id)}`, clean(text)),
      title: 'Show the block',
      onclick: () => view.showBlock(id)
    },
    text
  );
}

/** @param {View} view @param {string} id */
const blockOf = (view, id) =>
  findAll(view.sections.projection, '[data-block]').find((el) => el.dataset.block === id);

/** Bring a block into view, with the keyboard. @param {View} view @param {string} id */
function goToBlock(view, id) {
  const el = blockOf(view, id);
  if (!el) return;
  makeNow(el);
  bringToMiddle(view.sections.projection, el);
  el.focus({ preventScroll: true });
  flash(el);
  // Blocks that come into view get their real heights.
  requestAnimationFrame(() => bringToMiddle(view.sections.projection, el));
}

export {
  drawMessages,
  blockOf,
  handleActions,
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
