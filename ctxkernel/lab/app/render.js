/**
 * The renderer of the panel: draws what the kernel sends (docs/panel-protocol.md), knows nothing of JupyterLab.
 *
 * Rule 1: every text is untrusted; see base.js.
 * Rule 2: no imports but the parts beside it: the inline widget (`%ctx panel`) joins them into one module.
 * Rule 3: a missing or odd field is drawn as nothing; a fault in one section never takes the others down.
 * Rule 4: only the visible section is drawn; the others are marked stale and drawn when they come to the front.
 */

import {
  STATUSES,
  badge,
  clean,
  codeLine,
  count,
  dict,
  duration,
  emptyState,
  h,
  icon,
  keyOf,
  label,
  list,
  number,
  plural,
  put,
  statusOf
} from './base.js?v=0.1.0';
import { goToBlock } from './blocks.js?v=0.1.0';
import { drawChanges } from './changes.js?v=0.1.0';
import { drawComparisons } from './comparisons.js?v=0.1.0';
import { drawHandles } from './handles.js?v=0.1.0';
import { drawHistory, goToEntry, historySize } from './history.js?v=0.1.0';
import { Menu } from './menu.js?v=0.1.0';
import { costOf, drawProjection } from './projection.js?v=0.1.0';
import { Card } from './proposal.js?v=0.1.0';
import { Returning } from './returning.js?v=0.1.0';
import { Timeline, verdict } from './timeline.js?v=0.1.0';
import { lastRerun, pathTo, plant } from './tree.js?v=0.1.0';

/** The wire protocol that this file speaks. */
export const PROTOCOL = 1;

const TABS = /** @type {const} */ (['timeline', 'handles', 'projection', 'history', 'changes', 'rerun']);
const TAB_LABELS = {
  timeline: 'Timeline',
  handles: 'Handles',
  projection: 'Projection',
  history: 'History',
  changes: 'Changes',
  rerun: 'Re-run'
};
const DRAW = {
  handles: drawHandles,
  projection: drawProjection,
  history: drawHistory,
  changes: drawChanges,
  rerun: drawComparisons
};

/** Change items that are kept; a day of work stays well below. */
const MAX_DELTAS = 2000;

/**
 * What the host (JupyterLab plugin or widget) can do for the renderer.
 * @typedef {object} Actions
 * @property {string} [version] the front end's version; without it there is no version handshake
 * @property {(cellId: string) => Promise<boolean>} [goto] scroll the notebook to a cell; false where it has none of that id
 * @property {() => void} [reconnect]
 * @property {() => void} [close]
 * @property {string} [tab] the section to start with
 * @property {(tab: string) => void} [onTab]
 * @property {(mark: {statement_id: string, ended_at: number | null}) => void} [painted] a turn is on the screen
 * @property {(type: 'plan' | 'events' | 'compare', request: Record<string, any>) => Promise<any>} [ask] what a return or a
 *   re-run would do, what a condensation stands for, how two projections differ; executes nothing. The answer has the
 *   field `type` or `error`
 * @property {(code: string, cellId?: string) => Promise<{ok: boolean, text: string}>} [gesture] run a `%ctx` line as an
 *   execute request; what it leads to is shown by that cell
 * @property {() => void} [interrupt] stop what the kernel does
 * @property {() => void} [decides] what waits for the user, or whether it can be decided now, may have changed
 * @property {(code: string, el: HTMLElement) => void} [highlight] add Python code to an element, in colours
 * @property {(cellId: string) => {cell_id: string, source: string, tags: string[]}[] | null} [cellsFrom] the notebook's
 *   code cells from that one on; null where it has none of that id
 * @property {(ids: string[], told: (done: number) => void, stop: {stopped: boolean}) =>
 *   Promise<{ran: number, failed: string | null}>} [rerunCells] run cells one after the other, up to the first error
 */

/** Split `1.2.3` for comparing; anything else sorts low. */
function newer(a, b) {
  const parts = (v) =>
    String(v)
      .split('.')
      .map((p) => parseInt(p, 10) || 0);
  const [x, y] = [parts(a), parts(b)];
  for (let i = 0; i < Math.max(x.length, y.length); i += 1) {
    if ((x[i] ?? 0) !== (y[i] ?? 0)) return (x[i] ?? 0) > (y[i] ?? 0);
  }
  return false;
}

/**
 * What to say where kernel and front end do not fit; null where they do.
 * @returns {{title: string, text: string, command: string} | null}
 */
export function mismatch(mine, theirs, protocol) {
  if (!mine || !theirs || (mine === theirs && protocol === PROTOCOL)) return null;
  const command = 'pip install -U jupyter-ctxkernel';
  const title = 'The panel and the kernel are of different versions';
  const both = `The panel (JupyterLab) has ${mine}, the kernel has ${theirs}`;
  const speak =
    protocol === PROTOCOL ? '' : `; they speak protocols ${PROTOCOL} and ${protocol}, so parts may be missing`;
  const where =
    mine === theirs
      ? 'in both environments, JupyterLab’s and the kernel’s, then restart the kernel and reload this page'
      : newer(theirs, mine)
        ? 'in the environment of JupyterLab, then reload this page'
        : 'in the environment of the kernel, then restart the kernel';
  return { title, text: `${both}${speak}. Run this ${where}:`, command };
}

/* ---------------------------------------------------------------- the view */

/**
 * Mount a panel for one notebook into `el`.
 *
 * Holds: messages may come in any order and at any rate; every method is cheap while its section is not in front.
 * @param {HTMLElement} el
 * @param {Actions} [actions]
 */
export function mount(el, actions = {}) {
  const view = new View(el, actions);
  return {
    snapshot: (msg) => view.snapshot(msg),
    begin: (msg) => view.begin(msg),
    turn: (msg) => view.turn(msg),
    notice: (msg) => view.notice(msg),
    /** Any message of the protocol. */
    message: (msg) => view.message(msg),
    /** What the kernel does, in Jupyter's words (`idle`, `busy`, `restarting`, `dead`, …). */
    kernelStatus: (status) => view.kernelStatus(status),
    /** How the connection stands; `null` when it is live. @type {(p: Phase | null) => void} */
    phase: (phase) => view.phase(phase),
    title: (text) => view.title(text),
    /** The panel came to the front: things that only work on a shown element are done again. */
    shown: () => view.shown(),
    /** The index of a statement that is known while the one before it is not; 0 where there is no such hole. */
    hole: () => view.hole(),
    isRunning: () => view.running !== null,
    dispose: () => view.dispose(),
    /** Restore the state before a cell and run from there; `ids` are all of the notebook's code cells, in order. */
    rerunFromCell: (cellId, ids) => view.returning.rerunFromCell(cellId, ids),
    /** Restore the state after the newest run of a cell on the way to HEAD. */
    goBackToCell: (cellId) => view.returning.goBackToCell(cellId),
    undo: () => view.returning.undo(),
    /** Whether the kernel can go back at all. */
    canMove: () => view.canMove,
    /** What of the model's waits for the user; null: nothing. */
    proposal: () => view.proposal,
    /** How the card of a proposal stands. */
    stands: (id) => view.stands(id),
    decide: (code) => view.decide(code),
    /** The card of what waits, to decide on by command. */
    card: () => view.card
  };
}

/** A proposal, or what became of it, as an output of a cell. */
export const makeCard = (proposal, host) => new Card(proposal, host);

/**
 * What the panel says where there is nothing live to show.
 * @typedef {object} Phase
 * @property {string} name for tests and styles
 * @property {'wait' | 'info' | 'warn' | 'error'} tone
 * @property {string} title
 * @property {string} [text]
 * @property {string} [code] a line to run
 * @property {string} [after] text after the code
 * @property {string} [button] label of the button that reconnects
 */

class View {
  constructor(el, actions) {
    this.actions = actions;
    /** @type {Map<string, any>} rows by execution */
    this.rows = new Map();
    this.tree = plant([]);
    this.openHandles = new Set();
    this.openBlocks = new Set();
    this.session = null;
    this.handles = [];
    this.deltas = [];
    this.projection = null;
    /** What was done to the history that the model is shown; null where nothing was. */
    this.history = null;
    /** Folds that are open, by key. */
    this.openFolds = new Set();
    /** What the reader has typed into fields of a section, which is drawn anew with each turn. @type {Map<string, string>} */
    this.drafts = new Map();
    /** What condensations stand for, as far as it was asked for. */
    this.condensed = new Map();
    /** The two projections that are compared. */
    this.against = { old: '', new: '', asked: false, turn: null };
    this.notices = [];
    this.dismissed = new Set();
    this.truncated = 0;
    this.sent = null;
    /** HEAD's execution; null is the state before all of them, undefined a kernel that does not say. */
    this.head = undefined;
    this.branches = [];
    this.storage = null;
    this.resume = null;
    this.compared = [];
    this.onlyDiffering = true;
    /** @type {{statement_id: string, index: any, source: string, since: number} | null} */
    this.running = null;
    /** What of the model's waits for the user, and the card that shows it. */
    this.proposal = null;
    this.card = null;
    /** What was decided is being carried out; why the last decision was refused. */
    this.deciding = false;
    this.refused = '';
    /** The ask that a model works on now. */
    this.asking = null;
    this.status = 'unknown';
    this.phaseNow = null;
    this.heading = '';
    this.stale = new Set(TABS);
    this.disposed = false;

    this.build(el);
    this.select(TABS.includes(actions.tab) ? actions.tab : 'timeline', false);
    this.drawHeader();
  }

  /* ------------------------------------------------------------ frame */

  build(el) {
    this.name = h('span', { class: 'ctxk-name' }, 'ctxkernel');
    this.state = h('span', { class: 'ctxk-state' });
    this.total = h('span', { class: 'ctxk-total' });
    this.checks = h('button', { class: 'ctxk-checks', type: 'button', onclick: () => this.showChecks() });
    this.sentLine = h('p', { class: 'ctxk-sent' });
    this.banners = h('div', { class: 'ctxk-banners' });
    this.waits = h('div', { class: 'ctxk-waits', hidden: true });
    this.stop =
      this.actions.interrupt &&
      h(
        'button',
        {
          class: 'ctxk-button ctxk-stop',
          type: 'button',
          title: 'Stop the ask: interrupts the kernel',
          hidden: true,
          onclick: () => this.actions.interrupt()
        },
        'Stop'
      );
    this.live = h('div', { class: 'ctxk-sr', role: 'status', 'aria-live': 'polite' });
    this.tabs = {};
    this.sections = {};
    const id = (this.id = `ctxk-${Math.random().toString(36).slice(2)}`);
    const tablist = h('div', {
      class: 'ctxk-tabs',
      role: 'tablist',
      'aria-label': 'Parts of the panel',
      onkeydown: (e) => this.tabKey(e)
    });
    const body = h('div', { class: 'ctxk-body' });
    for (const tab of TABS) {
      this.tabs[tab] = h(
        'button',
        {
          class: 'ctxk-tab',
          type: 'button',
          role: 'tab',
          id: `${id}-${tab}`,
          'aria-controls': `${id}-${tab}-panel`,
          'data-tab': tab,
          onclick: () => this.select(tab)
        },
        TAB_LABELS[tab],
        h('span', { class: 'ctxk-count' })
      );
      this.sections[tab] = h('div', {
        class: `ctxk-section ctxk-${tab}`,
        role: 'tabpanel',
        id: `${id}-${tab}-panel`,
        'aria-labelledby': `${id}-${tab}`,
        tabindex: '0',
        hidden: true
      });
      tablist.append(this.tabs[tab]);
      body.append(this.sections[tab]);
    }
    const close =
      this.actions.close &&
      h(
        'button',
        {
          class: 'ctxk-close',
          type: 'button',
          title: 'Close the panel',
          'aria-label': 'Close the panel',
          onclick: () => this.actions.close()
        },
        icon('close')
      );
    this.root = h(
      'div',
      { class: 'ctxk' },
      h(
        'header',
        { class: 'ctxk-head' },
        h('div', { class: 'ctxk-line' }, this.name, this.state, this.stop, close),
        h('div', { class: 'ctxk-line ctxk-line2' }, this.total, this.checks),
        this.sentLine
      ),
      this.waits,
      this.banners,
      tablist,
      body,
      this.live
    );
    this.menu = new Menu(this.root);
    this.timeline = new Timeline(this, this.sections.timeline);
    this.returning = new Returning(this);
    el.append(this.root);
  }

  /** Arrow keys move between tabs, as the ARIA pattern for tabs has it. */
  tabKey(event) {
    const shown = TABS.filter((name) => !this.tabs[name].hidden);
    const at = shown.indexOf(this.tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const tab = shown[(to + shown.length) % shown.length];
    this.select(tab);
    this.tabs[tab].focus();
  }

  select(tab, tell = true) {
    this.tab = tab;
    for (const name of TABS) {
      const on = name === tab;
      this.tabs[name].setAttribute('aria-selected', String(on));
      this.tabs[name].tabIndex = on ? 0 : -1;
      this.sections[name].hidden = !on;
    }
    if (tell) this.actions.onTab?.(tab);
    this.drawSection();
    this.shown();
  }

  /** Mark sections as out of date and draw the one in front. */
  refresh(...tabs) {
    for (const tab of tabs) this.stale.add(tab);
    this.drawSection();
  }

  drawSection() {
    if (!this.stale.delete(this.tab)) return;
    const section = this.sections[this.tab];
    const top = section.scrollTop;
    const kept = this.tab === 'timeline' ? null : keyboardIn(section);
    if (this.tab !== 'timeline') this.menu.leave(section);
    try {
      if (this.tab === 'timeline') this.timeline.draw(this.hasMoved);
      else section.replaceChildren(...[DRAW[this.tab](this)].flat(Infinity).filter(Boolean));
    } catch (error) {
      console.error('ctxkernel panel', error);
      section.replaceChildren(
        emptyState('This part could not be drawn', `${error}. Reconnect, or report it with this text.`)
      );
    }
    if (this.tab === 'timeline') this.hasMoved = false;
    else section.scrollTop = top;
    kept?.();
  }

  /* ------------------------------------------------------------ from one section to a place in another */

  /** The checks that failed, else the projection. */
  showChecks() {
    this.select('projection');
    const failed = this.sections.projection.querySelector('.ctxk-violations');
    if (!failed) return;
    this.sections.projection.scrollTop = 0;
    failed.focus({ preventScroll: true });
  }

  showBlock(id) {
    this.select('projection');
    goToBlock(this, id);
  }

  /** The row of a run in the timeline. */
  showRun(run) {
    this.select('timeline');
    if (!this.timeline.goTo(run))
      this.returning.tell(`${run} has no row here: it is older than those shown, or on a branch that is folded.`);
  }

  /** An entry of the history's records. */
  showEntry(id) {
    this.select('history');
    goToEntry(this, id);
  }

  shown() {
    this.timeline.shown();
  }

  /* ------------------------------------------------------------ messages */

  message(msg) {
    const { snapshot, begin, turn, notice, checkpoint, proposed, asks } = this;
    const handlers = { snapshot, begin, turn, notice, checkpoint, proposal: proposed, asking: asks };
    if (Object.hasOwn(handlers, msg?.type)) handlers[msg.type].call(this, msg);
  }

  snapshot(msg) {
    this.phaseNow = null;
    this.session = msg.session ?? null;
    this.path = msg.path ?? null;
    this.head = headOf(msg);
    this.version = msg.version ?? null;
    this.protocol = msg.protocol ?? null;
    this.python = msg.python ?? null;
    this.truncated = number(msg.timeline_truncated) ?? 0;
    this.rows = new Map(list(msg.statements).map((row) => [keyOf(row), row]));
    this.takeReturning(msg);
    const known = new Set(this.deltas.map(deltaKey));
    // A reconnect to the same session must not lose the feed that this page has already seen.
    if (this.feedOf !== this.session) {
      this.deltas = [];
      known.clear();
      this.timeline.reset();
      this.condensed.clear();
      this.returning.close(false);
      this.returning.tell('');
    }
    this.feedOf = this.session;
    this.addDeltas(list(msg.deltas).filter((d) => !known.has(deltaKey(d))));
    this.sent = null;
    this.takeState(msg);
    this.notices = [];
    this.addNotices(msg.notices);
    this.proposed(msg);
    this.asks(msg);
    // The running statement: its id, or what `begin` says of it (it has no row of its own yet).
    const running =
      typeof msg.running === 'string' ? { ...this.rowOf(msg.running), statement_id: msg.running } : msg.running;
    this.run(null);
    if (running?.statement_id) {
      if (!this.rows.has(keyOf(running))) this.rows.set(keyOf(running), { ...running, status: 'running' });
      // Started before this page knew of it: only the kernel's clock can tell how long ago.
      this.run(running, number(running.started_at) === null ? 0 : Math.max(0, Date.now() - running.started_at * 1000));
    }
    this.grow();
    this.refresh(...TABS);
    this.drawHeader();
    this.drawBanners();
  }

  begin(msg) {
    const s = dict(msg.statement);
    if (!s.statement_id) return;
    if (this.head !== undefined) this.head = headOf(msg) ?? keyOf(s);
    this.rows.set(keyOf(s), { status: 'running', ...s });
    this.run(s, 0);
    this.grow();
    this.refresh('timeline');
    this.returning.began();
    this.drawHeader();
    this.live.textContent = `running ${label(s)}`;
  }

  turn(msg) {
    const row = dict(msg.statement);
    if (!row.statement_id) return;
    this.head = headOf(msg) === undefined ? this.head : headOf(msg);
    // Names that changed between two cells make a statement of their own, before this one.
    if (msg.outside?.statement_id) this.rows.set(keyOf(msg.outside), msg.outside);
    this.rows.set(keyOf(row), row);
    for (const one of list(msg.rows).map(dict)) this.amend(one);
    this.takeReturning(msg);
    this.hasMoved ||= Boolean(row.moved);
    this.takeState(msg);
    this.addDeltas(list(msg.deltas));
    this.addNotices(msg.notices);
    if (
      !this.running ||
      this.running.statement_id === row.statement_id ||
      number(row.index) >= (number(this.running.index) ?? 0)
    )
      this.run(null);
    this.grow();
    this.refresh(...TABS);
    this.drawHeader();
    this.drawBanners();
    const moved = row.moved && `, now at ${this.head ? clean(this.head).replace(/\.1$/, '') : 'the start'}`;
    this.live.textContent = `${label(row)} ${STATUSES[statusOf(row)][1]}${moved || ''}`;
    this.afterPaint(() =>
      this.actions.painted?.({ statement_id: String(row.statement_id), ended_at: number(row.ended_at) })
    );
  }

  notice(msg) {
    this.addNotices([msg?.text]);
    this.drawBanners();
  }

  /** A checkpoint became durable, or what is stored changed, after its turn was told. */
  checkpoint(msg) {
    if (msg.execution_id) this.amend({ execution_id: msg.execution_id, checkpoint: msg.checkpoint });
    if (msg.storage !== undefined) this.storage = msg.storage;
    this.grow();
    this.refresh('timeline');
    this.returning.draw();
  }

  /** Change some fields of a row that is known. */
  amend(fields) {
    const row = this.rows.get(keyOf(fields));
    if (row) this.rows.set(keyOf(row), { ...row, ...fields });
  }

  /** What snapshots and turns say of the state after the newest turn. */
  takeState(msg) {
    this.handles = list(msg.handles);
    this.projection = msg.projection ?? null;
    this.history = msg.history ?? null;
    this.sent = msg.sent ?? this.sent;
  }

  /** Something of the model's waits for the user, or does not any more. */
  proposed(msg) {
    const proposal = msg.proposal?.id ? msg.proposal : null;
    if (proposal?.id !== this.proposal?.id) {
      this.refused = '';
      this.card = proposal && new Card(proposal, this.cardHost);
      this.waits.replaceChildren(...(this.card ? [this.card.el] : []));
      if (proposal) this.live.textContent = clean(proposal.told);
    }
    this.proposal = proposal;
    this.drawCards();
  }

  /** What a card of this kernel's proposals needs, wherever it stands. */
  get cardHost() {
    const { gesture, highlight } = this.actions;
    return {
      decide: gesture ? (code) => void this.decide(code) : null,
      highlight,
      leave: () => this.tabs[this.tab].focus()
    };
  }

  stands(id) {
    const known = this.sent !== null;
    const live = known ? this.proposal?.id === id && this.phaseNow === null : null;
    return { live, busy: this.deciding || this.busy, told: live ? this.refused : '' };
  }

  drawCards() {
    this.waits.hidden = !this.card;
    this.card?.update(this.stands(this.proposal.id));
    this.actions.decides?.();
  }

  /** Decide on what waits; what it leads to is shown by the cell that asked. */
  async decide(code) {
    if (this.deciding || !this.proposal) return;
    const { id, ask } = this.proposal;
    this.deciding = true;
    this.refused = '';
    this.drawCards();
    const result = await this.actions.gesture(code, clean(this.rows.get(clean(ask))?.cell_id) || undefined);
    this.deciding = false;
    if (!result.ok && this.proposal?.id === id) this.refused = clean(result.text).trim() || `${code} failed`;
    this.drawCards();
  }

  /** A model works on an ask now, or does not any more. */
  asks(msg) {
    const asking = msg.asking?.ask ? msg.asking : null;
    const since = asking && performance.now() - Math.max(0, Date.now() - (number(asking.since) ?? 0) * 1000);
    this.asking = asking && { model: clean(asking.model), since };
    if (this.stop) this.stop.hidden = !asking;
    clearInterval(this.asker);
    if (asking) this.asker = setInterval(() => this.drawState(), 250);
    this.drawState();
  }

  /** What snapshots and turns say of returning; a kernel without it says nothing. */
  takeReturning(msg) {
    if (msg.branches) this.branches = list(msg.branches);
    this.storage = msg.storage ?? null;
    this.resume = msg.resume ?? null;
  }

  /** Make the tree of the rows, and what follows from it. */
  grow() {
    this.tree = plant(this.rows.values(), this.head);
    this.compared = lastRerun(this.tree, this.headKnown);
  }

  /** HEAD as far as the rows can tell: kernels without branches have theirs at the newest row. */
  get headKnown() {
    const told = [...this.rows.values()].some((row) => row.parent_execution_id !== undefined);
    return told ? this.head : undefined;
  }

  /** The way to HEAD, oldest first. */
  get wayToHead() {
    const { tree, headKnown } = this;
    if (headKnown !== undefined) return pathTo(tree, headKnown);
    const last = [...tree.nodes.values()].pop();
    return last ? pathTo(tree, last.key) : [];
  }

  /** Whether this kernel can go back at all. */
  get canMove() {
    return this.storage !== null || [...this.rows.values()].some((row) => row.checkpoint);
  }

  get busy() {
    return this.running !== null || this.status === 'busy' || this.phaseNow !== null || this.returning.rerunning;
  }

  /** The newest run of a statement. */
  rowOf(statementId) {
    let found;
    for (const row of this.rows.values()) if (row.statement_id === statementId) found = row;
    return found;
  }

  verdict(comparison) {
    return verdict(comparison);
  }

  /** Each turn repeats the notices that still hold; one that the reader dismissed does not come back. */
  addNotices(texts) {
    const fresh = list(texts).filter(Boolean).map(String);
    this.notices = [...new Set([...this.notices, ...fresh])].filter((text) => !this.dismissed.has(text)).slice(-5);
  }

  addDeltas(items) {
    this.deltas.push(...items.map(dict));
    if (this.deltas.length > MAX_DELTAS) this.deltas.splice(0, this.deltas.length - MAX_DELTAS);
  }

  kernelStatus(status) {
    this.status = String(status ?? 'unknown');
    if (['restarting', 'autorestarting', 'dead', 'terminating'].includes(this.status)) {
      this.run(null);
      this.asks({});
      this.proposed({});
      // What ran has died with its kernel. The next start records it so; until then the panel must not say that it runs.
      for (const [key, row] of [...this.rows])
        if (row.status === 'running') this.rows.set(key, { ...row, status: 'cancelled' });
      this.grow();
      this.refresh('timeline');
    }
    this.drawHeader();
    this.busyChanged();
  }

  /** The kernel became busy or idle. */
  busyChanged() {
    this.returning.busyChanged();
    this.drawCards();
  }

  phase(phase) {
    this.phaseNow = phase;
    if (phase) {
      this.run(null);
      this.asks({});
    }
    this.busyChanged();
    this.drawHeader();
    this.drawBanners();
    this.timeline.drawEmpty();
  }

  title(text) {
    this.heading = clean(text);
    this.drawHeader();
  }

  hole() {
    const known = [...new Set([...this.rows.values()].map((row) => number(row.index) ?? 0))]
      .sort((a, b) => a - b)
      .slice(-50);
    const at = known.findIndex((index, i) => i > 0 && index > known[i - 1] + 1);
    return at < 0 ? 0 : known[at];
  }

  /** Run `done` when what was just drawn has been painted; at once where the page is in the background. */
  afterPaint(done) {
    if (document.hidden) return void done();
    requestAnimationFrame(() => {
      // A frame callback runs BEFORE its paint; the next task runs after it.
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        channel.port1.close();
        if (!this.disposed) done();
      };
      channel.port2.postMessage(0);
    });
  }

  dispose() {
    this.disposed = true;
    clearInterval(this.ticker);
    clearInterval(this.asker);
    this.timeline.dispose();
    this.menu.close(false);
    this.root.remove();
  }

  /* ------------------------------------------------------------ header */

  run(statement, ago = 0) {
    clearInterval(this.ticker);
    this.running = statement && { ...statement, since: performance.now() - ago };
    if (statement) this.ticker = setInterval(() => this.drawState(), 250);
    // The kernel's `idle` and the turn come in either order.
    this.busyChanged();
  }

  drawState() {
    let view;
    if (this.running) {
      const elapsed = performance.now() - this.running.since;
      // Under half a second a number would only flicker.
      view = ['running', '●', `running ${label(this.running)}${elapsed > 500 ? ` · ${duration(elapsed)}` : ''}`];
    } else if (this.asking) {
      const elapsed = performance.now() - this.asking.since;
      view = ['running', '●', `asking ${this.asking.model}${elapsed > 950 ? ` · ${Math.round(elapsed / 1000)} s` : ''}`];
    } else if (this.phaseNow)
      view = [
        this.phaseNow.tone === 'error' ? 'error' : 'off',
        '○',
        PHASE_WORDS[this.phaseNow.name] ?? 'not connected'
      ];
    else if (this.status === 'idle') view = ['idle', '○', 'idle'];
    else if (this.status === 'busy') view = ['running', '●', 'busy'];
    else view = ['off', '○', this.status];
    const [kind, glyph, text] = view;
    if (this.state.textContent === glyph + text) return;
    this.state.className = `ctxk-state ctxk-is-${kind}`;
    this.state.replaceChildren(h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph), text);
    this.root.dataset.state = kind;
  }

  drawHeader() {
    this.drawState();
    const name = this.heading || shortName(this.path) || shortName(this.session) || 'ctxkernel';
    this.name.replaceChildren(clean(name));
    this.name.title = clean(
      [
        this.heading,
        this.session && `session ${typeof this.session === 'string' ? this.session : JSON.stringify(this.session)}`,
        this.version && `ctxkernel ${this.version}`,
        this.python && `Python ${this.python}`
      ]
        .filter(Boolean)
        .join('\n')
    );
    const p = this.projection;
    const live = this.sent !== null;
    this.total.parentElement.hidden = !live;
    this.total.replaceChildren();
    if (p)
      put(
        this.total,
        h('b', null, `~${count(p.tokens)} tokens`),
        number(p.budget) ? h('span', { class: 'ctxk-wide' }, ` of ${count(p.budget)}`) : '',
        costOf(p) && ` · ${costOf(p)}`
      );
    else put(this.total, 'no projection yet');
    this.checks.hidden = !p;
    if (p) {
      const report = dict(p.report);
      const n = list(report.violations).length;
      this.checks.replaceChildren(
        report.ok ? badge('ok', '✓', 'checks pass') : badge('error', '✕', plural(n || 1, 'violation'))
      );
      this.checks.title = report.ok
        ? 'The projection keeps every rule of the model’s API'
        : 'The projection breaks rules of the model’s API; a red one is never sent';
    }
    this.sentLine.hidden = !live;
    if (live)
      this.sentLine.textContent =
        this.sent === false ? 'Nothing has been sent to any model.' : 'Parts of this session were sent to a model.';
    this.root.dataset.sent = String(this.sent);
    const counts = {
      timeline: this.tree.nodes.size + this.truncated,
      handles: this.handles.length,
      projection: list(p?.blocks).length,
      history: historySize(this.history),
      changes: this.deltas.length,
      rerun: this.compared.filter((row) => verdict(row.comparison).word === 'differs').length
    };
    for (const tab of TABS)
      this.tabs[tab].querySelector('.ctxk-count').textContent = counts[tab] ? count(counts[tab]) : '';
    this.tabs.history.hidden = !this.history && this.tab !== 'history';
    this.tabs.rerun.hidden = !this.compared.length && this.tab !== 'rerun';
    this.returning.draw();
  }

  drawBanners() {
    const out = [];
    const phase = this.phaseNow;
    // With rows on the screen the phase is a banner over them; without, it is the page (drawEmpty).
    if (phase && this.rows.size) out.push(this.phaseBox(phase, 'ctxk-banner'));
    const odd = this.sent === null ? null : mismatch(this.actions.version, this.version, this.protocol);
    if (odd) {
      out.push(
        h(
          'div',
          { class: 'ctxk-banner ctxk-tone-warn', role: 'alert', 'data-banner': 'version' },
          h('strong', null, odd.title),
          h('p', null, odd.text),
          codeLine(odd.command)
        )
      );
    }
    const resume = this.returning.resumeBanner();
    if (resume) out.push(resume);
    for (const text of this.notices) {
      const close = h(
        'button',
        {
          class: 'ctxk-close',
          type: 'button',
          title: 'Dismiss',
          'aria-label': 'Dismiss this notice',
          onclick: () => {
            this.dismissed.add(text);
            this.addNotices([]);
            this.drawBanners();
          }
        },
        icon('close')
      );
      out.push(
        h(
          'div',
          { class: 'ctxk-banner ctxk-tone-info ctxk-notice', 'data-banner': 'notice' },
          h('p', null, text),
          close
        )
      );
    }
    this.banners.replaceChildren(...out);
  }

  phaseBox(phase, cls) {
    return h(
      'div',
      {
        class: `${cls} ctxk-tone-${phase.tone}`,
        'data-phase': phase.name,
        role: phase.tone === 'error' ? 'alert' : null
      },
      h('strong', null, phase.title),
      phase.text && h('p', null, phase.text),
      phase.code && codeLine(phase.code),
      phase.after && h('p', null, phase.after),
      phase.button &&
        this.actions.reconnect &&
        h('button', { class: 'ctxk-button', type: 'button', onclick: () => this.actions.reconnect() }, phase.button)
    );
  }
}

/* ---------------------------------------------------------------- parts */

const PHASE_WORDS = {
  connecting: 'connecting',
  busy: 'busy',
  other: 'not ctxkernel',
  'no-answer': 'no answer',
  'no-kernel': 'no kernel',
  restarting: 'restarting',
  dead: 'kernel died',
  disconnected: 'disconnected'
};

/** HEAD as a message tells it: an execution's id, null, or undefined where it does not. */
const headOf = (msg) => (msg.head === undefined ? undefined : msg.head === null ? null : String(msg.head));
const deltaKey = (d) => [d?.statement_id, d?.kind, d?.subject, d?.summary].join('\0');

/** Returns what puts the keyboard back where it is in a section that is drawn anew; null where it is not in it. */
function keyboardIn(section) {
  const el = document.activeElement;
  const key = section.contains(el) ? el.dataset.keep : undefined;
  if (key === undefined) return null;
  const [start, end] = el.type === 'text' ? [el.selectionStart, el.selectionEnd] : [];
  return () => {
    const now = [...section.querySelectorAll('[data-keep]')].find((one) => one.dataset.keep === key);
    now?.focus({ preventScroll: true });
    if (now && start !== undefined) now.setSelectionRange(start, end);
  };
}

function shortName(session) {
  if (!session) return '';
  const text = typeof session === 'string' ? session : String(session.name ?? session.id ?? '');
  return (text.split(/[\\/]/).pop() ?? '').replace(/\.sqlite$/, '');
}

/* ---------------------------------------------------------------- the inline widget */

/** How long the kernel may take to answer; it is busy with a cell where it takes longer. */
const ASK_MS = 10000;

/** anywidget's entry: the trait `state` holds a snapshot; all later messages, and answers, come as custom messages. */
export default {
  render({ model, el }) {
    const host = h('div', { class: 'ctxk-inline' });
    el.append(host);
    /** @type {Map<string, (answer: any) => void>} */
    const asked = new Map();
    const ask = (type, request) =>
      new Promise((resolve) => {
        const id = Math.random().toString(36).slice(2);
        asked.set(id, resolve);
        model.send({ type, id, ...request });
        setTimeout(() => resolve({ error: 'No answer yet: the kernel is busy, or gone.' }), ASK_MS);
      });
    // No gestures here: a widget cannot send execute requests. What would be one is shown as a line to run.
    const view = mount(host, { ask });
    const whole = () => {
      const state = model.get('state');
      if (state && Object.keys(state).length) view.snapshot(state);
    };
    const one = (msg) => {
      const resolve = asked.get(msg?.id);
      if (resolve) {
        asked.delete(msg.id);
        resolve(msg);
      } else view.message(msg);
    };
    model.on('change:state', whole);
    model.on('msg:custom', one);
    view.kernelStatus('idle');
    whole();
    return () => {
      model.off('change:state', whole);
      model.off('msg:custom', one);
      view.dispose();
    };
  }
};
