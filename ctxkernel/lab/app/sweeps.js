/**
 * The section Sweeps: the combinations of a sweep as a table that sorts and filters, as lines over their values, and
 * how far a running sweep is. A row goes to the state at its end.
 */

import { askKernel } from './askkernel.js';
import { emptyState } from './components.js';
import { findAll, h } from './elements.js';
import { parallel } from './sweepplot.js';
import { columnsOf, inOrder, keeps } from './sweeprows.js';
import { clean } from './text.js';
import { count, dict, duration, list, number, plural } from './values.js';

/** @import {SweepLine, SweepProgress, SweepTables, SweepingMessage} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {Column} from './sweeprows.js' */
/** @import {View} from './view.js' */

/** Rows that are drawn; the filter finds the others. */
const MOST_ROWS = 500;

/** What is known of the sweeps of a session, and how its reader looks at them. */
class Sweeps {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Partial<SweepTables> | null} */
    this.table = null;
    /** The execution whose table is chosen; empty: the newest. */
    this.of = '';
    this.error = '';
    this.filter = '';
    this.sort = { name: '', down: false };
    /** @type {Partial<SweepProgress> | null} */
    this.progress = null;
    this.asking = false;
    this.again = false;
  }

  get exist() {
    return Boolean(this.table || this.progress);
  }

  /** Forget what another session had. */
  forget() {
    [this.table, this.progress, this.of, this.error] = [null, null, '', ''];
  }

  /** A running sweep has come further. @param {Partial<SweepingMessage>} msg */
  take(msg) {
    this.progress = dict(msg.progress);
    this.of = '';
    this.view.drawHeader();
    if (this.view.tab === 'sweeps' || !this.table) void this.ask();
  }

  /** Ask for the table, once at a time. */
  async ask() {
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    const answer = await askKernel(this.view.actions.ask, 'sweep', this.of ? { of: this.of } : {});
    this.asking = false;
    if (this.view.disposed) return;
    if ('sweep' in answer && answer.sweep) {
      [this.table, this.error] = [answer.sweep, ''];
      this.progress = answer.sweep.progress ?? null;
    } else this.error = clean(answer.error);
    this.view.refresh('sweeps');
    this.view.drawHeader();
    if (this.again) {
      this.again = false;
      void this.ask();
    }
  }

  /** Draw the section again. */
  draw() {
    this.view.refresh('sweeps');
  }
}

/** @param {View} view @returns {Child} */
function drawSweeps(view) {
  const { sweeps } = view;
  if (!sweeps.table)
    return emptyState('Nothing was swept yet', 'Run cells for each combination of parameters:', '%ctx sweep --from 1 alpha=0.1,1');
  const table = sweeps.table;
  const columns = columnsOf(table);
  const rows = list(table.rows).map(dict);
  const kept = rows.filter(keeps(columns, sweeps.filter));
  const shown = inOrder(kept, columns.find((one) => one.name === sweeps.sort.name), sweeps.sort.down);
  const ok = rows.filter((line) => line.status === 'ok').length;
  return [
    chooser(view),
    progress(view),
    h(
      'p',
      { class: 'ctxk-hint ctxk-sweepsum', role: 'status' },
      `${plural(rows.length, 'combination')}, ${count(ok)} ok`,
      kept.length < rows.length && ` · ${count(kept.length)} shown`,
      number(table.more) ? ` · ${count(table.more)} more are in the notebook` : ''
    ),
    filterOf(view),
    parallel(columns, shown, (line) => highlight(view, line)),
    h(
      'div',
      { class: 'ctxk-sweepbox' },
      h(
        'table',
        { class: 'ctxk-sweeptable', 'aria-label': 'Combinations of the sweep' },
        h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'go to'), columns.map((one) => headOf(view, one)))),
        h('tbody', null, shown.slice(0, MOST_ROWS).map((line) => rowOf(view, columns, line)))
      )
    ),
    shown.length > MOST_ROWS && h('p', { class: 'ctxk-hint' }, `The first ${count(MOST_ROWS)} of ${count(shown.length)} rows: filter to see others.`),
    sweeps.error && h('p', { class: 'ctxk-note' }, sweeps.error)
  ];
}

/** Which sweep is shown, where there are several. @param {View} view @returns {Child} */
function chooser(view) {
  const { sweeps } = view;
  const all = list(sweeps.table?.sweeps).map(dict);
  if (all.length < 2) return null;
  const select = h('select', { class: 'ctxk-input', 'aria-label': 'Which sweep', 'data-keep': 'sweep' });
  for (const one of all) {
    const option = h('option', { value: one.execution_id }, `${clean(one.execution_id).split('.')[0]}: ${clean(one.told)}`);
    option.selected = one.execution_id === sweeps.table?.of;
    select.append(option);
  }
  select.addEventListener('change', () => {
    sweeps.of = select.value;
    void sweeps.ask();
  });
  return h('p', { class: 'ctxk-sweepline' }, select);
}

/** How far a running sweep is, with a button that ends it. @param {View} view @returns {Child} */
function progress(view) {
  const now = view.sweeps.progress;
  if (!now) return null;
  const [done, tasks] = [number(now.done) ?? 0, number(now.tasks) ?? 0];
  const text = `${count(done)} of ${plural(tasks, 'task')} done, ${plural(number(now.workers) ?? 0, 'worker')}`;
  return h(
    'p',
    { class: 'ctxk-sweepline' },
    h('progress', { max: Math.max(1, tasks), value: done, 'aria-label': 'Progress of the sweep' }),
    h('span', null, text),
    view.actions.interrupt &&
      h(
        'button',
        {
          class: 'ctxk-button',
          type: 'button',
          'data-keep': 'cancel',
          title: 'End the sweep: the same sweep goes on later from the combinations that are done',
          onclick: () => view.actions.interrupt?.()
        },
        'Cancel'
      )
  );
}

/** @param {View} view */
function filterOf(view) {
  const input = h('input', {
    class: 'ctxk-input',
    type: 'text',
    'aria-label': 'Filter combinations',
    placeholder: 'filter: alpha<0.5 model=ridge error',
    spellcheck: 'false',
    'data-keep': 'filter'
  });
  input.value = view.sweeps.filter;
  input.addEventListener('input', () => {
    view.sweeps.filter = input.value;
    view.sweeps.draw();
  });
  return h('p', { class: 'ctxk-sweepline' }, input);
}

/** @param {View} view @param {Column} column */
function headOf(view, column) {
  const { sort } = view.sweeps;
  const on = sort.name === column.name;
  const button = h(
    'button',
    {
      class: 'ctxk-link',
      type: 'button',
      'data-keep': `sort ${column.name}`,
      title: `Sort by ${column.name}`,
      onclick: () => {
        view.sweeps.sort = on && sort.down ? { name: '', down: false } : { name: column.name, down: on };
        view.sweeps.draw();
      }
    },
    column.name,
    on && h('span', { 'aria-hidden': 'true' }, sort.down ? ' ▾' : ' ▴')
  );
  return h('th', { scope: 'col', 'aria-sort': on ? (sort.down ? 'descending' : 'ascending') : 'none' }, button);
}

/** @param {View} view @param {Column[]} columns @param {Partial<SweepLine>} line */
function rowOf(view, columns, line) {
  const branch = clean(line.branch);
  const told = columns.filter((one) => one.kind === 'value').map((one) => `${one.name}=${clean(one.of(line).text)}`).join(' ');
  const go = branch
    ? h(
        'button',
        {
          class: 'ctxk-link',
          type: 'button',
          'data-keep': `go ${branch}`,
          'aria-label': `${branch}: go to the state of ${told}`,
          title: `Go to the state of ${told}`,
          onclick: () => void view.returning.goTo(branch, `Go to ${branch}`, told)
        },
        branch
      )
    : '';
  const row = h(
    'tr',
    { class: `ctxk-sweep-${line.status === 'ok' ? 'ok' : line.status === 'waiting' ? 'waiting' : 'failed'}`, 'data-branch': branch || null },
    h('td', null, go),
    columns.map((one) => h('td', one.of(line).number === null ? null : { class: 'ctxk-num' }, cellText(one, line)))
  );
  if (line.why) row.title = clean(line.why);
  return row;
}

/** @param {Column} column @param {Partial<SweepLine>} line */
function cellText(column, line) {
  if (column.kind === 'told' && (column.name === 'time' || column.name === 'cpu')) return line.status === 'waiting' ? '' : duration(1000 * (number(column.of(line).number) ?? 0));
  if (column.kind === 'told' && column.name === 'status' && line.why) return `${clean(line.status)}: ${clean(line.why)}`;
  return clean(column.of(line).text);
}

/** Show which row a line of the plot is. @param {View} view @param {Partial<SweepLine> | null} line */
function highlight(view, line) {
  for (const row of findAll(view.sections.sweeps, 'tr[data-branch]'))
    row.classList.toggle('ctxk-chosen', line !== null && row.dataset.branch === clean(line.branch));
}

export { Sweeps, drawSweeps };
