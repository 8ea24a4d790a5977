/** The section Re-run: what of the last re-run came out as before, what did not, and what that comes from. */

import { emptyState, foldable, pre } from './components.js';
import { showDifferences } from './differences.js';
import { find, h } from './elements.js';
import { label } from './rownames.js';
import { verdict } from './rowparts.js';
import { clean, headline, marked } from './text.js';
import { count, dict, duration, list, number, plural } from './values.js';

/** @import {Comparison, Divergence} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {View} from './view.js' */
/** @import {AnyRow} from './tree.js' */

/** @type {Record<string, string>} */
const KINDS = {
  output: 'output',
  state: 'state',
  artifact: 'artifact',
  error: 'error',
  file: 'file read',
  timing: 'time',
  unknown: 'not compared'
};
/** Excerpts up to this length stand on one line, as `before → after`. */
const SHORT = 40;

/** The table of all comparisons of the last re-run on the way to HEAD. @param {View} view */
function drawComparisons(view) {
  const rows = view.compared;
  if (!rows.length)
    return emptyState(
      'Nothing was re-run here',
      'Choose “Re-run from here” on a statement: what comes out differently is listed here, with what it comes from.'
    );
  const all = rows.map((row) => ({ row, ...verdict(row.comparison) }));
  /** @param {string} word */
  const of = (word) => all.filter((one) => one.word === word).length;
  const only = h('input', { type: 'checkbox', 'data-part': 'only' });
  only.checked = view.onlyDiffering;
  only.addEventListener('change', () => {
    view.onlyDiffering = only.checked;
    view.refresh('rerun');
    find(view.sections.rerun, '[data-part=only]')?.focus();
  });
  // Of a run that is the same, only what could not be compared is among what was found.
  const shown = view.onlyDiffering ? all.filter((one) => one.word !== 'same' || one.found.length) : all;
  /** @param {number} i */
  const total = (i) => rows.reduce((sum, row) => sum + (number(list(row.comparison?.time_ms)[i]) ?? 0), 0);
  return [
    h(
      'div',
      { class: 'ctxk-verdicts' },
      h(
        'p',
        null,
        h('b', null, plural(rows.length, 'statement'), ' re-run'),
        [
          ['differs', '≠'],
          ['expected', '≈'],
          ['same', '=']
        ]
          .filter(([word]) => of(word))
          .map(([word, glyph]) =>
            h(
              'span',
              { class: `ctxk-cmp ctxk-cmp-${word}` },
              `${glyph} ${count(of(word))} ${word === 'expected' ? 'as expected' : word === 'differs' ? plural(of(word), 'differs', 'differ').replace(/^\S+ /, '') : word}`
            )
          )
      ),
      h('p', { class: 'ctxk-hint' }, `time ${duration(total(0))} → ${duration(total(1))}`),
      h('label', { class: 'ctxk-filter' }, only, 'only what differs')
    ),
    shown.length
      ? h(
          'table',
          { class: 'ctxk-comparisons' },
          h(
            'thead',
            null,
            h(
              'tr',
              null,
              ['run', 'what differs', 'time'].map((text) => h('th', { scope: 'col' }, text))
            )
          ),
          shown.map((one) => comparisonRows(view, one))
        )
      : h('p', { class: 'ctxk-hint ctxk-allsame' }, '✓ All came out as before.')
  ];
}

/** @param {View} view @param {{row: AnyRow} & ReturnType<typeof verdict>} compared */
function comparisonRows(view, { row, word, glyph, found }) {
  const c = dict(row.comparison);
  const [before, after] = list(c.time_ms);
  const go = h(
    'button',
    {
      class: 'ctxk-link',
      type: 'button',
      title: `${c.against ? `against ${c.against}\n` : ''}${marked(row.source).slice(0, 600)}`,
      onclick: () => row.cell_id && view.actions.goto?.(String(row.cell_id))
    },
    label(row)
  );
  return h(
    'tbody',
    { class: `ctxk-comparison ctxk-comparison-${word}`, 'data-comparison': c.execution_id ?? row.execution_id },
    h(
      'tr',
      null,
      h('th', { scope: 'row' }, go),
      h(
        'td',
        null,
        h(
          'span',
          { class: `ctxk-cmp ctxk-cmp-${word}` },
          h('span', { 'aria-hidden': 'true' }, glyph),
          ` ${word === 'expected' ? 'as expected' : word === 'same' && found.length ? 'same as far as it could be compared' : word}`
        ),
        h('code', { class: 'ctxk-src' }, headline(row.source))
      ),
      h('td', { class: 'ctxk-times' }, h('span', null, duration(before)), ' ', h('span', null, `→ ${duration(after)}`))
    ),
    found.map((one) => h('tr', { class: 'ctxk-divergence' }, h('td'), h('td', { colspan: '2' }, divergence(one), valueOf(view, c, one))))
  );
}

/**
 * How the values of a variable, or the contents of a file, differ, asked for when it is opened.
 * @param {View} view @param {Partial<Comparison>} c @param {Partial<Divergence>} one
 */
function valueOf(view, c, one) {
  const title = one.kind === 'state' ? 'how its values differ' : one.kind === 'artifact' ? 'how its contents differ' : '';
  if (!title || !c.against || !c.execution_id || !one.before || !one.after) return null;
  const places = { old: c.against, new: c.execution_id, names: [String(one.subject)] };
  return foldable(view.openFolds, `value ${places.new} ${one.subject}`, title, (box) => {
    void showDifferences(view.actions.ask, box, places);
    return null;
  });
}

/** @param {Partial<Divergence>} one @returns {Child} */
function divergence(one) {
  // Of a file they are hashes.
  const isFile = one.kind === 'artifact' || one.kind === 'file';
  const [before, after] = isFile ? ['', ''] : [clean(one.before), clean(one.after)];
  const told = clean(one.summary);
  // A summary such as `10 → 11` says it all.
  const said = [before, after].every((text) => text && told.includes(text));
  const short = [before, after].every((text) => text.length <= SHORT && !text.includes('\n'));
  return [
    h(
      'p',
      null,
      h('span', { class: 'ctxk-tag' }, KINDS[one.kind ?? ''] ?? one.kind),
      ' ',
      h('code', { class: 'ctxk-subject' }, one.subject),
      ' ',
      h('span', { class: 'ctxk-muted' }, one.summary),
      one.cause ? h('span', { class: 'ctxk-cause' }, one.cause) : null
    ),
    said || !(before || after)
      ? null
      : short
        ? h(
            'p',
            { class: 'ctxk-excerpt' },
            h('code', null, before || '(nothing)'),
            ' → ',
            h('code', null, after || '(nothing)')
          )
        : h(
            'details',
            { class: 'ctxk-excerpts' },
            h('summary', null, 'before and after'),
            excerpt('before', before),
            excerpt('after', after)
          )
  ];
}

/** @param {string} title @param {string} text */
const excerpt = (title, text) =>
  h('div', null, h('h4', { class: 'ctxk-h' }, title), text ? pre(text) : h('p', { class: 'ctxk-hint' }, 'nothing'));

export { drawComparisons };
