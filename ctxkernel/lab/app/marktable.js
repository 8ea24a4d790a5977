/**
 * Reads the tables in which the kernel tells the marks of cells: what holds for many cells is said once. Pure: no page.
 *
 * Rule: a table is a stranger's. What it says of cells that are not known is left out.
 */

import { dict, list, number, textOf } from './values.js';

/** @import {CellMark, CellSpans, CellTable} from '../messages.js' */

/** Most cells of one span. */
const MOST_CELLS = 1e5;

/**
 * Put what a table says into marks. Returns the ids of the cells that it changes.
 * @param {Map<string, Partial<CellMark>>} marks by the cell's id
 * @param {string[]} names ids of cells by their number
 * @param {Partial<CellTable>} table
 */
function readTable(marks, names, table) {
  const first = number(table.first) ?? 0;
  list(table.ids).forEach((id, i) => (names[first + i] = textOf(id)));
  /** @type {Set<string>} */
  const changed = new Set();
  /** @param {number} cell @param {Partial<CellMark>} fields */
  const amend = (cell, fields) => {
    const id = names[cell];
    if (id === undefined) return;
    marks.set(id, { ...marks.get(id), ...fields });
    changed.add(id);
  };
  let at = 0;
  spans(table.newest, (cell, value) => {
    const execution_id = textOf(value);
    amend(cell, {
      execution_id,
      statement_id: execution_id.split('.')[0],
      source: textOf(list(table.sources)[at]),
      count: number(list(table.counts)[at])
    });
    at += 1;
  });
  spans(table.on_head, (cell, value) => {
    const newest = marks.get(names[cell] ?? '')?.execution_id ?? null;
    amend(cell, { on_head: value === true ? newest : typeof value === 'string' ? value : null });
  });
  spans(table.stands, (cell, value) => {
    const look = list(table.looks)[number(value) ?? -1];
    // Reasons that are not told are to be asked for: those of before do not hold any more.
    if (look) amend(cell, { because: undefined, upstream: undefined, ...dict(look) });
  });
  return changed;
}

/** @param {Partial<CellSpans> | undefined} told @param {(cell: number, value: unknown) => void} each */
function spans(told, each) {
  const { cells, lengths, values } = dict(told);
  list(cells).forEach((first, i) => {
    let value = /** @type {unknown} */ (list(values)[i]);
    for (let n = 0; n < Math.min(number(list(lengths)[i]) ?? 1, MOST_CELLS); n += 1) {
      each((number(first) ?? 0) + n, value);
      value = following(value);
    }
  });
}

/** The same run of the next statement: `s13.1` of `s12.1`; anything else stays. @param {unknown} value */
function following(value) {
  const [, index, run] = (typeof value === 'string' && /^s(\d+)\.(\d+)$/.exec(value)) || [];
  return index === undefined ? value : `s${Number(index) + 1}.${run}`;
}

export { readTable };
