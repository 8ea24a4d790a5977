/** The section Sweeps: the table of a sweep, which of several it is, and how far a running one is. */

import { askKernel } from './askkernel.js';
import { emptyState } from './components.js';
import { h } from './elements.js';
import { SweepTable } from './sweeptable.js';
import { clean } from './text.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {SweepProgress, SweepTables, SweepingMessage} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {View} from './view.js' */

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
    this.shown = new SweepTable((branch, told) => void view.returning.goTo(branch, `Go to ${branch}`, told));
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
}

/** @param {View} view @returns {Child} */
function drawSweeps(view) {
  const { sweeps } = view;
  if (!sweeps.table)
    return emptyState('Nothing was swept yet', 'Run cells for each combination of parameters:', '%ctx sweep --from 1 alpha=0.1,1');
  sweeps.shown.show(sweeps.table);
  return [chooser(view), progress(view), sweeps.shown.el, sweeps.error && h('p', { class: 'ctxk-note' }, sweeps.error)];
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

export { Sweeps, drawSweeps };
