/**
 * Running only the affected cells of the open notebook: the plan, and the cells one after the other.
 *
 * Rule 1: the plan is shown before anything is restored or run, and follows the run: a cell that gives its old result
 *         takes those that depend only on it out of the plan.
 * Rule 2: every cell from the first change on is sent as an execute request; the kernel runs it, or answers with the
 *         result that it keeps. So the outputs land in the cells.
 */

import { bringToMiddle, find, h } from './elements.js';
import { expectedTime, returnParts } from './plans.js';
import { questionOf } from './rowparts.js';
import { headline } from './text.js';
import { count, dict, duration, list, number, plural, textOf } from './values.js';

/** @import {Cell} from './render.js' */
/** @import {Job} from './plans.js' */
/** @import {Returning} from './returning.js' */

/** @typedef {'run' | 'opaque' | 'keep' | 'running' | 'ran' | 'kept' | 'waits'} What */
/**
 * A cell in the plan.
 * @typedef {object} Row
 * @property {Cell} cell
 * @property {number} at its position among the code cells that were told
 * @property {What} what
 * @property {string} why
 * @property {number | null} seconds
 * @property {boolean} chosen it may run
 * @property {boolean} asks a person has to say so
 */

const COMMAND = '%ctx rerun --affected';
const ASKS = 'ctx-asks';
/** @type {Record<What, string>} */
const WORDS = {
  run: 'runs',
  opaque: 'runs anyway',
  keep: 'kept',
  running: 'running…',
  ran: 'ran',
  kept: 'kept',
  waits: 'not reached'
};
/** The least time between two plans, and between two drawings, while short cells run. */
const PLAN_MS = 1000;
const DRAW_MS = 150;
const SHORT_SECONDS = 0.2;
const GOING = /** @type {ReadonlySet<What>} */ (new Set(['run', 'opaque', 'running']));

class AffectedRun {
  /** @param {Returning} returning */
  constructor(returning) {
    this.returning = returning;
    this.view = returning.view;
    /** @type {Row[]} */
    this.rows = [];
    /** How many cells stand above the first change. */
    this.above = 0;
    /** Variables are not as those cells left them: a cell that is gone changed them. */
    this.returns = false;
    this.body = h('div', { class: 'ctxk-affected' });
    this.drawn = 0;
    /** The running cell that was brought into view last. @type {Row | undefined} */
    this.followed = undefined;
  }

  /** Ask the kernel for the plan, show it, and run on a yes. @returns {Promise<void>} */
  async propose() {
    const { returning } = this;
    const cells = this.view.actions.allCells?.() ?? [];
    if (!cells.length || !this.view.actions.gesture)
      return returning.tell(cells.length ? `Run ${COMMAND} in a cell.` : 'The notebook has no code cell.');
    if (!(await returning.ready())) return;
    /** @type {Job} */
    const job = {
      title: 'Run affected cells',
      confirm: () => this.confirmation(),
      request: null,
      plan: () => this.ask(cells),
      // What is removed comes back with the cells, where some follow.
      body: (plan) => [this.body, returnParts(this.rows.length ? { ...plan, load: [], drop: [], ambient: [] } : plan)],
      code: null,
      then: () => this.run(cells)
    };
    return returning.propose(job, () => this.propose());
  }

  confirmation() {
    const goes = this.reached.filter((row) => GOING.has(row.what)).length;
    return goes ? `Run ${plural(goes, 'cell')}` : this.rows.length || this.returns ? 'Take the kept results' : '';
  }

  /** The cells up to the first one that a person did not choose. */
  get reached() {
    const end = this.rows.findIndex((row) => !row.chosen && GOING.has(row.what));
    return end < 0 ? this.rows : this.rows.slice(0, end);
  }

  /** @param {Cell[]} cells */
  async ask(cells) {
    const told = await this.line(`${COMMAND} --dry-run --json`, cells);
    if ('error' in told) return told;
    const first = number(told.plan.first) ?? 0;
    const commands = new Set(list(told.plan.commands));
    const asks = told.plan.asks === true;
    this.rows = cells
      .map((cell, at) => ({ cell, at, what: /** @type {What} */ ('keep'), why: '', seconds: null, chosen: true, asks: false }))
      .filter(({ at }) => at >= first && !commands.has(at));
    this.take(told.plan);
    for (const row of this.rows) {
      row.asks = list(row.cell.tags).includes(ASKS) || (asks && row.what === 'opaque');
      row.chosen = !row.asks;
    }
    this.above = first;
    this.draw();
    const plan = dict(told.plan.return);
    this.returns = [...list(plan.load), ...list(plan.drop)].length > 0;
    return { plan, error: null };
  }

  /**
   * Run a line that only reads, with the cells of the notebook; what it prints is JSON.
   * @param {string} code @param {Cell[]} cells
   * @returns {Promise<{plan: Record<string, any>} | {error: string}>}
   */
  async line(code, cells) {
    const answer = await this.view.actions.gesture?.(code, undefined, { cells: toldCells(cells) });
    if (!answer?.ok) return { error: answer?.text || 'The kernel gave no plan.' };
    try {
      return { plan: dict(JSON.parse(answer.text)) };
    } catch {
      return { error: 'The kernel gave no plan that can be read.' };
    }
  }

  /** Take what a plan says of cells that have not been reached. @param {Record<string, any>} plan */
  take(plan) {
    const places = { run: new Set(list(plan.run)), opaque: new Set(list(plan.opaque)) };
    for (const row of this.rows) {
      if (row.what === 'ran' || row.what === 'kept' || row.what === 'running') continue;
      row.what = places.run.has(row.at) ? 'run' : places.opaque.has(row.at) ? 'opaque' : 'keep';
      row.why = textOf(dict(plan.why)[row.at]);
      row.seconds = number(dict(plan.times)[row.at]);
    }
  }

  draw() {
    const goes = this.rows.filter((row) => row.what !== 'keep');
    const kept = this.rows.filter((row) => row.what === 'keep');
    const left = this.rows.filter((row) => GOING.has(row.what));
    const seconds = left.reduce((sum, row) => sum + (row.seconds ?? 0), 0);
    const fresh = left.filter((row) => row.seconds === null).length;
    const opened = this.body.querySelector('details')?.open;
    this.drawn = performance.now();
    const ran = this.rows.filter((row) => row.what === 'ran').length;
    const all = this.above + kept.length + this.rows.filter((row) => row.what === 'kept').length;
    this.body.replaceChildren(
      h(
        'p',
        { class: 'ctxk-expected' },
        h('b', null, left.length ? expectedTime(seconds, fresh) : ran ? `${plural(ran, 'cell')} ran` : 'nothing has to run'),
        h('span', { class: 'ctxk-muted' }, `${plural(all, 'cell')} kept`)
      ),
      goes.length ? h('ul', { class: 'ctxk-affectedcells' }, goes.map((row) => this.rowLine(row))) : '',
      kept.length
        ? h(
            'details',
            { open: opened || undefined },
            h('summary', null, `Kept: ${plural(kept.length, 'cell')} below the first change`),
            h('ul', { class: 'ctxk-affectedcells' }, kept.map((row) => this.rowLine(row)))
          )
        : ''
    );
    this.follow();
  }

  /** Bring the cell that runs into view, once: a person may scroll away from a long one. */
  follow() {
    const row = this.rows.find(({ what }) => what === 'running');
    const [line, list] = [find(this.body, '[data-what=running]'), this.body.closest('.ctxk-sheetbody')];
    if (line && list && row !== this.followed) bringToMiddle(list, line);
    this.followed = row;
  }

  /** @param {Row} row */
  rowLine(row) {
    const box = row.asks && GOING.has(row.what) && h('input', { type: 'checkbox', 'aria-label': `Run cell ${row.at + 1}` });
    if (box) {
      box.checked = row.chosen;
      box.addEventListener('change', () => (row.chosen = box.checked));
    }
    return h(
      'li',
      { class: 'ctxk-step', 'data-what': row.what },
      h(
        'label',
        null,
        box || null,
        h('span', { class: 'ctxk-index' }, count(row.at + 1)),
        h('code', { class: 'ctxk-src' }, questionOf({ source: row.cell.source }) || headline(row.cell.source))
      ),
      h('span', { class: 'ctxk-tag' }, WORDS[row.what]),
      h('span', { class: 'ctxk-time' }, row.seconds === null ? '' : duration(row.seconds * 1000)),
      row.why && h('span', { class: 'ctxk-reason' }, row.why)
    );
  }

  /* ------------------------------------------------------------ running */

  /** @param {Cell[]} cells */
  async run(cells) {
    const { returning } = this;
    const { rerunCells, gesture } = this.view.actions;
    const chosen = this.reached;
    if (!rerunCells || !gesture) return;
    const begun = await gesture(`${COMMAND} --stepwise`, undefined, { cells: toldCells(cells) });
    if (!begun.ok) return returning.tell(begun.text, { tone: 'error' });
    const stop = { stopped: false };
    const done = { ran: 0, kept: 0, saved: 0 };
    /** @param {string} title */
    const show = (title) => {
      returning.show(title, [this.body], { cancel: 'Hide' });
      this.draw();
    };
    const told = () =>
      returning.tell(`${count(done.ran)} ran, ${count(done.kept)} kept of ${plural(chosen.length, 'cell')}`, {
        button: stop.stopped ? '' : 'Stop after this one',
        onclick: () => {
          stop.stopped = true;
          told();
        },
        keep: true
      });
    const redraw = () => {
      this.draw();
      told();
    };
    let later = 0;
    returning.reruns.running = true;
    show('Running the affected cells');
    told();
    const step = async (/** @type {number} */ n, /** @type {Record<string, any>} */ reply) => {
      const row = chosen[n - 1];
      const kept = dict(reply.ctxkernel);
      if (row) row.what = kept.kept ? 'kept' : 'ran';
      if (row && !kept.kept) {
        // The time of the timeline, where its row has come already.
        const ran = this.view.rows.get(this.view.head ?? '');
        const took = ran?.cell_id === row.cell.cell_id ? number(ran.time_ms) : null;
        row.seconds = (took ?? performance.now() - began) / 1000;
      }
      done[kept.kept ? 'kept' : 'ran'] += 1;
      done.saved += number(kept.seconds) ?? 0;
      const next = chosen[n];
      // No long cell runs beside an old plan; short ones come too fast to read one after each.
      const isDue = (/** @type {number} */ since, /** @type {number} */ least) =>
        !next || performance.now() - since > least || (next.seconds ?? 1) > SHORT_SECONDS;
      if (!kept.kept && next && isDue(planned, PLAN_MS)) {
        const rest = await this.line(`${COMMAND} --stepwise --dry-run --json`, cells);
        if ('plan' in rest) this.take(rest.plan);
        planned = performance.now();
      }
      if (next && !stop.stopped) next.what = 'running';
      clearTimeout(later);
      if (isDue(this.drawn, DRAW_MS)) redraw();
      else later = setTimeout(redraw, DRAW_MS); // a cell that was short may be long now
      began = performance.now();
    };
    let began = performance.now();
    let planned = 0;
    if (chosen[0]) chosen[0].what = 'running';
    const result = await rerunCells(chosen.map((row) => row.cell.cell_id), step, stop, { affected: true });
    clearTimeout(later);
    returning.reruns.running = false;
    returning.busyChanged();
    for (const row of this.rows) if (GOING.has(row.what)) row.what = 'waits';
    if (returning.sheet.contains(this.body)) show('The affected cells');
    this.ended(result, done, chosen.length);
  }

  /**
   * @param {{ran: number, failed: string | null}} result
   * @param {{ran: number, kept: number, saved: number}} done
   * @param {number} total
   */
  ended({ ran, failed }, done, total) {
    const { returning } = this;
    const left = this.rows.length - ran;
    const saved = done.saved >= 0.1 ? `; ${duration(done.saved * 1000)} saved` : '';
    const told = `${plural(done.ran, 'cell')} ran, ${count(done.kept + this.above)} kept${saved}.`;
    if (failed)
      returning.tell(`${left ? `Stopped at an error; ${plural(left, 'cell')} not reached.` : 'The last cell ended with an error.'} ${told}`, {
        tone: 'error',
        button: 'Go to the cell',
        onclick: () => void this.view.actions.goto?.(failed)
      });
    else if (ran < total || left)
      returning.tell(`Stopped; ${plural(left, 'cell')} not reached. ${told}`, { tone: 'warn' });
    else returning.tell(told);
  }
}

/** What the kernel is told of cells. @param {Cell[]} cells */
const toldCells = (cells) => cells.map(({ cell_id, source, tags }) => ({ id: cell_id, source, tags }));

export { AffectedRun };
