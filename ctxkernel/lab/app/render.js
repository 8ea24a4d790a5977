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
  find,
  findAll,
  h,
  icon,
  keyOf,
  label,
  list,
  number,
  plural,
  put,
  statusOf
} from './base.js';
import { goToBlock } from './blocks.js';
import { drawChanges } from './changes.js';
import { drawComparisons } from './comparisons.js';
import { drawHandles } from './handles.js';
import { drawHistory, goToEntry, historySize } from './history.js';
import { Menu } from './menu.js';
import { costOf, drawProjection } from './projection.js';
import { Card } from './proposal.js';
import { Returning } from './returning.js';
import { Timeline, verdict } from './timeline.js';
import { lastRerun, pathTo, plant } from './tree.js';

/** @import {Proposal, Resume, Storage, CondensedEvents, DeltaItem, Handle, History} from '../messages.js' */
/** @import {AskingMessage, BegunStatement, BeginMessage, CheckpointMessage, KernelMessage} from '../messages.js' */
/** @import {Branch, Projection, ProposalMessage, SnapshotMessage, TurnMessage} from '../messages.js' */
/** @import {Ask, Child} from '../types.js' */
/** @import {CardHost} from './proposal.js' */
/** @import {AnyRow} from './tree.js' */

/** The wire protocol that this file speaks. */
const PROTOCOL = 1;

const TABS = /** @type {const} */ (['timeline', 'handles', 'projection', 'history', 'changes', 'rerun']);
/** @typedef {(typeof TABS)[number]} Tab */

/** @type {Record<Tab, string>} */
const TAB_LABELS = {
  timeline: 'Timeline',
  handles: 'Handles',
  projection: 'Projection',
  history: 'History',
  changes: 'Changes',
  rerun: 'Re-run'
};
/** @type {Record<Exclude<Tab, 'timeline'>, (view: View) => Child>} */
const DRAW = {
  handles: drawHandles,
  projection: drawProjection,
  history: drawHistory,
  changes: drawChanges,
  rerun: drawComparisons
};

/** Change items that are kept; a day of work stays well below. */
const MAX_DELTAS = 2000;

/** @typedef {{cell_id: string, source: string, tags: string[]}} Cell a code cell of the notebook */

/**
 * What the host (JupyterLab plugin or widget) can do for the renderer.
 * @typedef {object} Actions
 * @property {string} [version] the front end's version; without it there is no version handshake
 * @property {(cellId: string) => Promise<boolean>} [goto] scroll the notebook to a cell; false where it has none of that id
 * @property {() => void} [reconnect]
 * @property {() => void} [close]
 * @property {string} [tab] the section to start with
 * @property {(tab: Tab) => void} [onTab]
 * @property {(mark: {statement_id: string, ended_at: number | null}) => void} [painted] a turn is on the screen
 * @property {Ask} [ask] what a return or a re-run would do, what a condensation stands for, how two projections differ;
 *   executes nothing
 * @property {(code: string, cellId?: string) => Promise<{ok: boolean, text: string}>} [gesture] run a `%ctx` line as an
 *   execute request; what it leads to is shown by that cell
 * @property {() => void} [interrupt] stop what the kernel does
 * @property {() => void} [decides] what waits for the user, or whether it can be decided now, may have changed
 * @property {(code: string, el: HTMLElement) => void} [highlight] add Python code to an element, in colours
 * @property {(cellId: string) => Cell[] | null} [cellsFrom] the notebook's code cells from that one on; null where it has
 *   none of that id
 * @property {(ids: string[], told: (done: number) => void, stop: {stopped: boolean}) =>
 *   Promise<{ran: number, failed: string | null}>} [rerunCells] run cells one after the other, up to the first error
 */

/**
 * Whether version `a` is newer than `b`; a part that is no number counts as 0.
 * @param {string} a @param {string} b
 */
function newer(a, b) {
  /** @param {string} v */
  const parts = (v) =>
    clean(v)
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
 * @param {string | null | undefined} mine @param {string | null | undefined} theirs @param {number | null} protocol
 * @returns {{title: string, text: string, command: string} | null}
 */
function mismatch(mine, theirs, protocol) {
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
function mount(el, actions = {}) {
  const view = new View(el, actions);
  return {
    /** @param {Partial<SnapshotMessage>} msg */
    snapshot: (msg) => view.snapshot(msg),
    /** @param {Partial<BeginMessage>} msg */
    begin: (msg) => view.begin(msg),
    /** @param {Partial<TurnMessage>} msg */
    turn: (msg) => view.turn(msg),
    /** Any message of the protocol. @param {Partial<KernelMessage> | null | undefined} msg */
    message: (msg) => view.message(msg),
    /** What the kernel does, in Jupyter's words (`idle`, `busy`, `restarting`, `dead`, …). @param {string} status */
    kernelStatus: (status) => view.kernelStatus(status),
    /** How the connection stands; `null` when it is live. @param {Phase | null} phase */
    phase: (phase) => view.phase(phase),
    /** @param {string} text */
    title: (text) => view.title(text),
    /** The panel came to the front: things that only work on a shown element are done again. */
    shown: () => view.shown(),
    /** The index of a statement that is known while the one before it is not; 0 where there is no such hole. */
    hole: () => view.hole(),
    isRunning: () => view.running !== null,
    dispose: () => view.dispose(),
    /**
     * Restore the state before a cell and run from there.
     * @param {string} cellId @param {string[]} ids all of the notebook's code cells, in order
     */
    rerunFromCell: (cellId, ids) => view.returning.rerunFromCell(cellId, ids),
    /** Restore the state after the newest run of a cell on the way to HEAD. @param {string} cellId */
    goBackToCell: (cellId) => view.returning.goBackToCell(cellId),
    undo: () => view.returning.undo(),
    /** Whether the kernel can go back at all. */
    canMove: () => view.canMove,
    /** What of the model's waits for the user; null: nothing. */
    proposal: () => view.proposal,
    /** How the card of a proposal stands. @param {string | undefined} id */
    stands: (id) => view.stands(id),
    /** @param {string} code */
    decide: (code) => view.decide(code),
    /** The card of what waits, to decide on by command. */
    card: () => view.card
  };
}

/**
 * A proposal, or what became of it, as an output of a cell.
 * @param {Partial<Proposal> | null | undefined} proposal @param {CardHost} host
 */
const makeCard = (proposal, host) => new Card(proposal, host);

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
  /** @param {HTMLElement} el @param {Actions} actions */
  constructor(el, actions) {
    this.actions = actions;
    /** Rows by execution. @type {Map<string, AnyRow>} */
    this.rows = new Map();
    this.tree = plant([]);
    this.openHandles = /** @type {Set<string>} */ (new Set());
    this.openBlocks = /** @type {Set<string>} */ (new Set());
    /** @type {string | null} */
    this.session = null;
    /** The session that the feed is of. @type {string | null | undefined} */
    this.feedOf = undefined;
    /** @type {string | null} */
    this.path = null;
    /** @type {string | null} */
    this.version = null;
    /** @type {number | null} */
    this.protocol = null;
    /** @type {string | null} */
    this.python = null;
    /** @type {readonly Partial<Handle>[]} */
    this.handles = [];
    /** @type {Partial<DeltaItem>[]} */
    this.deltas = [];
    /** @type {Partial<Projection> | null} */
    this.projection = null;
    /** What was done to the history that the model is shown; null where nothing was. @type {History | null} */
    this.history = null;
    /** Folds that are open, by key. */
    this.openFolds = /** @type {Set<string>} */ (new Set());
    /** What the reader has typed into fields of a section, which is drawn anew with each turn. @type {Map<string, string>} */
    this.drafts = new Map();
    /** What condensations stand for, as far as it was asked for. @type {Map<string, Partial<CondensedEvents>>} */
    this.condensed = new Map();
    /** The two projections that are compared, and the newest question. */
    this.against = { old: '', new: '', asked: false, turn: {} };
    /** @type {string[]} */
    this.notices = [];
    this.dismissed = /** @type {Set<string>} */ (new Set());
    this.truncated = 0;
    /** Whether anything was sent to a model; null where no kernel has told yet. @type {boolean | null} */
    this.sent = null;
    /**
     * HEAD's execution; null is the state before all of them, undefined a kernel that does not say.
     * @type {string | null | undefined}
     */
    this.head = undefined;
    /** HEAD went elsewhere since the timeline was drawn. */
    this.hasMoved = false;
    /** @type {readonly Branch[]} */
    this.branches = [];
    /** @type {Partial<Storage> | null} */
    this.storage = null;
    /** @type {Partial<Resume> | null} */
    this.resume = null;
    /** @type {AnyRow[]} */
    this.compared = [];
    this.onlyDiffering = true;
    /** @type {(Partial<BegunStatement> & {since: number}) | null} */
    this.running = null;
    /** What of the model's waits for the user, and the card that shows it. @type {Proposal | null} */
    this.proposal = null;
    /** @type {Card | null} */
    this.card = null;
    /** What was decided is being carried out; why the last decision was refused. */
    this.deciding = false;
    this.refused = '';
    /** The ask that a model works on now. @type {{model: string, since: number} | null} */
    this.asking = null;
    this.status = 'unknown';
    /** @type {Phase | null} */
    this.phaseNow = null;
    this.heading = '';
    this.stale = /** @type {Set<Tab>} */ (new Set(TABS));
    this.disposed = false;
    /** @type {Tab} */
    this.tab = 'timeline';
    /** Timers that tell how long what runs, and the ask, has taken. @type {number | undefined} */
    this.ticker = undefined;
    /** @type {number | undefined} */
    this.asker = undefined;

    /* ---------------------------------------------------------- frame */

    this.name = h('span', { class: 'ctxk-name' }, 'ctxkernel');
    this.state = h('span', { class: 'ctxk-state' });
    this.total = h('span', { class: 'ctxk-total' });
    this.checks = h('button', { class: 'ctxk-checks', type: 'button', onclick: () => this.showChecks() });
    this.meter = h('div', { class: 'ctxk-line ctxk-line2' }, this.total, this.checks);
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
          onclick: () => this.actions.interrupt?.()
        },
        'Stop'
      );
    this.live = h('div', { class: 'ctxk-sr', role: 'status', 'aria-live': 'polite' });
    this.tabs = /** @type {Record<Tab, HTMLElement>} */ ({});
    this.sections = /** @type {Record<Tab, HTMLElement>} */ ({});
    this.counts = /** @type {Record<Tab, HTMLElement>} */ ({});
    const id = (this.id = `ctxk-${Math.random().toString(36).slice(2)}`);
    const tablist = h('div', {
      class: 'ctxk-tabs',
      role: 'tablist',
      'aria-label': 'Parts of the panel',
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.tabKey(event)
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
        (this.counts[tab] = h('span', { class: 'ctxk-count' }))
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
          onclick: () => this.actions.close?.()
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
        this.meter,
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
    this.select(TABS.find((tab) => tab === actions.tab) ?? 'timeline', false);
    this.drawHeader();
  }

  /** Arrow keys move between tabs, as the ARIA pattern for tabs has it. @param {KeyboardEvent} event */
  tabKey(event) {
    const shown = TABS.filter((name) => !this.tabs[name].hidden);
    const at = shown.indexOf(this.tab);
    /** @type {Record<string, number>} */
    const places = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: shown.length - 1 };
    const to = places[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const tab = shown[(to + shown.length) % shown.length];
    this.select(tab);
    this.tabs[tab].focus();
  }

  /** @param {Tab} tab @param {boolean} [tell] */
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

  /** Mark sections as out of date and draw the one in front. @param {...Tab} tabs */
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
      else {
        const made = DRAW[this.tab](this);
        section.replaceChildren();
        put(section, made);
      }
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
    const failed = find(this.sections.projection, '.ctxk-violations');
    if (!failed) return;
    this.sections.projection.scrollTop = 0;
    failed.focus({ preventScroll: true });
  }

  /** @param {string} id */
  showBlock(id) {
    this.select('projection');
    goToBlock(this, id);
  }

  /** The row of a run in the timeline. @param {string} run */
  showRun(run) {
    this.select('timeline');
    if (!this.timeline.goTo(run))
      this.returning.tell(`${run} has no row here: it is older than those shown, or on a branch that is folded.`);
  }

  /** An entry of the history's records. @param {string} id */
  showEntry(id) {
    this.select('history');
    goToEntry(this, id);
  }

  shown() {
    this.timeline.shown();
  }

  /* ------------------------------------------------------------ messages */

  /** @param {Partial<KernelMessage> | null | undefined} msg */
  message(msg) {
    switch (msg?.type) {
      case 'snapshot':
        return this.snapshot(msg);
      case 'begin':
        return this.begin(msg);
      case 'turn':
        return this.turn(msg);
      case 'checkpoint':
        return this.checkpoint(msg);
      case 'proposal':
        return this.proposed(msg);
      case 'asking':
        return this.asks(msg);
    }
  }

  /** @param {Partial<SnapshotMessage>} msg */
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
    // What `begin` says of the running statement: it has no row of its own yet.
    const { running } = msg;
    this.run(null);
    if (running?.statement_id) {
      if (!this.rows.has(keyOf(running))) this.rows.set(keyOf(running), { ...running, status: 'running' });
      // Started before this page knew of it: only the kernel's clock can tell how long ago.
      const started = number(running.started_at);
      this.run(running, started === null ? 0 : Math.max(0, Date.now() - started * 1000));
    }
    this.grow();
    this.refresh(...TABS);
    this.drawHeader();
    this.drawBanners();
  }

  /** @param {Partial<BeginMessage>} msg */
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

  /** @param {Partial<TurnMessage>} msg */
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
      (number(row.index) ?? 0) >= (number(this.running.index) ?? 0)
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

  /**
   * A checkpoint became durable, or what is stored changed, after its turn was told.
   * @param {Partial<CheckpointMessage>} msg
   */
  checkpoint(msg) {
    if (msg.execution_id) this.amend({ execution_id: msg.execution_id, checkpoint: msg.checkpoint });
    if (msg.storage !== undefined) this.storage = msg.storage;
    this.grow();
    this.refresh('timeline');
    this.returning.draw();
  }

  /** Change some fields of a row that is known. @param {AnyRow} fields */
  amend(fields) {
    const row = this.rows.get(keyOf(fields));
    if (row) this.rows.set(keyOf(row), { ...row, ...fields });
  }

  /**
   * What snapshots and turns say of the state after the newest turn.
   * @param {Partial<SnapshotMessage> | Partial<TurnMessage>} msg
   */
  takeState(msg) {
    this.handles = list(msg.handles);
    this.projection = msg.projection ?? null;
    this.history = msg.history ?? null;
    this.sent = msg.sent ?? this.sent;
  }

  /**
   * Something of the model's waits for the user, or does not any more.
   * @param {Partial<Pick<ProposalMessage, 'proposal'>>} msg
   */
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
      decide: gesture ? (/** @type {string} */ code) => void this.decide(code) : null,
      highlight,
      leave: () => this.tabs[this.tab].focus()
    };
  }

  /** @param {string | undefined} id */
  stands(id) {
    const known = this.sent !== null;
    const live = known ? this.proposal?.id === id && this.phaseNow === null : null;
    return { live, busy: this.deciding || this.busy, told: live ? this.refused : '' };
  }

  drawCards() {
    this.waits.hidden = !this.card;
    this.card?.update(this.stands(this.proposal?.id));
    this.actions.decides?.();
  }

  /** Decide on what waits; what it leads to is shown by the cell that asked. @param {string} code */
  async decide(code) {
    const { gesture } = this.actions;
    if (this.deciding || !this.proposal || !gesture) return;
    const { id, ask } = this.proposal;
    this.deciding = true;
    this.refused = '';
    this.drawCards();
    const result = await gesture(code, clean(this.rows.get(clean(ask))?.cell_id) || undefined);
    this.deciding = false;
    if (!result.ok && this.proposal?.id === id) this.refused = clean(result.text).trim() || `${code} failed`;
    this.drawCards();
  }

  /** A model works on an ask now, or does not any more. @param {Partial<Pick<AskingMessage, 'asking'>>} msg */
  asks(msg) {
    const asking = msg.asking?.ask ? msg.asking : null;
    const ago = Math.max(0, Date.now() - (number(asking?.since) ?? 0) * 1000);
    this.asking = asking && { model: clean(asking.model), since: performance.now() - ago };
    if (this.stop) this.stop.hidden = !asking;
    clearInterval(this.asker);
    if (asking) this.asker = setInterval(() => this.drawState(), 250);
    this.drawState();
  }

  /**
   * What snapshots and turns say of returning; a kernel without it says nothing.
   * @param {Partial<SnapshotMessage> | Partial<TurnMessage>} msg
   */
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

  /** The newest run of a statement. @param {string} statementId */
  rowOf(statementId) {
    /** @type {AnyRow | undefined} */
    let found;
    for (const row of this.rows.values()) if (row.statement_id === statementId) found = row;
    return found;
  }

  /**
   * Each turn repeats the notices that still hold; one that the reader dismissed does not come back.
   * @param {readonly string[] | undefined} texts
   */
  addNotices(texts) {
    const fresh = list(texts).filter(Boolean).map(String);
    this.notices = [...new Set([...this.notices, ...fresh])].filter((text) => !this.dismissed.has(text)).slice(-5);
  }

  /** @param {readonly Partial<DeltaItem>[]} items */
  addDeltas(items) {
    this.deltas.push(...items.map((item) => dict(item)));
    if (this.deltas.length > MAX_DELTAS) this.deltas.splice(0, this.deltas.length - MAX_DELTAS);
  }

  /** @param {string} status */
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

  /** @param {Phase | null} phase */
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

  /** @param {string} text */
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

  /**
   * Run `done` when what was just drawn has been painted; at once where the page is in the background.
   * @param {() => void} done
   */
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

  /** @param {Partial<BegunStatement> | null} statement @param {number} [ago] */
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
        this.session && `session ${this.session}`,
        this.version && `ctxkernel ${this.version}`,
        this.python && `Python ${this.python}`
      ]
        .filter(Boolean)
        .join('\n')
    );
    const p = this.projection;
    const live = this.sent !== null;
    this.meter.hidden = !live;
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
    for (const tab of TABS) this.counts[tab].textContent = counts[tab] ? count(counts[tab]) : '';
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

  /** @param {Phase} phase @param {string} cls */
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
        h('button', { class: 'ctxk-button', type: 'button', onclick: () => this.actions.reconnect?.() }, phase.button)
    );
  }
}

/* ---------------------------------------------------------------- parts */

/** @type {Record<string, string>} */
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

/**
 * HEAD as a message tells it: an execution's id, null, or undefined where it does not.
 * @param {{head?: string | null}} msg
 */
const headOf = (msg) => (msg.head === undefined ? undefined : msg.head === null ? null : String(msg.head));
/** @param {Partial<DeltaItem> | null | undefined} d */
const deltaKey = (d) => [d?.statement_id, d?.kind, d?.subject, d?.summary].join('\0');

/**
 * Returns what puts the keyboard back where it is in a section that is drawn anew; null where it is not in it.
 * @param {HTMLElement} section
 */
function keyboardIn(section) {
  const el = document.activeElement;
  const key = el instanceof HTMLElement && section.contains(el) ? el.dataset.keep : undefined;
  if (key === undefined) return null;
  const text = el instanceof HTMLInputElement && el.type === 'text' ? el : null;
  const [start, end] = [text?.selectionStart ?? null, text?.selectionEnd ?? null];
  return () => {
    const now = findAll(section, '[data-keep]').find((one) => one.dataset.keep === key);
    now?.focus({ preventScroll: true });
    if (text && now instanceof HTMLInputElement) now.setSelectionRange(start, end);
  };
}

/** @param {string | null} session */
function shortName(session) {
  if (!session) return '';
  return (clean(session).split(/[\\/]/).pop() ?? '').replace(/\.sqlite$/, '');
}

export { PROTOCOL, View, mismatch, mount, makeCard };
