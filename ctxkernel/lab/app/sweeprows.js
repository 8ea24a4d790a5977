/** Rows of a sweep: which a filter keeps, and in which order. Everything here is plain data. */

import { clean } from './text.js';
import { dict, list, number } from './values.js';

/** @import {ShownSweep, SweepLine, SweepValue} from '../messages.js' */

/** @typedef {{name: string, kind: 'value' | 'told', of: (line: Partial<SweepLine>) => Partial<SweepValue>}} Column */

/** @param {unknown} text @param {unknown} [value] @returns {Partial<SweepValue>} */
const told = (text, value = null) => ({ text: clean(text), number: number(value) });

/** The columns of a table: parameters, collected values, and what became of a combination. @param {Partial<ShownSweep>} table @returns {Column[]} */
function columnsOf(table) {
  const names = [...list(table.parameters), ...list(table.collected)].map(clean);
  const rows = list(table.rows).map(dict);
  return [
    ...names.map((name, at) => ({ name, kind: /** @type {const} */ ('value'), of: (/** @type {Partial<SweepLine>} */ line) => dict(list(line.values)[at] ?? told('')) })),
    ...[
      { name: 'status', of: (/** @type {Partial<SweepLine>} */ line) => told(line.status) },
      { name: 'time', of: (/** @type {Partial<SweepLine>} */ line) => told(line.seconds, line.seconds) },
      { name: 'cpu', of: (/** @type {Partial<SweepLine>} */ line) => told(line.cpu, line.cpu) },
      { name: 'diverged', of: (/** @type {Partial<SweepLine>} */ line) => told(line.diverged ? 'yes' : 'no') },
      ...(rows.some((line) => line.output) ? [{ name: 'output', of: (/** @type {Partial<SweepLine>} */ line) => told(line.output) }] : [])
    ].map((one) => ({ ...one, kind: /** @type {const} */ ('told') }))
  ];
}

const CONDITION = /^(.+?)(<=|>=|!=|=|<|>)(.*)$/;

/**
 * Whether a filter keeps a row: each of its words must hold, `alpha<0.5`, `model=ridge`, or a text in any column.
 * @param {Column[]} columns @param {string} filter
 * @returns {(line: Partial<SweepLine>) => boolean}
 */
function keeps(columns, filter) {
  const tests = filter
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => {
      const [, name, sign, wanted] = CONDITION.exec(word) ?? [];
      const column = columns.find((one) => one.name === name);
      if (!column || wanted === '')
        return (/** @type {Partial<SweepLine>} */ line) =>
          columns.some((one) => clean(one.of(line).text).toLowerCase().includes(word.toLowerCase()));
      return (/** @type {Partial<SweepLine>} */ line) => holds(column.of(line), sign, wanted);
    });
  return (line) => tests.every((test) => test(line));
}

/** @param {Partial<SweepValue>} value @param {string} sign @param {string} wanted */
function holds(value, sign, wanted) {
  const [a, b] = [number(value.number), Number(wanted)];
  if (a === null || Number.isNaN(b)) {
    const same = clean(value.text).replace(/^(['"])(.*)\1$/, '$2') === wanted;
    return sign === '=' ? same : sign === '!=' && !same;
  }
  return { '=': a === b, '!=': a !== b, '<': a < b, '>': a > b, '<=': a <= b, '>=': a >= b }[sign] ?? false;
}

/**
 * The rows in the order of a column; rows without a number come last.
 * @template {Partial<SweepLine>} Line
 * @param {readonly Line[]} rows @param {Column | undefined} column @param {boolean} down
 * @returns {readonly Line[]}
 */
function inOrder(rows, column, down) {
  if (!column) return rows;
  const sorted = rows.map((line, at) => ({ line, at, value: column.of(line) }));
  sorted.sort((one, other) => {
    const [a, b] = [number(one.value.number), number(other.value.number)];
    if (a !== null && b !== null) return (down ? b - a : a - b) || one.at - other.at;
    if (a !== null || b !== null) return a === null ? 1 : -1;
    const order = clean(one.value.text).localeCompare(clean(other.value.text));
    return (down ? -order : order) || one.at - other.at;
  });
  return sorted.map(({ line }) => line);
}

export { columnsOf, inOrder, keeps };
