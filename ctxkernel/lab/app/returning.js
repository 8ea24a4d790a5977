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

import { AffectedRun } from './affected.js';
import { askKernel } from './askkernel.js';
import { codeLine } from './components.js';
import { showDependencies } from './dependencies.js';
import { h, put } from './elements.js';
import { icon } from './icons.js';
import { isTrivial, planBody } from './plans.js';
import { Reruns } from './reruns.js';
import { keyOf, label } from './rownames.js';
import { checkpointTold } from './rowparts.js';
import { drawStorage } from './storageline.js';
import { clean, headline } from './text.js';
import { targetOf } from './tree.js';
import { dict, list, plural } from './values.js';

/** @import {Plan} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {Item, Menu} from './menu.js' */
/** @import {Job, Next} from './plans.js' */
/** @import {View} from './view.js' */
/** @import {AnyRow} from './tree.js' */

const BUSY = 'A cell is running: wait for its end, or interrupt it.';
/** A plan that comes within this time is shown without a word of waiting before it. */
const PATIENCE_MS = 200;
/** A kernel that becomes idle within this time counts as idle. */
const SOON_MS = 500;

class Returning {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.reruns = new Reruns(this);
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
        class: 'ctxk-footbutton',
        type: 'button',
        onclick: () => this.undo()
      },
      icon('undo'),
      'Undo'
    );
    this.affectedButton = h(
      'button',
      {
        class: 'ctxk-footbutton',
        type: 'button',
        onclick: () => this.affected()
      },
      icon('play'),
      'Run affected'
    );
    this.foot = h('div', { class: 'ctxk-foot', hidden: true }, this.undoButton, this.affectedButton, this.storage);
    view.root.append(this.sheet, this.told, this.foot);
  }

  get actions() {
    return this.view.actions;
  }

  /** Enable the buttons below, or say why they are not. */
  allow() {
    const why = this.view.busy ? 'Not while a cell runs' : this.view.rows.size ? '' : 'No cell has run yet';
    this.undoButton.disabled = this.affectedButton.disabled = Boolean(why);
    this.undoButton.title = why || 'Undo: the state before the last cell, or before the last move (%ctx undo)';
    this.affectedButton.title =
      why || 'Run affected: only the cells that your edits affect, after a look at the plan (%ctx rerun --affected)';
  }

  /* ------------------------------------------------------------ the line at the foot */

  draw() {
    const { view } = this;
    this.foot.hidden = !view.canMove;
    this.allow();
    this.affectedButton.hidden = !this.actions.allCells;
    drawStorage(this.storage, view.storage);
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
      { text: 'Re-run from here', icon: 'play', run: () => this.reruns.rerun(row) },
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

  /** Go to the state after an execution. @param {string} target @param {string} title @param {string} detail @returns {Promise<void>} */
  goTo(target, title, detail) {
    return this.propose({
      title,
      detail,
      confirm: 'Go there',
      request: { action: 'goto', target },
      code: `%ctx goto ${target}`,
      done: `At the state after ${target}.`,
      next: { text: 'Undo', run: () => this.undo() }
    }, () => this.goTo(target, title, detail));
  }

  /** @param {string} cellId */
  goBackToCell(cellId) {
    const node = this.view.nodeOfCell(cellId);
    return node && this.goBack(node.row);
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

  /** Run only the cells that edits affect. @returns {Promise<void>} */
  affected() {
    return new AffectedRun(this).propose();
  }

  /** Show what a cell depends on, and what depends on it. @param {string} cellId @returns {Promise<void>} */
  dependencies(cellId) {
    return showDependencies(this, cellId);
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
    if (!again || this.sheet.hidden || this.reruns.running) return;
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
    const answer = job.plan
      ? await job.plan()
      : job.request
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
    this.show(job.title, [renew, job.body ? job.body(plan) : planBody(plan, job)], {
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

  /** Whether the kernel is idle, or is so soon. If it is not, a message says what to do, and stays when the next cell begins. */
  async ready() {
    const idle = await this.idle();
    if (!idle) this.tell(`${BUSY} Then try again.`, { tone: 'warn', keep: true });
    return idle;
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
    if (!(await this.ready())) return false;
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
      yes.hidden = !yes.textContent;
      yes.disabled = yes.hidden || this.view.busy || this.outdated;
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
    this.allow();
  }

  /** Resume the earlier session; its banner tells so until it is there. */
  async resume() {
    this.resuming = true;
    this.view.drawBanners();
    try {
      return await this.perform('%ctx resume', 'Resumed.');
    } finally {
      this.resuming = false;
      this.view.drawBanners();
    }
  }
}

export { Returning };
