/**
 * The differences of two states, by value: names, outputs, handles, files. What the kernel answers to `difference`.
 *
 * Rule 1: every text is untrusted and enters the page as text; a picture is a base64 PNG or JPEG.
 * Rule 2: it needs no panel: the export of a session draws the same answers with `drawDifferences`.
 */

import { askKernel } from './askkernel.js';
import { pictureOf, pre } from './components.js';
import { h } from './elements.js';
import { clean } from './text.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {FileDifference, NameDifference, OtherDifference, OutputDifference, StateDifference, ValueDifference, ValuePicture, ValueTable} from '../messages.js' */
/** @import {Ask, Child} from '../types.js' */

/**
 * Ask the kernel for the differences of two states and draw them into `box`.
 * @param {Ask | undefined} ask
 * @param {HTMLElement} box
 * @param {{old: string, new: string | null, names?: readonly string[]}} places what `%ctx goto` takes; null is HEAD
 */
async function showDifferences(ask, box, places) {
  const asked = JSON.stringify(places);
  box.dataset.asked = asked;
  box.setAttribute('aria-busy', 'true');
  box.replaceChildren(h('p', { class: 'ctxk-hint' }, 'Comparing…'));
  const answer = await askKernel(ask, 'difference', places);
  if (box.dataset.asked !== asked) return; // another pair was chosen meanwhile
  box.removeAttribute('aria-busy');
  const found = 'difference' in answer ? answer.difference : null;
  box.replaceChildren(
    found
      ? drawDifferences(found, (name) => showDifferences(ask, box, { ...places, names: [name] }))
      : h('p', { class: 'ctxk-note' }, answer.error || 'The kernel gave no answer.')
  );
}

/**
 * The element of an answer. `again` asks for one name that was not compared in time.
 * @param {Partial<StateDifference>} found
 * @param {(name: string) => void} [again]
 */
function drawDifferences(found, again) {
  const parts = [
    list(found.added).map((one) => line('+', one)),
    list(found.changed).map((one) => named('~', one, again)),
    list(found.deleted).map((one) => line('−', one)),
    list(found.handles).map((one) => line('handle', one)),
    list(found.files).map((one) => named('file', one)),
    list(found.outputs).map((one) => named('output of', one))
  ].flat();
  const more = number(found.more) ?? 0;
  return h(
    'div',
    { class: 'ctxk-differences' },
    parts.length ? parts : h('p', { class: 'ctxk-hint' }, 'No difference.'),
    more > 0 && h('p', { class: 'ctxk-hint' }, `… and ${plural(more, 'more difference')}: %ctx diff`),
    list(found.notes).map((note) => h('p', { class: 'ctxk-hint' }, note))
  );
}

/** @param {string} sign @param {Partial<NameDifference | OtherDifference>} one */
const line = (sign, one) => h('p', { class: 'ctxk-difference' }, head(sign, one));

/** @param {string} sign @param {Partial<NameDifference | OtherDifference>} one @returns {Child} */
const head = (sign, one) => [
  h('span', { class: 'ctxk-sign' }, sign),
  ' ',
  h('code', { class: 'ctxk-subject' }, one.name),
  ' ',
  h('span', { class: 'ctxk-muted' }, one.told)
];

/**
 * @param {string} sign
 * @param {Partial<NameDifference | OutputDifference | FileDifference>} one
 * @param {(name: string) => void} [again]
 */
function named(sign, one, again) {
  const value = one.value;
  const body = value ? drawValue(value) : [];
  const waits = value?.known === 'pending' && again;
  if (!body.length) return line(sign, one);
  return h(
    'details',
    { class: 'ctxk-difference', open: true, 'data-name': clean(one.name) },
    h('summary', null, head(sign, one)),
    h('div', { class: 'ctxk-value' }, body),
    waits &&
      h(
        'button',
        { class: 'ctxk-button', type: 'button', onclick: () => again(String(one.name)) },
        'Compare this one'
      )
  );
}

/** All of a difference but its summary. @param {Partial<ValueDifference>} value @returns {Child[]} */
function drawValue(value) {
  const more = number(value.more) ?? 0;
  /** @type {Child[]} */
  const made = [
    value.reason ? h('p', { class: 'ctxk-note' }, `${clean(value.known)}: `, value.reason) : null,
    ...list(value.notes).map((note) => h('p', { class: 'ctxk-hint' }, note)),
    ...list(value.tables).map(table),
    list(value.diff).length ? diffLines(list(value.diff)) : null,
    list(value.pictures).length ? h('div', { class: 'ctxk-pictures' }, list(value.pictures).map(picture)) : null,
    ...list(value.parts).map((part) => {
      const body = drawValue(dict(part));
      const title = head('', { name: part?.name, told: part?.summary });
      return body.length
        ? h('details', { class: 'ctxk-difference', open: true }, h('summary', null, title), h('div', { class: 'ctxk-value' }, body))
        : h('p', { class: 'ctxk-difference' }, title);
    }),
    more > 0 ? h('p', { class: 'ctxk-hint' }, `… ${count(more)} more`) : null
  ];
  return made.filter((one) => one !== null);
}

/** @param {Partial<ValueTable>} given */
function table(given) {
  const right = new Set(list(given.right));
  const heads = list(given.head);
  const more = number(given.more) ?? 0;
  /** @param {'th' | 'td'} tag @param {unknown} text @param {number} at */
  const cell = (tag, text, at) =>
    h(tag, { scope: tag === 'th' ? 'col' : null, class: right.has(at) ? 'ctxk-right' : null }, clean(text));
  return h(
    'div',
    { class: 'ctxk-tablebox', tabindex: '0', role: 'group', 'aria-label': clean(given.title) || 'what differs' },
    given.title ? h('p', { class: 'ctxk-hint' }, given.title) : null,
    h(
      'table',
      { class: 'ctxk-values' },
      heads.some(Boolean) ? h('thead', null, h('tr', null, heads.map((text, at) => cell('th', text, at)))) : null,
      h('tbody', null, list(given.rows).map((row) => h('tr', null, list(row).map((text, at) => cell('td', text, at)))))
    ),
    more > 0 ? h('p', { class: 'ctxk-hint' }, `… ${count(more)} more`) : null
  );
}

/** @param {readonly string[]} lines */
function diffLines(lines) {
  const box = pre('');
  box.classList.add('ctxk-diff');
  for (const text of lines) {
    const kind = text.startsWith('+') ? 'ctxk-gained' : text.startsWith('-') ? 'ctxk-lost' : null;
    box.append(h('span', { class: kind }, clean(text)), '\n');
  }
  return box;
}

/** @param {Partial<ValuePicture>} given */
function picture(given) {
  const image = pictureOf({ media_type: given.media_type ?? '', data: given.data ?? '' });
  if (!image) return null;
  image.alt = clean(given.label);
  return h('figure', null, image, h('figcaption', null, given.label));
}

export { drawDifferences, drawValue, showDifferences };
