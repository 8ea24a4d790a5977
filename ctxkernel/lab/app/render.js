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
  askKernel,
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
import { drawChanges } from './changes.js';
import { drawComparisons } from './comparisons.js';
import { openDifference } from './compare.js';
import { drawCosts } from './costs.js';
import { drawHandles } from './handles.js';
import { firstHint } from './firststeps.js';
import { drawHistory, goToEntry, historySize } from './history.js';
import { Menu } from './menu.js';
import { costOf, drawProjection, showBlock } from './projection.js';
import { Card } from './proposal.js';
import { Returning } from './returning.js';
import { verdict } from './rowparts.js';
import { Timeline } from './timeline.js';
import { attach, lastRerun, pathTo, plant, prune, sorted, spansOf, stubOf, stubsOf } from './tree.js';
import { statusParts } from './statusline.js';

/** @import {Proposal, Resume, Storage, CondensedEvents, DeltaItem, Handle, History} from '../messages.js' */
/** @import {AskingMessage, BegunStatement, BeginMessage, CheckpointMessage, KernelMessage} from '../messages.js' */
/** @import {Costs, Price, Projection, ProjectionBlocks, ProposalMessage} from '../messages.js' */
/** @import {SnapshotMessage, TurnMessage} from '../messages.js' */
/** @import {Ask, Child} from '../types.js' */
/** @import {Hint} from './firststeps.js' */
/** @import {CardHost} from './proposal.js' */
/** @import {Offer} from './cellversions.js' */
/** @import {AnyRow} from './tree.js' */

/** What tells one proposal from another. @type {(keyof Proposal)[]} */
const SAME = ['id', 'ask', 'kind', 'code'];

/** The wire protocol that this file speaks. */
const PROTOCOL = 1;

const TABS = /** @type {const} */ (['timeline', 'handles', 'projection', 'cost', 'history', 'changes', 'rerun']);
/** @typedef {(typeof TABS)[number]} Tab */

/** @type {Record<Tab, string>} */
const TAB_LABELS = {
  timeline: 'Timeline',
  handles: 'Handles',
  projection: 'Projection',
  cost: 'Cost',
  history: 'History',
  changes: 'Changes',
  rerun: 'Re-run'
};
/** @type {Record<Exclude<Tab, 'timeline'>, (view: View) => Child>} */
const DRAW = {
  handles: drawHandles,
  projection: drawProjection,
  cost: drawCosts,
  history: drawHistory,
  changes: drawChanges,
  rerun: drawComparisons
};

/** A cell that runs for longer has a button that stops it, in milliseconds. */
const LONG_MS = 500;
/** Change items that are kept; a day of work stays well below. */
const MAX_DELTAS = 2000;
/** Entries of the history that are kept: as many as the kernel tells. */
const MAX_ENTRIES = 200;
/** Most rows whose content is kept. */
const MAX_ROWS = 1000;
/** Rows that one request asks for: the kernel sends no more, and reads no longer text. */
const ROWS_AT_ONCE = 60;

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
 * @property {(data: Record<string, unknown>, el: HTMLElement) => boolean} [render] show a MIME bundle of nobody that is
 *   trusted; false: it cannot be shown
 * @property {Hint} [hint] whether a first-run hint is shown; the host remembers that it was dismissed
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
    /** Bring a section to the front. @param {Tab} tab */
    section: (tab) => view.select(tab),
    /** The parts of the status bar's line. */
    statusParts: () => statusParts(view),
    /** Ask for a name of the state after a cell. @param {string} cellId */
    nameCell: (cellId) => view.onRowOf(cellId, (row) => view.returning.name(row)),
    /** Set or take away a mark of a cell. @param {string} cellId @param {'differs' | 'asks'} what */
    markCell: (cellId, what) =>
      view.onRowOf(cellId, (row) => void view.returning.mark(row, what, !dict(row.marks)[what])),
    resume: () => view.returning.resume(),
    /** Offer to follow a move, or take the offer away. @param {Offer | null} offer */
    offer: (offer) => {
      view.following = offer;
      view.drawBanners();
    },
    /** The row of an execution in the timeline. @param {string} execution */
    showRun: (execution) => view.showRun(execution),
    /** The notebook's cell of a statement; null where it has none. @param {string} statement */
    cellOf: (statement) => view.rowOf(statement)?.cell_id ?? null,
    /** Whether the kernel can go back at all. */
    canMove: () => view.canMove,
    /** What of the model's waits for the user; null: nothing. */
    proposal: () => view.proposal,
    /** How the card of a proposal stands. @param {Partial<Proposal> | null | undefined} proposal */
    stands: (proposal) => view.stands(proposal),
    /** @param {string} code */
    decide: (code) => view.decide(code),
    /** The card of what waits, to decide on by command. */
    card: () => view.card,
    /** Draw the timeline in another element too, with room for details beside it. @param {HTMLElement} host */
    wide: (host) => view.wide(host)
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
    /** Rows by execution, in the order of time; of old ones only stubs. @type {Map<string, AnyRow>} */
    this.rows = new Map();
    /** Those with content. @type {Map<string, AnyRow>} */
    this.full = new Map();
    /** Rows that were asked for. @type {Set<string>} */
    this.coming = new Set();
    /** Statements whose rows came last, to find holes. @type {number[]} */
    this.indexes = [];
    /** The first of two states that are to be compared. @type {AnyRow | null} */
    this.comparing = null;
    /** Drawn timelines: that of the panel, and that of a tab. @type {Set<Timeline>} */
    this.timelines = new Set();
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
    /** Whether there was a handle or an ask: from then on tokens and price are shown. */
    this.grown = false;
    /** What the kernel prepares in the background, a line each. @type {readonly string[]} */
    this.work = [];
    /** The blocks of the newest projection that was asked for. @type {Partial<ProjectionBlocks> | null} */
    this.blocks = null;
    /** The receipt of the projection whose blocks were asked for last, and why there was no answer. */
    this.blocksAsked = '';
    this.blocksError = '';
    /** What is done when the blocks have come. @type {(() => void) | null} */
    this.afterBlocks = null;
    /** Images of blocks by digest. @type {Map<string, HTMLImageElement>} */
    this.pictures = new Map();
    /** What the session has cost, as it was told last; whether the kernel is being asked. @type {Partial<Costs> | null} */
    this.costs = null;
    this.costsError = '';
    this.costsAsked = /** @type {object | null} */ (null);
    /** Prices of changes, by the receipt of the projection and the change. @type {Map<string, Partial<Price>>} */
    this.prices = new Map();
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
    /** How often HEAD went elsewhere. */
    this.moves = 0;
    /** @type {Partial<Storage> | null} */
    this.storage = null;
    /** @type {Partial<Resume> | null} */
    this.resume = null;
    /** @type {AnyRow[]} */
    this.compared = [];
    this.onlyDiffering = true;
    /** What the notebook's cells can be shown as. @type {Offer | null} */
    this.following = null;
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
    this.workLine = h('p', { class: 'ctxk-work', hidden: true });
    this.banners = h('div', { class: 'ctxk-banners' });
    this.waits = h('div', { class: 'ctxk-waits', hidden: true });
    this.stop =
      this.actions.interrupt &&
      h(
        'button',
        {
          class: 'ctxk-button ctxk-stop',
          type: 'button',
          title: 'Stop what runs: interrupts the kernel',
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
        'div',
        { class: 'ctxk-head' },
        h('div', { class: 'ctxk-line' }, this.name, this.state, this.stop, close),
        this.meter,
        this.sentLine
      ),
      this.waits,
      this.banners,
      tablist,
      body,
      this.workLine,
      this.live
    );
    this.menu = new Menu(this.root);
    this.timeline = new Timeline(this, this.sections.timeline);
    this.timelines.add(this.timeline);
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
    if (tabs.includes('timeline')) for (const one of this.timelines) if (one !== this.timeline) one.draw();
  }

  drawSection() {
    if (!this.stale.delete(this.tab)) return;
    const section = this.sections[this.tab];
    const top = section.scrollTop;
    const kept = this.tab === 'timeline' ? null : keyboardIn(section);
    if (this.tab !== 'timeline') this.menu.leave(section);
    try {
      if (this.tab === 'timeline') this.timeline.draw();
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
    if (this.tab !== 'timeline') section.scrollTop = top;
    kept?.();
  }

  /* ------------------------------------------------------------ from one section to a place in another */

  /** The checks that failed, else the projection. */
  showChecks() {
    this.select('projection');
    const go = () => {
      const failed = find(this.sections.projection, '.ctxk-violations');
      if (!failed) return;
      this.sections.projection.scrollTop = 0;
      failed.focus({ preventScroll: true });
    };
    if (this.projection && this.blocks?.receipt !== this.projection.receipt) this.afterBlocks = go;
    go();
  }

  /** @param {string} id */
  showBlock(id) {
    this.select('projection');
    showBlock(this, id);
  }

  /** The row of a run in the timeline. @param {string} run */
  showRun(run) {
    this.select('timeline');
    if (!this.timeline.goTo(run))
      this.returning.tell(`${run} has no row here: it is on a branch that is folded.`);
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
    this.truncated = msg.shape ? 0 : (number(msg.timeline_truncated) ?? 0);
    const told = list(msg.statements);
    this.rows = new Map(stubsOf(msg.shape).map((row) => [keyOf(row), row]));
    this.full = new Map();
    this.indexes = [];
    for (const row of this.rows.size ? told : sorted(told)) this.put(row);
    this.takeReturning(msg);
    const known = new Set(this.deltas.map(deltaKey));
    // A reconnect to the same session must not lose the feed that this page has already seen.
    if (this.feedOf !== this.session) {
      this.deltas = [];
      known.clear();
      for (const one of this.timelines) one.reset();
      this.condensed.clear();
      this.blocks = null;
      this.blocksAsked = '';
      this.costs = null;
      this.grown = false;
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
      if (!this.rows.has(keyOf(running))) this.put({ ...running, status: 'running' });
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
    const was = this.head;
    if (this.head !== undefined) this.head = headOf(msg) ?? keyOf(s);
    const row = /** @type {AnyRow} */ ({ status: 'running', ...s });
    this.put(row);
    this.run(s, 0);
    this.grow(row, was);
    this.refresh('timeline');
    this.returning.began();
    this.drawHeader();
    this.live.textContent = `running ${label(s)}`;
  }

  /** @param {Partial<TurnMessage>} msg */
  turn(msg) {
    const row = dict(msg.statement);
    if (!row.statement_id) return;
    const was = this.head;
    this.head = headOf(msg) === undefined ? this.head : headOf(msg);
    // Names that changed between two cells make a statement of their own, before this one.
    if (msg.outside?.statement_id) {
      this.rows.delete(keyOf(row));
      this.put(msg.outside);
    }
    this.put(row);
    for (const one of list(msg.rows).map(dict)) this.amend(one);
    this.takeReturning(msg);
    if (row.moved) this.moves += 1;
    this.takeState(msg);
    this.addDeltas(list(msg.deltas));
    this.addNotices(msg.notices);
    if (
      !this.running ||
      this.running.statement_id === row.statement_id ||
      (number(row.index) ?? 0) >= (number(this.running.index) ?? 0)
    )
      this.run(null);
    if (msg.outside) this.grow();
    else this.grow(row, was);
    this.refresh(...TABS);
    this.drawHeader();
    this.drawBanners();
    this.returning.ended();
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
    this.refresh('timeline');
    this.returning.draw();
  }

  /** Keep a row with its content; of the oldest of too many only a stub stays. @param {AnyRow} row */
  put(row) {
    const key = keyOf(row);
    const index = number(row.index) ?? 0;
    if (!this.rows.has(key) && this.indexes.at(-1) !== index) {
      this.indexes.push(index);
      if (this.indexes.length > 50) this.indexes.shift();
    }
    this.rows.set(key, row);
    this.full.delete(key);
    this.full.set(key, row);
    if (this.full.size <= MAX_ROWS) return;
    for (const [old, one] of this.full) {
      this.full.delete(old);
      this.swap(old, stubOf(one));
      break;
    }
  }

  /** Put another content at the place of a row. @param {string} key @param {AnyRow} row */
  swap(key, row) {
    this.rows.set(key, row);
    const node = this.tree.nodes.get(key);
    if (node) node.row = row;
  }

  /** Change some fields of a row that is known. @param {AnyRow} fields */
  amend(fields) {
    const key = keyOf(fields);
    const row = this.full.get(key);
    if (!row) return;
    const now = { ...row, ...fields };
    this.full.set(key, now);
    this.swap(key, now);
  }

  /** Whether only the place of a row in the tree is known. @param {AnyRow} row */
  isStub(row) {
    return row.stub === true;
  }

  /**
   * Have the content of rows: those that are not here are asked for. Returns whether some came.
   * @param {readonly string[]} keys
   */
  async ensure(keys) {
    const missing = keys.filter((key) => this.rows.get(key)?.stub && !this.coming.has(key));
    let came = false;
    for (let at = 0; at < missing.length; at += ROWS_AT_ONCE) {
      const page = missing.slice(at, at + ROWS_AT_ONCE);
      for (const key of page) this.coming.add(key);
      const answer = await askKernel(this.actions.ask, 'rows', { runs: spansOf(page) });
      for (const key of page) this.coming.delete(key);
      const { session } = this;
      if (this.disposed || session !== this.session) return false;
      for (const row of 'rows' in answer ? list(answer.rows) : []) {
        if (!this.rows.get(keyOf(row))?.stub) continue;
        this.put(row);
        this.swap(keyOf(row), row);
        came = true;
      }
    }
    return came;
  }

  /** A row with its content, as far as the kernel gives it. @param {AnyRow} row @returns {Promise<AnyRow>} */
  async whole(row) {
    if (!row.stub) return row;
    await this.ensure([keyOf(row)]);
    return this.rows.get(keyOf(row)) ?? row;
  }

  /** Choose the first or the second of two states to compare. @param {AnyRow} row */
  compareFrom(row) {
    const first = this.comparing;
    if (!first || keyOf(first) === keyOf(row)) {
      this.comparing = first ? null : row;
      const text = `Compare ${label(row)} with …: choose another statement (C, or its menu).`;
      return this.returning.tell(first ? '' : text, { keep: true });
    }
    this.comparing = null;
    this.returning.tell('');
    return void openDifference(this, first, row);
  }

  /**
   * What snapshots and turns say of the state after the newest turn.
   * @param {Partial<SnapshotMessage> | Partial<TurnMessage>} msg
   */
  takeState(msg) {
    this.handles = list(msg.handles);
    this.projection = msg.projection ?? null;
    this.history = joined(this.history, msg.history);
    this.sent = msg.sent ?? this.sent;
    this.work = list(msg.work);
  }

  /**
   * Something of the model's waits for the user, or does not any more.
   * @param {Partial<Pick<ProposalMessage, 'proposal'>>} msg
   */
  proposed(msg) {
    const proposal = msg.proposal?.id ? msg.proposal : null;
    if (SAME.some((name) => proposal?.[name] !== this.proposal?.[name])) {
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

  /**
   * How a card stands: it can be decided on if it shows what waits. An id alone can stand in any saved output.
   * @param {Partial<Proposal> | null | undefined} proposal
   */
  stands(proposal) {
    const [now, known] = [this.proposal, this.sent !== null];
    const same = SAME.every((name) => now?.[name] === proposal?.[name]);
    const live = known ? Boolean(now) && same && this.phaseNow === null : null;
    return { live, busy: this.deciding || this.busy, told: live ? this.refused : '' };
  }

  drawCards() {
    this.waits.hidden = !this.card;
    this.card?.update(this.stands(this.proposal));
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

  /** A model works on an ask now, or does not any more. @param {Partial<Pick<AskingMessage, 'asking' | 'rows'>>} msg */
  asks(msg) {
    const asking = msg.asking?.ask ? msg.asking : null;
    const amended = list(msg.rows).map(dict);
    for (const one of amended) this.amend(one);
    if (amended.length) {
      this.grow();
      this.refresh('timeline');
    }
    const ago = Math.max(0, Date.now() - (number(asking?.since) ?? 0) * 1000);
    this.asking = asking && { model: clean(asking.model), since: performance.now() - ago };
    clearInterval(this.asker);
    if (asking) this.asker = setInterval(() => this.drawState(), 250);
    this.drawState();
  }

  /**
   * What snapshots and turns say of returning; a kernel without it says nothing.
   * @param {Partial<SnapshotMessage> | Partial<TurnMessage>} msg
   */
  takeReturning(msg) {
    this.storage = msg.storage ?? null;
    this.resume = msg.resume ?? null;
  }

  /**
   * Make the tree of the rows, and what follows from it; where only one row is new, at the cost of that one.
   * @param {AnyRow} [row]
   * @param {string | null} [was] where HEAD was
   */
  grow(row, was) {
    const { tree, head } = this;
    if (row && attach(tree, row, head)) {
      if (was !== head) prune(tree, was, head);
    } else this.tree = plant(this.rows.values(), head, true);
    this.compared = lastRerun(this.tree, this.headKnown);
  }

  /** HEAD as far as the rows can tell: kernels without branches have theirs at the newest row. */
  get headKnown() {
    return this.tellsParents ? this.head : undefined;
  }

  /** Whether rows say what they follow. */
  get tellsParents() {
    for (const row of this.rows.values()) if (row.parent_execution_id !== undefined) return true;
    return false;
  }

  /** The way to HEAD, oldest first. */
  get wayToHead() {
    const { tree, headKnown } = this;
    if (headKnown !== undefined) return pathTo(tree, headKnown);
    return tree.last ? pathTo(tree, tree.last.key) : [];
  }

  /** Whether this kernel can go back at all. */
  get canMove() {
    return this.storage !== null || [...this.full.values()].some((row) => row.checkpoint);
  }

  get busy() {
    return this.running !== null || this.status === 'busy' || this.phaseNow !== null || this.returning.rerunning;
  }

  /**
   * Do something with the row of a cell on the way to HEAD.
   * @param {string} cellId @param {(row: AnyRow) => void} job
   */
  async onRowOf(cellId, job) {
    const node = this.wayToHead.findLast(({ row }) => row.cell_id === cellId);
    if (node) await this.ensure([node.key]);
    if (node) job(this.rows.get(node.key) ?? node.row);
    else this.returning.tell('This cell was not run on the way to the present state.', { tone: 'warn' });
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
      // The next snapshot is of another process: its feed replaces this one.
      this.feedOf = undefined;
      // What ran has died with its kernel. The next start records it so; until then the panel must not say that it runs.
      for (const row of [...this.full.values()])
        if (row.status === 'running') this.amend({ ...row, status: 'cancelled' });
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
    for (const one of this.timelines) one.drawEmpty();
  }

  /** @param {string} text */
  title(text) {
    this.heading = clean(text);
    this.drawHeader();
  }

  hole() {
    const known = [...new Set(this.indexes)].sort((a, b) => a - b);
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

  /** @param {HTMLElement} host */
  wide(host) {
    const section = h('div', { class: 'ctxk-section ctxk-timeline' });
    const pane = h('div', { class: 'ctxk-pane', role: 'region', 'aria-label': 'Details of a statement', tabindex: '0' });
    const root = h('div', { class: 'ctxk ctxk-widetab' }, h('div', { class: 'ctxk-columns' }, section, pane));
    host.append(root);
    const timeline = new Timeline(this, section, { pane, menu: new Menu(root) });
    this.timelines.add(timeline);
    timeline.draw();
    return {
      shown: () => timeline.shown(),
      focus: () => timeline.focus(timeline.active ?? timeline.entries[timeline.entries.length - 1]?.key),
      dispose: () => {
        timeline.dispose();
        root.remove();
      }
    };
  }

  dispose() {
    this.disposed = true;
    clearInterval(this.ticker);
    clearInterval(this.asker);
    for (const one of [...this.timelines]) one.dispose();
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
    const isLong = this.running !== null && performance.now() - this.running.since > LONG_MS;
    if (this.stop) this.stop.hidden = !this.asking && !isLong;
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
    this.grown ||= Boolean(this.handles.length || this.sent || this.proposal || this.asking || (p && dict(p.report).ok === false));
    this.meter.hidden = !live || !this.grown;
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
      const n = number(report.count) ?? 0;
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
    this.drawWork();
    const counts = {
      timeline: this.tree.nodes.size + this.truncated,
      handles: this.handles.length,
      projection: number(p?.blocks) ?? 0,
      cost: 0,
      history: historySize(this.history),
      changes: this.deltas.length,
      rerun: this.compared.filter((row) => verdict(row.comparison).word === 'differs').length
    };
    for (const tab of TABS) this.counts[tab].textContent = counts[tab] ? count(counts[tab]) : '';
    this.tabs.history.hidden = !this.history && this.tab !== 'history';
    this.tabs.cost.hidden = !this.sent && this.tab !== 'cost';
    this.tabs.rerun.hidden = !this.compared.length && this.tab !== 'rerun';
    this.returning.draw();
  }

  /** What is prepared in the background, in one line above the storage line, which tells what is written. */
  drawWork() {
    const told = this.work.map(clean);
    this.workLine.hidden = !told.length;
    const text = told.length ? `In the background: ${told.join(' · ')}` : '';
    if (this.workLine.textContent !== text) this.workLine.textContent = text;
    this.workLine.title = told.join('\n');
  }

  drawBanners() {
    const out = [];
    const { hint } = this.actions;
    if (hint?.wanted() && this.sent !== null) out.push(firstHint(hint, () => this.drawBanners()));
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
    if (this.following) out.push(offerBox(this.following));
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
/**
 * The history as a message tells it, which may have only the entries that changed.
 * @param {History | null} known @param {History | undefined} told
 */
function joined(known, told) {
  if (!told?.change) return told ?? null;
  const entries = new Map([...list(known?.entries), ...list(told.entries)].map((one) => [one.id, one]));
  return { ...told, entries: [...entries.values()].slice(-MAX_ENTRIES) };
}

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

/** @param {Offer} offer */
function offerBox(offer) {
  return h(
    'div',
    { class: 'ctxk-banner ctxk-tone-info', 'data-banner': 'cells' },
    h('p', null, offer.text),
    h('button', { class: 'ctxk-link', type: 'button', onclick: offer.run }, offer.button)
  );
}

/** @param {string | null} session */
function shortName(session) {
  if (!session) return '';
  return (clean(session).split(/[\\/]/).pop() ?? '').replace(/\.sqlite$/, '');
}

export { PROTOCOL, View, mismatch, mount, makeCard };
