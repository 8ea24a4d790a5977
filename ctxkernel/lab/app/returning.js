/**
 * Going back and running again: what can be done with a state, the plan before it happens, and what came of it.
 *
 * Rule 1: nothing is restored or run without a plan, which the kernel makes and which executes nothing. A plan is shown and
 *         asked about, but for a return that loses nothing, runs nothing and takes less than a second: that one can
 *         be undone by the button beside its notice.
 * Rule 2: what is done is a gesture, an execute request that a person could have typed (`%ctx goto s10`). Where the host
 *         cannot send one (the inline widget) the line is shown, to be run in a cell.
 * Rule 3: while a cell runs nothing is sent: it would wait in the kernel's queue and come as a surprise.
 */

import {
  askKernel,
  bytes,
  clean,
  codeLine,
  count,
  dict,
  duration,
  h,
  headline,
  icon,
  keyOf,
  label,
  list,
  number,
  plural,
  put
} from './base.js';
import { checkpointTold, questionOf, verdict } from './rowparts.js';
import { startOf } from './tree.js';

/** @import {Plan, PlanRequest, Step as ToldStep} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {Item, Menu} from './menu.js' */
/** @import {Cell} from './render.js' */
/** @import {View} from './view.js' */
/** @import {AnyRow, TreeNode} from './tree.js' */

/**
 * A button for what may come next.
 * @typedef {{text: string, run: () => void}} Next
 */

/**
 * A cell or a statement that would run.
 * @typedef {object} Step
 * @property {string} [cell_id]
 * @property {string} id what a reader calls it; empty for one that leaves no statement
 * @property {string} gist
 * @property {number | null} expected_s
 * @property {boolean} [edited]
 * @property {boolean} asks it asks before it runs again
 * @property {boolean} [run] it is chosen
 * @property {boolean} [skipped]
 * @property {string} [told]
 */

/**
 * What a person wants done: the plan is asked for by `request`, and done by `code`.
 * @typedef {object} Job
 * @property {string} title
 * @property {string} [detail]
 * @property {string | (() => string)} confirm
 * @property {Omit<PlanRequest, 'type' | 'id'> | null} request null: there is nothing to restore
 * @property {string | null} code
 * @property {string} [done] what is said when it is done
 * @property {Next} [next]
 * @property {Step[]} [steps] cells of the notebook that run after it
 * @property {() => unknown} [then]
 * @property {boolean} [asked] statements that ask run too
 */

const BUSY = 'A cell is running: wait for its end, or interrupt it.';
/** The tag of a cell that asks before it runs again. */
const ASKS = 'ctx-asks';
/** A cell of our commands: those that only read leave no statement. */
const COMMAND = /^\s*%ctx\b/;
const MOVES = /^\s*(?:#.*\n\s*)*%ctx\s+(?:goto|undo|rerun|resume)\b/;
/** A return that is planned to take longer is asked about. */
const AT_ONCE_S = 1;
/** Names that a part of the plan shows before it says how many more there are. */
const NAMES = 12;
/** From this share of the quota on the storage line warns. */
const NEARLY_FULL = 0.9;
/** A plan that comes within this time is shown without a word of waiting before it. */
const PATIENCE_MS = 200;
/** A kernel that becomes idle within this time counts as idle. */
const SOON_MS = 500;

/** Whether a return may go ahead without asking. @param {Partial<Plan>} p */
function isTrivial(p) {
  const runs = list(p.statements).some((one) => one?.action !== 'skip');
  const files = list(p.file_changes).some((one) => one?.action !== 'stays');
  const told = [p.connect, p.lost, p.as_now, p.rerun].some((names) => Object.keys(dict(names)).length);
  const costs = told || runs || files;
  return !costs && (number(p.seconds) ?? Infinity) < AT_ONCE_S;
}

/**
 * How a row is named in a command: its statement where that means this run of it, else the run.
 * @param {AnyRow} row
 * @param {View} view
 */
function targetOf(row, view) {
  /** @param {TreeNode} node */
  const isOfIt = (node) => node.row.statement_id === row.statement_id;
  // A statement is its run on the way to HEAD, else its newest.
  const meant = view.wayToHead.findLast(isOfIt) ?? [...view.tree.nodes.values()].findLast(isOfIt);
  return meant && meant.key !== keyOf(row) ? keyOf(row) : String(row.statement_id);
}

class Returning {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.turnedDown = /** @type {Set<string>} */ (new Set());
    /** The newest proposal; null where none is open. @type {object | null} */
    this.proposal = null;
    /** Makes the plan of the open sheet anew. @type {(() => unknown) | null} */
    this.again = null;
    /** A cell has run since the plan of the open sheet was made. */
    this.outdated = false;
    /** What was told stays when a statement begins. */
    this.keepTold = false;
    /** Brings the open sheet's buttons up to date. @type {(() => void) | null} */
    this.relabel = null;
    /** What had the keyboard before the sheet. @type {Element | null} */
    this.cameFrom = null;
    /** Cells are being run, one after the other: between two of them the kernel is idle, and still not free. */
    this.rerunning = false;
    this.sheet = h('section', { class: 'ctxk-sheet', role: 'dialog', hidden: true, tabindex: '-1' });
    this.sheet.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      this.close();
    });
    this.sheet.addEventListener('change', () => this.relabel?.());
    this.told = h('div', { class: 'ctxk-told', role: 'status', hidden: true });
    this.storage = h('span', { class: 'ctxk-storage' });
    this.undoButton = h(
      'button',
      {
        class: 'ctxk-undo',
        type: 'button',
        title: 'Undo: the state before the last cell, or before the last move (%ctx undo)',
        onclick: () => this.undo()
      },
      icon('undo'),
      'Undo'
    );
    this.foot = h('div', { class: 'ctxk-foot', hidden: true }, this.undoButton, this.storage);
    view.root.append(this.sheet, this.told, this.foot);
  }

  get actions() {
    return this.view.actions;
  }

  /* ------------------------------------------------------------ the line at the foot */

  draw() {
    const { view } = this;
    this.foot.hidden = !view.canMove;
    this.undoButton.disabled = view.busy || !view.rows.size;
    const s = view.storage;
    const used = number(s?.bytes);
    const quota = number(s?.quota);
    const pending = number(s?.pending_bytes) ?? 0;
    const waited = number(s?.pending_s) ?? 0;
    const faults = list(s?.faults).map(String);
    const full = used !== null && quota ? used / quota : 0;
    this.storage.replaceChildren();
    this.storage.classList.toggle('ctxk-full', full >= NEARLY_FULL);
    if (!s || used === null) return;
    this.storage.title = clean(
      [
        ...faults,
        `Checkpoints: ${bytes(used)}${quota ? ` of ${bytes(quota)} (${Math.round(100 * full)} %)` : ''}`,
        s.folder && `in ${s.folder}`,
        pending ? `${bytes(pending)} are not on the disk yet; until then they end with the kernel` : '',
        full >= NEARLY_FULL ? 'Nearly full: old large states will be given up. ctxkernel gc, or CTXKERNEL_QUOTA_GB' : ''
      ]
        .filter(Boolean)
        .join('\n')
    );
    put(
      this.storage,
      [
        faults.length > 0 && h('span', { class: 'ctxk-faulty' }, `▲ ${clean(faults.join(' · '))}`),
        pending > 0 &&
          h(
            'span',
            { class: 'ctxk-pending' },
            icon('writing'),
            `writing ${bytes(pending)}`,
            waited >= 1 ? h('span', { class: 'ctxk-wide' }, `, ${Math.round(waited)} s`) : ''
          ),
        h(
          'span',
          { class: 'ctxk-used' },
          bytes(used),
          quota ? h('span', { class: 'ctxk-wide' }, ` of ${bytes(quota)}`) : ''
        )
      ]
    );
  }

  /**
   * One line on what was done or what went wrong, until the next statement or until it is dismissed.
   * @param {string} text
   * @param {{tone?: 'info' | 'warn' | 'error', button?: string, onclick?: () => void, keep?: boolean}} [how]
   */
  tell(text, { tone = 'info', button = '', onclick = undefined, keep = false } = {}) {
    this.keepTold = keep;
    this.told.hidden = !text;
    this.told.className = `ctxk-told ctxk-tone-${tone}`;
    this.told.replaceChildren();
    if (!text) return;
    put(
      this.told,
      h('p', null, text),
      button ? h('button', { class: 'ctxk-link', type: 'button', onclick }, button) : '',
      h(
        'button',
        {
          class: 'ctxk-close',
          type: 'button',
          title: 'Dismiss',
          'aria-label': 'Dismiss',
          onclick: () => this.tell('')
        },
        icon('close')
      )
    );
  }

  /** A statement has begun: what was told of the last move is old. */
  began() {
    if (!this.keepTold) this.tell('');
  }

  /* ------------------------------------------------------------ the menu of a row */

  /** @param {AnyRow} row @param {HTMLElement} button @param {Menu} [menu] */
  menu(row, button, menu = this.view.menu) {
    const { view } = this;
    const marks = dict(row.marks);
    const isHead = view.head === keyOf(row);
    /** @param {'differs' | 'asks'} what @param {string} text @param {string} title @returns {Item} */
    const check = (what, text, title) => ({
      text,
      title,
      checked: Boolean(marks[what]),
      run: () => this.mark(row, what, !marks[what])
    });
    /** @type {Item[]} */
    const items = [
      { text: isHead ? 'You are here' : 'Go back here', icon: 'undo', off: isHead, run: () => this.goBack(row) },
      { text: 'Re-run from here', icon: 'play', run: () => this.rerun(row) },
      { text: 'Name this state…', icon: 'flag', run: () => this.name(row) },
      {
        text: view.comparing && view.comparing !== row ? `Compare with ${label(view.comparing)}` : 'Compare with …',
        icon: 'fork',
        title: 'What differs between the states after two statements',
        run: () => view.compareFrom(row)
      },
      check('differs', 'Expected to differ', 'A re-run that comes out differently is no surprise'),
      check(
        'asks',
        'Ask before it runs again',
        'Downloads, submissions, anything that should not be repeated by mistake'
      )
    ];
    const told = checkpointTold(row.checkpoint);
    menu.open(button, `Statement ${label(row)}`, items, told?.lines);
  }

  /* ------------------------------------------------------------ what can be done */

  /** @param {AnyRow} which @returns {Promise<void>} */
  async goBack(which) {
    const row = await this.view.whole(which);
    const target = targetOf(row, this.view);
    return this.propose({
      title: `Go back to ${label(row)}`,
      detail: headline(row.source),
      confirm: 'Go back',
      request: { action: 'goto', target },
      code: `%ctx goto ${target}`,
      done: `At the state after ${label(row)}.`,
      next: { text: 'Undo', run: () => this.undo() }
    }, () => this.goBack(row));
  }

  /** @param {string} cellId */
  goBackToCell(cellId) {
    const node = this.view.wayToHead.findLast(({ row }) => row.cell_id === cellId);
    if (node) return this.goBack(node.row);
    this.tell('This cell was not run on the way to the present state.', { tone: 'warn' });
    return null;
  }

  /** @returns {Promise<void>} */
  undo() {
    return this.propose({
      title: 'Undo',
      confirm: 'Undo',
      request: { action: 'undo', target: '1' },
      code: '%ctx undo',
      done: 'Undone.'
    }, () => this.undo());
  }

  /**
   * From a row on: the notebook's cells as they are now where it has that cell, else the statements of the log.
   * @param {AnyRow} which
   * @returns {Promise<void>}
   */
  async rerun(which) {
    const row = await this.view.whole(which);
    const cells = row.cell_id ? this.actions.cellsFrom?.(String(row.cell_id)) : null;
    if (cells?.length) return this.rerunCells(row, cells, () => this.rerun(row));
    const target = targetOf(row, this.view);
    /** @type {Job} */
    const job = {
      title: `Re-run from ${label(row)}`,
      detail:
        'Its cell is not in a notebook here: the recorded statements run again, and their output goes to the timeline.',
      confirm: 'Re-run',
      request: { action: 'rerun', target },
      done: `Re-run from ${label(row)}.`,
      /** Statements that ask run only if a person says so. */
      asked: false,
      get code() {
        return `%ctx rerun ${target}${this.asked ? ' --yes' : ''}`;
      }
    };
    return this.propose(job, () => this.rerun(row));
  }

  /**
   * From a cell of the notebook on. `ids` are all its code cells, in order.
   * @param {string} cellId
   * @param {string[]} ids
   * @returns {Promise<void> | null}
   */
  rerunFromCell(cellId, ids) {
    const cells = this.actions.cellsFrom?.(cellId);
    if (!cells?.length) return null;
    const path = this.view.wayToHead.map((node) => node.row);
    return this.rerunCells(startOf(path, ids, cellId), cells, () => this.rerunFromCell(cellId, ids));
  }

  /**
   * @param {AnyRow | null} row the run whose state before is restored; null: nothing of these cells has run, so none is
   * @param {Cell[]} cells
   * @param {() => unknown} again makes the plan anew
   */
  async rerunCells(row, cells, again) {
    const target = row === null ? null : targetOf(row, this.view);
    const last = await this.lastRuns(cells);
    // A cell that itself moves HEAD would carry the re-run off to another state.
    const steps = cells
      .filter((cell) => !MOVES.test(cell.source))
      .map((cell) => {
        const ran = last.get(cell.cell_id);
        const took = number(ran?.time_ms);
        const asks = Boolean(dict(ran?.marks).asks) || list(cell.tags).includes(ASKS);
        return {
          cell_id: cell.cell_id,
          id: ran ? label(ran) : COMMAND.test(cell.source) ? '' : 'new',
          gist: questionOf(cell) || headline(cell.source),
          expected_s: took === null ? null : took / 1000,
          edited: ran !== undefined && String(ran.source) !== cell.source,
          asks,
          run: !asks
        };
      });
    return this.propose({
      title: row ? `Re-run from ${label(row)}` : 'Run from here',
      detail: row
        ? `Restores the state before ${label(row)}, then runs the notebook’s cells from there as they are now.`
        : '',
      confirm: () => `Re-run ${plural(steps.filter((one) => one.run).length, 'cell')}`,
      request: target === null ? null : { action: 'goto', target, before: true },
      code: target === null ? null : `%ctx goto ${target} --before`,
      steps,
      then: () => this.runSteps(steps.filter((one) => one.run))
    }, again);
  }

  /**
   * The newest run on the way to HEAD of each of these cells, with its whole source.
   * @param {Cell[]} cells
   */
  async lastRuns(cells) {
    const { view } = this;
    const ids = new Set(cells.map((cell) => cell.cell_id));
    /** @type {Map<string, string>} */
    const keys = new Map();
    for (const { key, row } of view.wayToHead) if (row.cell_id && ids.has(row.cell_id)) keys.set(row.cell_id, key);
    await view.ensure([...keys.values()]);
    /** @type {Map<string, AnyRow>} */
    const runs = new Map();
    for (const [cell, key] of keys) {
      const row = view.rows.get(key) ?? {};
      const answer = row.brief ? await askKernel(this.actions.ask, 'details', { of: key }) : null;
      const whole = answer && 'details' in answer ? answer.details?.row.source : undefined;
      runs.set(cell, whole === undefined ? row : { ...row, source: whole });
    }
    return runs;
  }

  /** @param {Step[]} steps */
  async runSteps(steps) {
    const stop = { stopped: false };
    let ran = 0;
    const told = () =>
      this.tell(`Re-running ${count(ran + 1)} of ${plural(steps.length, 'cell')}`, {
        button: stop.stopped ? '' : 'Stop after this one',
        onclick: () => {
          stop.stopped = true;
          told();
        },
        keep: true
      });
    const { rerunCells } = this.actions;
    if (!steps.length || !rerunCells) return this.tell('No cell was left to run.');
    this.rerunning = true;
    told();
    const result = await rerunCells(
      steps.map((one) => one.cell_id ?? ''),
      (n) => {
        ran = n;
        if (n < steps.length) told();
      },
      stop
    );
    this.rerunning = false;
    this.busyChanged();
    const left = steps.length - result.ran;
    const { failed } = result;
    if (failed)
      this.tell(`Stopped at an error; ${plural(left, 'cell')} not run.`, {
        tone: 'error',
        button: 'Go to the cell',
        onclick: () => void this.actions.goto?.(failed)
      });
    else if (left) this.tell(`Stopped: ${plural(left, 'cell')} not run.`, { tone: 'warn' });
    else this.toldOfRerun(steps.length);
  }

  /** @param {number} n */
  toldOfRerun(n) {
    const rows = this.view.compared;
    const differs = rows.filter((row) => row.comparison && verdict(row.comparison).word === 'differs').length;
    this.tell(
      rows.length
        ? `Re-run: ${plural(n, 'cell')}, ${differs ? `${count(differs)} came out differently.` : 'none came out differently.'}`
        : `Ran ${plural(n, 'cell')}.`,
      rows.length ? { button: 'Show', onclick: () => this.view.select('rerun') } : {}
    );
  }

  /** @param {AnyRow} row */
  name(row) {
    const input = h('input', {
      class: 'ctxk-input',
      type: 'text',
      'aria-label': 'Name of this state',
      placeholder: 'baseline',
      maxlength: '60',
      spellcheck: 'false'
    });
    const warn = h('p', { class: 'ctxk-note', role: 'alert', hidden: true });
    const target = targetOf(row, this.view);
    const isHead = this.view.head === keyOf(row);
    const save = async () => {
      const name = input.value.trim();
      // What would be read as a number, an option or two words is not a name; the kernel checks again.
      if (!/^[\p{L}_][\p{L}\p{N}_-]*$/u.test(name) || /^s\d+$/.test(name)) {
        warn.hidden = false;
        warn.textContent = 'One word of letters, digits, “-” and “_”, which begins with a letter and is not like s10.';
        return;
      }
      this.close();
      await this.perform(
        `%ctx checkpoint ${name}${isHead ? '' : ` ${target}`}`,
        `The state after ${label(row)} is called ${name}.`
      );
    };
    const form = h('form', { class: 'ctxk-form' }, input);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      void save();
    });
    this.show(
      `Name the state after ${label(row)}`,
      [h('p', { class: 'ctxk-hint' }, 'The name stands for it in %ctx goto, rerun and diff.'), form, warn],
      { confirm: 'Name it', onclick: save }
    );
    input.focus();
  }

  /**
   * A statement has at most one mark.
   * @param {AnyRow} row
   * @param {'differs' | 'asks'} what
   * @param {boolean} on
   */
  mark(row, what, on) {
    return this.perform(`%ctx mark ${targetOf(row, this.view)} ${on ? what : 'none'}`);
  }

  /* ------------------------------------------------------------ plan, sheet, gesture */

  /**
   * A turn has ended: an open plan was made for a state that is not the present one, so it is made anew before it can
   * be confirmed.
   */
  ended() {
    const { again } = this;
    if (!again || this.sheet.hidden || this.rerunning) return;
    this.outdated = true;
    this.relabel?.();
    if (!this.view.busy) void again();
  }

  /**
   * Ask for the plan, show it where it has to be asked about, and do it.
   * @param {Job} job @param {(() => unknown) | null} [again] makes the job and its plan anew
   */
  async propose(job, again = null) {
    const turn = (this.proposal = {});
    const renewed = this.outdated;
    this.outdated = false;
    this.again = again;
    this.tell('');
    const wait = setTimeout(() => {
      if (this.proposal === turn)
        this.show(job.title, [h('p', { class: 'ctxk-hint' }, 'Looking what that takes…')], {});
    }, PATIENCE_MS);
    const answer = job.request
      ? await askKernel(this.actions.ask, 'plan', job.request)
      : { plan: /** @type {Partial<Plan>} */ ({}), error: null };
    clearTimeout(wait);
    if (this.proposal !== turn) return;
    const plan = 'plan' in answer && !answer.error ? answer.plan : null;
    if (!plan) {
      this.show(job.title, [h('p', { class: 'ctxk-note' }, answer.error || 'The kernel gave no plan.')], {
        cancel: 'Close'
      });
      return;
    }
    const { code } = job;
    // Of a plan that was made anew under the reader's eyes, the confirmation is theirs.
    const atOnce = code && !job.steps && !renewed && isTrivial(plan) && this.actions.gesture && (await this.idle());
    if (this.proposal !== turn) return;
    if (atOnce) {
      this.close(false);
      const files = list(plan.files).length;
      await this.perform(
        code,
        files
          ? `${job.done} ${plural(files, 'file')} written since ${files === 1 ? 'stays' : 'stay'} as ${files === 1 ? 'it is' : 'they are'}.`
          : job.done,
        job.next
      );
      return;
    }
    const renew = renewed && h('p', { class: 'ctxk-note', role: 'status' }, 'A cell has run meanwhile: this plan was made anew.');
    this.show(job.title, [renew, planBody(plan, job)], {
      confirm: job.confirm,
      code: job.code,
      onclick: async () => {
        if (this.outdated) return void again?.();
        this.close();
        if (!job.code || (await this.perform(job.code, job.then ? '' : job.done, job.next))) await job.then?.();
      }
    });
  }

  /** Whether the kernel is idle, or is so soon: it tells late that a cell has ended. */
  async idle() {
    for (let waited = 0; this.view.busy && waited < SOON_MS; waited += 50)
      await new Promise((resolve) => setTimeout(resolve, 50));
    return !this.view.busy;
  }

  /**
   * Send a gesture; what it came to is told, with a button for what may come next. Returns whether it went well.
   * @param {string} code
   * @param {string} [done]
   * @param {Next | null} [next]
   */
  async perform(code, done = '', next = null) {
    if (!this.actions.gesture) {
      this.show('Run this line in a cell', [codeLine(code)], { cancel: 'Close' });
      return false;
    }
    if (!(await this.idle())) {
      this.tell(`${BUSY} Then try again.`, { tone: 'warn' });
      return false;
    }
    const result = await this.actions.gesture(code);
    const said = clean(result.text).trim();
    if (!result.ok) this.tell(said || `${code} failed.`, { tone: 'error' });
    else if (said || done) this.tell(said || done, { button: next?.text, onclick: next?.run });
    return result.ok;
  }

  /**
   * @param {string} title
   * @param {Child} body
   * @param {{confirm?: string | (() => string), cancel?: string, onclick?: () => unknown, code?: string | null}} how
   */
  show(title, body, { confirm = '', cancel = 'Cancel', onclick = undefined, code = null }) {
    if (this.sheet.hidden) this.cameFrom = document.activeElement;
    const told = typeof confirm === 'function' ? confirm : () => confirm;
    const yes = confirm && h('button', { class: 'ctxk-button ctxk-primary', type: 'button', onclick }, told());
    this.relabel = () => {
      if (!yes) return;
      yes.textContent = told();
      yes.disabled = this.view.busy || this.outdated;
      busy.hidden = !this.view.busy;
    };
    const busy = h('p', { class: 'ctxk-hint', hidden: true }, BUSY);
    const heading = h('h3', { class: 'ctxk-sheettitle', id: `${this.view.id}-sheet` }, title);
    this.sheet.setAttribute('aria-labelledby', heading.id);
    this.sheet.replaceChildren();
    put(
      this.sheet,
      heading,
      h('div', { class: 'ctxk-sheetbody' }, body),
      busy,
      h(
        'div',
        { class: 'ctxk-buttons' },
        yes && !this.actions.gesture && code ? codeLine(code) : yes,
        h('button', { class: 'ctxk-button', type: 'button', onclick: () => this.close() }, cancel)
      )
    );
    this.sheet.hidden = false;
    this.relabel();
    (yes && !yes.disabled && yes.isConnected ? yes : this.sheet).focus();
  }

  /** @param {boolean} [focus] */
  close(focus = true) {
    this.proposal = null;
    this.again = null;
    this.outdated = false;
    if (this.sheet.hidden) return;
    const inside = this.sheet.contains(document.activeElement);
    this.sheet.hidden = true;
    this.sheet.replaceChildren();
    this.relabel = null;
    if (focus && inside && this.cameFrom instanceof HTMLElement) this.cameFrom.focus();
  }

  /** The kernel became busy or idle. */
  busyChanged() {
    this.relabel?.();
    if (this.outdated && !this.view.busy && this.again) void this.again();
    this.undoButton.disabled = this.view.busy || !this.view.rows.size;
  }

  /* ------------------------------------------------------------ a session that can be resumed */

  resumeBanner() {
    const offer = this.view.resume;
    if (!offer) return null;
    const key = `${this.view.session}\0${offer.head}\0${offer.at}`;
    if (this.turnedDown.has(key)) return null;
    const at = number(offer.at);
    const when =
      at === null
        ? ''
        : new Date(at * 1000).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
    const whole = offer.restorable && offer.restorable === offer.head;
    return h(
      'div',
      { class: 'ctxk-banner ctxk-tone-info ctxk-resume', 'data-banner': 'resume' },
      h('strong', null, 'This notebook has a session to go on with'),
      h(
        'p',
        null,
        [`${plural(number(offer.statements) ?? 0, 'statement')}`, when && `last at ${when}`].filter(Boolean).join(', '),
        '.'
      ),
      h(
        'p',
        null,
        offer.restorable
          ? `Resume brings back variables, handles and timeline as they were after ${clean(offer.restorable).replace(/\.1$/, '')}${whole ? '' : `; what came after it, up to ${clean(offer.head).replace(/\.1$/, '')}, is in the timeline only`}.`
          : 'Resume brings back the timeline; the variables cannot be restored.',
        offer.reason ? ` (${offer.reason})` : ''
      ),
      offer.interrupted &&
        h(
          'p',
          null,
          'It was interrupted in ',
          h('code', null, headline(offer.interrupted)),
          ', which is not run again.'
        ),
      h(
        'div',
        { class: 'ctxk-buttons' },
        this.actions.gesture
          ? h(
              'button',
              {
                class: 'ctxk-button ctxk-primary',
                type: 'button',
                onclick: () => this.resume()
              },
              'Resume'
            )
          : codeLine('%ctx resume'),
        h(
          'button',
          {
            class: 'ctxk-button',
            type: 'button',
            title: 'Nothing is lost: the old timeline stays in the session',
            onclick: () => {
              this.turnedDown.add(key);
              this.view.drawBanners();
            }
          },
          'Start fresh'
        )
      )
    );
  }

  resume() {
    return this.perform('%ctx resume', 'Resumed.');
  }
}

/* ---------------------------------------------------------------- the plan as text */

/** What a plan says, part by part; parts that are empty are not there. @param {Partial<Plan>} p @param {Job} job */
function planBody(p, job) {
  const load = list(p.load).map((one) => dict(one));
  const size = load.reduce((sum, one) => sum + (number(one.nbytes) ?? 0), 0);
  const kept = list(p.keep).length;
  const steps = job.steps ?? list(p.statements).map((step) => stepOf(dict(step)));
  const again = Object.entries(dict(p.rerun));
  const lost = Object.entries(dict(p.lost));
  const running = job.steps ? steps.reduce((sum, one) => sum + (number(one.expected_s) ?? 0), 0) : 0;
  const seconds = number(p.seconds) === null && !running ? null : (number(p.seconds) ?? 0) + running;
  const changes = list(p.file_changes).map(dict);
  const nothing = !load.length && !list(p.drop).length && !again.length && !lost.length && !changes.length && !Object.keys(dict(p.as_now)).length;
  /** @param {Child} name @param {Child} said */
  const pair = (name, said) => h('li', null, h('code', null, name), h('span', { class: 'ctxk-muted' }, said));
  return [
    job.detail && h('p', { class: 'ctxk-hint' }, job.detail),
    h(
      'p',
      { class: 'ctxk-expected' },
      seconds === null ? '' : h('b', null, seconds < 0.1 ? 'at once' : `about ${duration(seconds * 1000)}`),
      kept
        ? h('span', { class: 'ctxk-muted' }, `${plural(kept, 'name')} kept as ${kept === 1 ? 'it is' : 'they are'}`)
        : ''
    ),
    part(
      'Not restored',
      'lost',
      lost.map(([name, why]) => pair(name, why))
    ),
    part(
      'As it is now',
      'asnow',
      Object.entries(dict(p.as_now)).map(([name, why]) => pair(name, why))
    ),
    part(`Restored${size ? ` · ${bytes(size)}` : ''}`, 'load', names(load.flatMap((one) => list(one.names)))),
    part('Removed', 'drop', names(list(p.drop))),
    part(
      'Made again by running',
      'again',
      again.map(([name, ids]) => pair(name, list(ids).join(', ')))
    ),
    part('Also set back', 'ambient', names(list(p.ambient))),
    part(
      'Files brought back',
      'files-back',
      changes
        .filter((one) => one.action === 'back')
        .map((one) => pair(one.name, one.statement_id ? `as of ${one.statement_id}` : one.reason || 'as it was before'))
    ),
    part(
      'Files removed; their content is kept',
      'files-back',
      changes.filter((one) => one.action === 'remove').map((one) => pair(one.name, `written by ${one.statement_id}`))
    ),
    part(
      'Files written since: they stay as they are',
      'files',
      names([
        ...list(p.files).map((one) => dict(one).name ?? String(one)),
        ...changes.filter((one) => one.action === 'stays').map((one) => `${one.name}: ${one.reason}`)
      ])
    ),
    steps.length > 0 && !job.steps && steps.some((one) => one.asks) && askBox(job),
    part(
      job.steps ? 'Cells' : 'Statements',
      'steps',
      steps.map((step) => stepLine(step, job))
    ),
    nothing && !steps.length && h('p', { class: 'ctxk-hint' }, 'Nothing has to be loaded: the state is the same.')
  ];
}

/** A statement of a plan, as the cells of a notebook are told. @param {Partial<ToldStep>} one @returns {Step} */
function stepOf(one) {
  return {
    id: clean(one.statement_id),
    gist: questionOf(one) || headline(one.source),
    expected_s: one.action === 'run' ? number(one.seconds) : null,
    asks: one.action === 'ask',
    skipped: one.action === 'skip',
    told: one.reason
  };
}

/** @param {Job} job */
function askBox(job) {
  const box = h('input', { type: 'checkbox' });
  box.addEventListener('change', () => (job.asked = box.checked));
  return h('label', { class: 'ctxk-filter' }, box, 'also run those that ask first');
}

/** @param {string} title @param {string} kind @param {HTMLElement[]} items */
function part(title, kind, items) {
  return items.length
    ? h(
        'section',
        { class: `ctxk-part ctxk-part-${kind}`, 'data-part': kind },
        h('h4', { class: 'ctxk-h' }, title),
        h('ul', null, items)
      )
    : null;
}

/** @param {readonly string[]} all */
function names(all) {
  const out = all.slice(0, NAMES).map((name) => h('li', { class: 'ctxk-chip' }, name));
  if (all.length > NAMES)
    out.push(
      h(
        'li',
        { class: 'ctxk-chip ctxk-muted', title: all.slice(NAMES, 200).join(', ') },
        `${count(all.length - NAMES)} more`
      )
    );
  return out;
}

/**
 * One statement that would run. Of one that asks, the answer is the box before it; without a tick it is left out.
 * @param {Step} step
 * @param {Job} job
 */
function stepLine(step, job) {
  const box =
    step.asks && job.steps && h('input', { type: 'checkbox', 'aria-label': `Run ${step.id || step.gist} again` });
  if (box) box.addEventListener('change', () => (step.run = box.checked));
  const tags = [step.skipped && 'skipped', step.asks && 'asks first', step.edited && 'edited'].filter(Boolean);
  return h(
    'li',
    { class: `ctxk-step${step.skipped ? ' ctxk-skip' : ''}`, title: step.told },
    h(
      'label',
      null,
      box || null,
      h('span', { class: 'ctxk-index' }, step.id),
      h('code', { class: 'ctxk-src' }, step.gist)
    ),
    tags.map((tag) => h('span', { class: 'ctxk-tag' }, tag)),
    h('span', { class: 'ctxk-time' }, step.expected_s === null ? '' : duration(step.expected_s * 1000))
  );
}

export { isTrivial, targetOf, Returning };
