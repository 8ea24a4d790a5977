/** What a person can do with a block of the projection or with its handle, each with its price, as gestures. */

import { blockOf } from './blocklinks.js';
import { find, h } from './elements.js';
import { makeNow } from './lazylist.js';
import { AUTHORS, runOf } from './rownames.js';
import { clean, quoted } from './text.js';
import { dict } from './values.js';

/** @import {Block, Handle, RedactionEntry} from '../messages.js' */
/** @import {PricedItem} from './pricing.js' */
/** @import {Next} from './plans.js' */
/** @import {View} from './view.js' */

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
/** Kinds whose output a person can replace by a note. */
const REDACTABLE = new Set(['statement', 'result']);
/** Kinds of events that can be pinned. */
const PINNABLE = new Set(['statement', 'question', 'answer', 'call', 'result']);
/** Kinds of blocks that show a handle: their ids are `view:NAME`. */
const OF_HANDLE = new Set(['view', 'group', 'note', 'shown', 'picture']);
/** What the levels of detail show. */
const LEVELS = ['the text', 'structure', 'summary', 'diff'];
/** Characters of a summary that the kernel takes. */
const SUMMARY_CHARS = 400;

/** Who gave a directive. @param {string | undefined} by */
const whose = (by) => (by === 'model' ? AUTHORS.model : AUTHORS.human);

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

export {
  actionsOf,
  condenseButton,
  handleActions,
  redactForm,
  runLine,
  setPin,
  undoCondensation,
  undoRedaction,
  whose
};
