/** Parallel coordinates of a sweep: an axis for each parameter that varies and each collected number, a line for each row. */

import { h } from './elements.js';
import { clean } from './text.js';
import { duration, number, plural } from './values.js';

/** @import {SweepLine} from '../messages.js' */
/** @import {Column} from './sweeprows.js' */

const SVG = 'http://www.w3.org/2000/svg';
const [STEP, TOP, BOTTOM, HIGH] = [110, 22, 130, 152];
const MOST_AXES = 12;
const MOST_LINES = 500;

/** @typedef {{name: string, at: (line: Partial<SweepLine>) => number | null, ends: [string, string]}} Axis */

/** @param {Record<string, string | number>} attributes @param {string} tag @param {string} [text] */
function make(tag, attributes, text = '') {
  const el = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, String(value));
  if (text) el.textContent = text;
  return el;
}

/** The axis of a column, from 0 to 1; null where all rows have one value. @param {Column} column @param {readonly Partial<SweepLine>[]} rows @returns {Axis | null} */
function axisOf(column, rows) {
  const values = rows.map((line) => column.of(line));
  const texts = [...new Set(values.map((value) => clean(value.text)))].filter(Boolean);
  if (texts.length < 2) return null;
  const numbers = values.flatMap((value) => number(value.number) ?? []);
  if (numbers.length * 2 > values.length) {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    const isWide = low > 0 && high / low >= 100;
    /** @param {number} value */
    const scale = (value) => (isWide ? Math.log(value) : value);
    const span = scale(high) - scale(low) || 1;
    /** @param {number} value */
    const end = (value) => (column.kind === 'told' ? duration(1000 * value) : String(Number(value.toPrecision(4)))); // told is the time
    return {
      name: column.name,
      ends: [end(low), end(high)],
      at: (line) => {
        const value = number(column.of(line).number);
        return value === null ? null : (scale(value) - scale(low)) / span;
      }
    };
  }
  if (column.kind === 'told') return null;
  return {
    name: column.name,
    ends: [texts[0], texts[texts.length - 1]],
    at: (line) => {
      const at = texts.indexOf(clean(column.of(line).text));
      return at < 0 ? null : at / (texts.length - 1);
    }
  };
}

/**
 * The plot of the rows that are shown; null where there is nothing to compare. A line that is pointed at is named by
 * `choose`, and by null when the pointer leaves it.
 * @param {Column[]} columns @param {readonly Partial<SweepLine>[]} all @param {(line: Partial<SweepLine> | null) => void} choose
 */
function parallel(columns, all, choose) {
  const rows = all.filter((line) => line.status === 'ok').slice(0, MOST_LINES);
  const axes = columns
    .filter((one) => one.kind === 'value' || one.name === 'time')
    .flatMap((column) => axisOf(column, rows) ?? [])
    .slice(0, MOST_AXES);
  if (rows.length < 2 || axes.length < 2) return null;
  const svg = make('svg', {
    viewBox: `0 0 ${STEP * axes.length} ${HIGH}`,
    class: 'ctxk-parallel',
    role: 'img',
    'aria-label': `${plural(rows.length, 'combination')} as lines over ${axes.map((axis) => axis.name).join(', ')}`
  });
  svg.style.minWidth = `${70 * axes.length}px`;
  svg.style.maxWidth = `${1.4 * STEP * axes.length}px`; // wider, its texts would be larger than those around it
  /** @param {number} at */
  const x = (at) => STEP * (at + 0.5);
  /** @param {number} share */
  const y = (share) => BOTTOM - share * (BOTTOM - TOP);
  const last = axes.findLast((axis) => axis.name !== 'time') ?? axes[0];
  for (const line of rows) {
    const points = axes.flatMap((axis, at) => {
      const share = axis.at(line);
      return share === null ? [] : `${x(at).toFixed(1)},${y(share).toFixed(1)}`;
    });
    // From blue to orange by the last collected value.
    const share = last.at(line) ?? 0;
    const mark = make('polyline', { points: points.join(' '), class: 'ctxk-parallelline' });
    mark.style.stroke = `hsl(${Math.round(215 - 185 * share)} 70% 50%)`;
    mark.append(make('title', {}, columns.filter((one) => one.kind === 'value').map((one) => `${one.name} = ${clean(one.of(line).text)}`).join('\n')));
    mark.addEventListener('pointerenter', () => choose(line));
    mark.addEventListener('pointerleave', () => choose(null));
    svg.append(mark);
  }
  for (const [at, axis] of axes.entries()) {
    svg.append(make('line', { x1: x(at), x2: x(at), y1: TOP, y2: BOTTOM, class: 'ctxk-axis' }));
    const shown = axis.name.length > 16 ? `${axis.name.slice(0, 15)}…` : axis.name;
    svg.append(make('text', { x: x(at), y: 11, class: 'ctxk-axisname' }, shown));
    for (const [place, text] of [[BOTTOM + 12, axis.ends[0]], [TOP - 2, axis.ends[1]]])
      svg.append(make('text', { x: x(at) + 3, y: place, class: 'ctxk-axisend' }, String(text).slice(0, 14)));
  }
  return h('figure', { class: 'ctxk-figure ctxk-wideplot' }, svg);
}

export { parallel };
