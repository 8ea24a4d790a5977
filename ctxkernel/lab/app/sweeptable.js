/**
 * The table of a sweep that sorts and filters, below its rows as lines over their values. The panel, the output of a
 * cell and an exported page show it.
 *
 * Rule: every text is set as text, and an image is the base64 of a PNG file.
 */

import { findAll, h, put } from './elements.js';
import { keyboardIn } from './keyboard.js';
import { parallel } from './sweepplot.js';
import { columnsOf, inOrder, keeps } from './sweeprows.js';
import { clean } from './text.js';
import { count, dict, duration, list, number, plural } from './values.js';

/** @import {ShownSweep, SweepLine} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {Column} from './sweeprows.js' */

/** Rows that are drawn; the filter finds the others. */
const MOST_ROWS = 500;
/** A name of a state as the kernel writes it: no other text becomes a command. */
const BRANCH = /^s\d+\.\d+$/;
const BASE64 = /^[A-Za-z0-9+/]+=*$/;

/** @typedef {(branch: string, told: string) => void} GoTo goes to the state of a row, which is told in words */

/** A table, and how its reader looks at it. */
class SweepTable {
  /** @param {GoTo | null} goTo null where there is no kernel: the names of the states are texts then */
  constructor(goTo) {
    this.goTo = goTo;
    /** @type {Partial<ShownSweep>} */
    this.sweep = {};
    this.filter = '';
    this.sort = { name: '', down: false };
    this.el = h('div', { class: 'ctxk-sweep' });
  }

  /** @param {Partial<ShownSweep>} sweep */
  show(sweep) {
    this.sweep = sweep;
    this.draw();
  }

  draw() {
    const back = keyboardIn(this.el);
    this.el.replaceChildren();
    put(this.el, this.content());
    back?.();
  }

  /** @returns {Child} */
  content() {
    const columns = columnsOf(this.sweep);
    const rows = list(this.sweep.rows).map(dict);
    const kept = rows.filter(keeps(columns, this.filter));
    const shown = inOrder(kept, columns.find((one) => one.name === this.sort.name), this.sort.down);
    const [ok, more] = [rows.filter((line) => line.status === 'ok').length, number(this.sweep.more)];
    return [
      h(
        'p',
        { class: 'ctxk-hint ctxk-sweepsum', role: 'status' },
        `${plural(rows.length, 'combination')}, ${count(ok)} ok`,
        kept.length < rows.length && ` · ${count(kept.length)} shown`,
        more ? ` · ${count(more)} more are not listed here` : ''
      ),
      this.filterField(),
      parallel(columns, shown, (line) => this.highlight(line)),
      h(
        'div',
        // A box that scrolls is reached by the keyboard.
        { class: 'ctxk-sweepbox', tabindex: '0', role: 'group', 'aria-label': 'Combinations' },
        h(
          'table',
          { class: 'ctxk-sweeptable', 'aria-label': 'Combinations of the sweep' },
          h('thead', null, h('tr', null, h('th', { scope: 'col' }, this.goTo ? 'go to' : 'state'), columns.map((one) => this.head(one, shown.some((line) => one.of(line).number !== null))))),
          h('tbody', null, shown.slice(0, MOST_ROWS).map((line) => this.row(columns, line)))
        )
      ),
      shown.length > MOST_ROWS && h('p', { class: 'ctxk-hint' }, `The first ${count(MOST_ROWS)} of ${count(shown.length)} rows: filter to see others.`)
    ];
  }

  filterField() {
    const input = h('input', {
      class: 'ctxk-input',
      type: 'text',
      'aria-label': 'Filter combinations',
      placeholder: 'filter: alpha<0.5 model=ridge error',
      spellcheck: 'false',
      'data-keep': 'filter'
    });
    input.value = this.filter;
    input.addEventListener('input', () => {
      this.filter = input.value;
      this.draw();
    });
    return h('p', { class: 'ctxk-sweepline' }, input);
  }

  /** @param {Column} column @param {boolean} isNumeric whether it has numbers, which stand at the right */
  head(column, isNumeric) {
    const { sort } = this;
    const on = sort.name === column.name;
    const button = h(
      'button',
      {
        class: 'ctxk-link',
        type: 'button',
        'data-keep': `sort ${column.name}`,
        title: `Sort by ${column.name}`,
        onclick: () => {
          this.sort = on && sort.down ? { name: '', down: false } : { name: column.name, down: on };
          this.draw();
        }
      },
      column.name,
      on && h('span', { 'aria-hidden': 'true' }, sort.down ? ' ▾' : ' ▴')
    );
    return h('th', { scope: 'col', class: isNumeric ? 'ctxk-num' : null, 'aria-sort': on ? (sort.down ? 'descending' : 'ascending') : 'none' }, button);
  }

  /** @param {Column[]} columns @param {Partial<SweepLine>} line */
  row(columns, line) {
    const branch = clean(line.branch);
    const told = columns.filter((one) => one.kind === 'value').map((one) => `${one.name}=${clean(one.of(line).text)}`).join(' ');
    const row = h(
      'tr',
      { class: `ctxk-sweep-${line.status === 'ok' ? 'ok' : line.status === 'waiting' ? 'waiting' : 'failed'}`, 'data-branch': branch || null },
      h('td', null, this.goTo && BRANCH.test(branch) ? goButton(branch, told, this.goTo) : branch),
      columns.map((one) => h('td', one.of(line).number === null ? null : { class: 'ctxk-num' }, cellOf(one, line)))
    );
    if (line.why) row.title = clean(line.why);
    return row;
  }

  /** Show which row a line of the plot is. @param {Partial<SweepLine> | null} line */
  highlight(line) {
    for (const row of findAll(this.el, 'tr[data-branch]'))
      row.classList.toggle('ctxk-chosen', line !== null && row.dataset.branch === clean(line.branch));
  }
}

/** @param {string} branch @param {string} told @param {GoTo} goTo */
function goButton(branch, told, goTo) {
  return h(
    'button',
    {
      class: 'ctxk-link',
      type: 'button',
      'data-keep': `go ${branch}`,
      'aria-label': `${branch}: go to the state of ${told}`,
      title: `Go to the state of ${told}`,
      onclick: () => goTo(branch, told)
    },
    branch
  );
}

/** @param {Column} column @param {Partial<SweepLine>} line @returns {Child} */
function cellOf(column, line) {
  const value = column.of(line);
  if (column.kind === 'told' && (column.name === 'time' || column.name === 'cpu')) return value.number ? duration(1000 * value.number) : ''; // it did not run
  if (column.kind === 'told' && column.name === 'status' && line.why) return `${clean(line.status)}: ${clean(line.why)}`;
  const image = clean(value.image);
  if (BASE64.test(image)) return h('img', { class: 'ctxk-sweepimage', alt: `${column.name}: ${clean(value.text)}`, src: `data:image/png;base64,${image}` });
  return clean(value.text);
}

export { SweepTable };
