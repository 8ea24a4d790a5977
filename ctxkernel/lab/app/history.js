/** The section History: what was done to the history that the model is shown, by whom, why, and how to take it back. */

import {
  blockLink,
  condenseButton,
  runLine,
  setPin,
  statementLink,
  undoCondensation,
  undoRedaction,
  whose
} from './blocks.js?v=0.1.0';
import {
  bringToMiddle,
  clean,
  count,
  dict,
  emptyState,
  flash,
  foldable,
  foldedText,
  h,
  heading,
  list,
  number,
  plural,
  put,
  runOf
} from './base.js?v=0.1.0';

const STATES = {
  applied: '',
  waiting: 'waits: it takes effect with others, when that pays',
  again: 'its output is a note already',
  undone: 'taken back'
};

/** The number of things that the section tells. */
export const historySize = (history) =>
  ['entries', 'pins', 'waiting'].reduce((sum, name) => sum + list(dict(history)[name]).length, 0) +
  (number(dict(history).more) ?? 0);

/** All that is recorded, the newest first. */
export function drawHistory(view) {
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
        .map(dict)
        .reverse()
        .map((one) => drawEntry(view, one))
    ),
    more > 0 && h('p', { class: 'ctxk-hint ctxk-older' }, `${plural(more, 'older entry', 'older entries')}`)
  ];
}

const recordsOf = (title, items, hint = '') =>
  h(
    'section',
    { class: 'ctxk-fold' },
    heading(title),
    hint && h('p', { class: 'ctxk-hint' }, hint),
    h('ul', { class: 'ctxk-marked' }, items)
  );

function drawPin(view, one) {
  return h(
    'li',
    null,
    blockLink(view, one.target),
    h('span', { class: 'ctxk-src ctxk-muted' }, one.reason),
    undoButton(`Unpin ${clean(one.target)}`, `pin\0${one.target}`, () => setPin(view, clean(one.target), false), 'Unpin')
  );
}

const undoButton = (told, key, onclick, text = 'Undo') =>
  h('button', { class: 'ctxk-link', type: 'button', 'aria-label': told, 'data-keep': key, onclick }, text);

const DRAW_ENTRY = { repair: ofRepair, condensation: ofCondensation, redaction: ofRedaction, batch: ofBatch };

function drawEntry(view, one) {
  const state = clean(one.state);
  const { word, title, undo = null, body } = (DRAW_ENTRY[one.kind] ?? ofUnknown)(view, one);
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

const reasonLine = (one) => one.reason && h('p', { class: 'ctxk-muted' }, one.reason);
const ofUnknown = (view, one) => ({ word: clean(one.kind), title: clean(one.id), body: reasonLine(one) });

function ofRepair(view, one) {
  return { word: 'repaired', title: [`${clean(one.fix)} `, h('code', null, one.target)], body: reasonLine(one) };
}

function ofBatch(view, one) {
  const n = number(one.redactions) ?? 0;
  return {
    word: 'took effect',
    title: plural(n, 'redaction of the model', 'redactions of the model'),
    body: reasonLine(one)
  };
}

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

function ofCondensation(view, one) {
  const n = number(one.events) ?? 0;
  if (!n) return { word: 'not condensed', title: '', body: reasonLine(one) };
  const range = one.first === one.last ? clean(one.first) : `${clean(one.first)} … ${clean(one.last)}`;
  return {
    word: 'condensed',
    title: [plural(n, 'event'), ' ', h('span', { class: 'ctxk-muted' }, range)],
    undo:
      one.state === 'undone'
        ? null
        : undoButton(`Undo the condensation of ${range}`, `undo\0${one.id}`, () => undoCondensation(view, one.id)),
    body: [
      reasonLine(one),
      foldedText(view.openBlocks, `${one.id}\0summary`, one.summary),
      foldable(view.openFolds, `events\0${one.id}`, `Open: the ${plural(n, 'event')} it stands for`, (box) => {
        const known = view.condensed.get(one.id);
        if (known) return drawEvents(view, one.id, known);
        void open(view, one.id, box);
        return h('p', { class: 'ctxk-hint' }, 'Asking the kernel…');
      })
    ]
  };
}

/** Show what a condensation stands for. It never changes, so it is asked for once. */
async function open(view, id, box) {
  let answer;
  try {
    answer = await view.actions.ask?.('events', { of: id });
  } catch (error) {
    answer = { error: `The kernel did not answer: ${error?.message ?? error}` };
  }
  const found = answer?.events && dict(answer.events);
  if (found) view.condensed.set(id, found);
  box.replaceChildren();
  put(
    box,
    found
      ? drawEvents(view, id, found)
      : h('p', { class: 'ctxk-note' }, answer?.error || 'This panel cannot ask the kernel.')
  );
}

function drawEvents(view, id, found) {
  const more = number(found.more) ?? 0;
  return [
    list(found.events)
      .map(dict)
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

/** Bring an entry into view, with what it stands for open. */
export function goToEntry(view, id) {
  const el = [...view.sections.history.querySelectorAll('[data-entry]')].find((one) => one.dataset.entry === id);
  if (!el) return void runLine(view, `condense --show ${id}`);
  const fold = el.querySelector('details');
  if (fold) fold.open = true;
  bringToMiddle(view.sections.history, el);
  el.focus({ preventScroll: true });
  flash(el);
}
