/** The section History: what was done to the history that the model is shown, by whom, why, and how to take it back. */

import { askKernel } from './askkernel.js';
import { condenseButton, runLine, setPin, undoCondensation, undoRedaction, whose } from './blockactions.js';
import { blockLink, statementLink } from './blocklinks.js';
import { emptyState, foldable, foldedText, heading } from './components.js';
import { bringToMiddle, findAll, flash, h, put } from './elements.js';
import { runOf } from './rownames.js';
import { clean } from './text.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {BatchEntry, CondensationEntry, CondensedEvents, Entry, History, PinnedEvent} from '../messages.js' */
/** @import {RedactionEntry, RepairEntry} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {View} from './view.js' */

/** @typedef {{word: string, title: Child, body: Child, undo?: Child}} Drawn how an entry is drawn */

/** @type {Record<string, string>} */
const STATES = {
  applied: '',
  waiting: 'waits: it takes effect with others, when that pays',
  again: 'its output is a note already',
  undone: 'taken back'
};

/** The number of things that the section tells. @param {History | null} history */
const historySize = (history) =>
  list(history?.entries).length +
  list(history?.pins).length +
  list(history?.waiting).length +
  (number(history?.more) ?? 0);

/** All that is recorded, the newest first. @param {View} view */
function drawHistory(view) {
  const told = view.history && dict(view.history);
  if (!told)
    return emptyState(
      'Nothing was done to the history',
      'Repairs, condensations, redactions and pins stand here, each with its reason and the way back.'
    );
  const pins = list(told.pins).map(dict);
  const waiting = list(told.waiting).map(dict);
  const more = number(told.more) ?? 0;
  return [
    h(
      'div',
      { class: 'ctxk-meter' },
      told.asked &&
        h('p', { class: 'ctxk-hint' }, 'A condensation was asked for: it comes at the end of the next cell.'),
      h('div', { class: 'ctxk-buttons' }, condenseButton(view))
    ),
    waiting.length > 0 &&
      recordsOf(
        `${plural(waiting.length, 'call')} without a result`,
        waiting.map((one) =>
          h('li', null, statementLink(view, one.event_id), h('code', { class: 'ctxk-src' }, one.tool))
        ),
        'A call is shown to the model with its results only.'
      ),
    pins.length > 0 && recordsOf(`Pinned (${count(pins.length)})`, pins.map((one) => drawPin(view, one))),
    h(
      'ol',
      { class: 'ctxk-entries' },
      list(told.entries)
        .map((one) => dict(one))
        .reverse()
        .map((one) => drawEntry(view, one))
    ),
    more > 0 && h('p', { class: 'ctxk-hint ctxk-older' }, `${plural(more, 'older entry', 'older entries')}`)
  ];
}

/** @param {string} title @param {Child[]} items @param {string} [hint] */
const recordsOf = (title, items, hint = '') =>
  h(
    'section',
    { class: 'ctxk-fold' },
    heading(title),
    hint && h('p', { class: 'ctxk-hint' }, hint),
    h('ul', { class: 'ctxk-marked' }, items)
  );

/** @param {View} view @param {Partial<PinnedEvent>} one */
function drawPin(view, one) {
  return h(
    'li',
    null,
    blockLink(view, one.target),
    h('span', { class: 'ctxk-src ctxk-muted' }, one.reason),
    undoButton(`Unpin ${clean(one.target)}`, `pin\0${one.target}`, () => setPin(view, clean(one.target), false), 'Unpin')
  );
}

/** @param {string} told @param {string} key @param {() => void} onclick @param {string} [text] */
const undoButton = (told, key, onclick, text = 'Undo') =>
  h('button', { class: 'ctxk-link', type: 'button', 'aria-label': told, 'data-keep': key, onclick }, text);

/**
 * How an entry is drawn; one of a kind that this front end does not know, by its reason.
 * @param {View} view
 * @param {Partial<Entry>} one
 * @returns {Drawn}
 */
function drawnOf(view, one) {
  switch (one.kind) {
    case 'repair':
      return ofRepair(one);
    case 'condensation':
      return ofCondensation(view, one);
    case 'redaction':
      return ofRedaction(view, one);
    case 'batch':
      return ofBatch(one);
    default: {
      const { kind, id, reason } = /** @type {Partial<RepairEntry>} */ (one);
      return { word: clean(kind), title: clean(id), body: reasonLine(reason) };
    }
  }
}

/** @param {View} view @param {Partial<Entry>} one */
function drawEntry(view, one) {
  const state = 'state' in one ? clean(one.state) : '';
  const { word, title, undo, body } = drawnOf(view, one);
  return h(
    'li',
    {
      class: `ctxk-entry ctxk-entry-${word}${state === 'undone' ? ' ctxk-undone' : ''}`,
      'data-entry': one.id,
      tabindex: '-1'
    },
    h(
      'div',
      { class: 'ctxk-blockline' },
      h('span', { class: 'ctxk-tag' }, word),
      h('span', { class: 'ctxk-entrytitle' }, title),
      h('span', { class: 'ctxk-space' }),
      h('span', { class: 'ctxk-muted' }, 'in ', statementLink(view, one.id, runOf(one.id).split('.')[0])),
      undo
    ),
    STATES[state] ? h('p', { class: 'ctxk-hint' }, STATES[state]) : '',
    body
  );
}

/** @param {string | undefined} reason */
const reasonLine = (reason) => reason && h('p', { class: 'ctxk-muted' }, reason);

/** @param {Partial<RepairEntry>} one @returns {Drawn} */
function ofRepair(one) {
  return { word: 'repaired', title: [`${clean(one.fix)} `, h('code', null, one.target)], body: reasonLine(one.reason) };
}

/** @param {Partial<BatchEntry>} one @returns {Drawn} */
function ofBatch(one) {
  const n = number(one.redactions) ?? 0;
  return {
    word: 'took effect',
    title: plural(n, 'redaction of the model', 'redactions of the model'),
    body: reasonLine(one.reason)
  };
}

/** @param {View} view @param {Partial<RedactionEntry>} one @returns {Drawn} */
function ofRedaction(view, one) {
  return {
    word: 'redacted',
    title: [blockLink(view, one.target), ` by ${whose(one.by)}`],
    undo:
      one.state === 'undone'
        ? null
        : undoButton(`Undo the redaction of ${clean(one.target)}`, `undo\0${one.id}`, () => undoRedaction(view, one)),
    body: h('p', { class: 'ctxk-quote' }, one.summary)
  };
}

/** @param {View} view @param {Partial<CondensationEntry>} one @returns {Drawn} */
function ofCondensation(view, one) {
  const n = number(one.events) ?? 0;
  const id = clean(one.id);
  if (!n) return { word: 'not condensed', title: '', body: reasonLine(one.reason) };
  const range = one.first === one.last ? clean(one.first) : `${clean(one.first)} … ${clean(one.last)}`;
  return {
    word: 'condensed',
    title: [plural(n, 'event'), ' ', h('span', { class: 'ctxk-muted' }, range)],
    undo:
      one.state === 'undone'
        ? null
        : undoButton(`Undo the condensation of ${range}`, `undo\0${one.id}`, () => undoCondensation(view, id)),
    body: [
      reasonLine(one.reason),
      foldedText(view.openBlocks, `${one.id}\0summary`, one.summary),
      foldable(view.openFolds, `events\0${one.id}`, `Open: the ${plural(n, 'event')} it stands for`, (box) => {
        const known = view.condensed.get(id);
        if (known) return drawEvents(view, id, known);
        void open(view, id, box);
        return h('p', { class: 'ctxk-hint' }, 'Asking the kernel…');
      })
    ]
  };
}

/**
 * Show what a condensation stands for. It never changes, so it is asked for once.
 * @param {View} view
 * @param {string} id
 * @param {HTMLElement} box
 */
async function open(view, id, box) {
  const answer = await askKernel(view.actions.ask, 'events', { of: id });
  const found = 'events' in answer && answer.events ? dict(answer.events) : null;
  if (found) view.condensed.set(id, found);
  box.replaceChildren();
  put(
    box,
    found
      ? drawEvents(view, id, found)
      : h('p', { class: 'ctxk-note' }, answer.error || 'The kernel gave no answer.')
  );
}

/** @param {View} view @param {string} id @param {Partial<CondensedEvents>} found @returns {Child} */
function drawEvents(view, id, found) {
  const more = number(found.more) ?? 0;
  return [
    list(found.events)
      .map((event) => dict(event))
      .map((event) =>
        h(
          'section',
          { class: 'ctxk-event' },
          h('p', { class: 'ctxk-blockline' }, statementLink(view, event.id), h('span', { class: 'ctxk-tag' }, event.kind)),
          foldedText(view.openBlocks, `${event.id}\0of ${id}`, event.text)
        )
      ),
    more > 0 && h('p', { class: 'ctxk-hint' }, `… and ${plural(more, 'more event')}: %ctx condense --show`)
  ];
}

/** Bring an entry into view, with what it stands for open. @param {View} view @param {string} id */
function goToEntry(view, id) {
  const el = findAll(view.sections.history, '[data-entry]').find((one) => one.dataset.entry === id);
  if (!el) return void runLine(view, `condense --show ${id}`);
  const fold = el.querySelector('details');
  if (fold) fold.open = true;
  bringToMiddle(view.sections.history, el);
  el.focus({ preventScroll: true });
  flash(el);
}

export { historySize, drawHistory, goToEntry };
