/**
 * The view of one notebook's session: takes the messages, and has the sections drawn that they change.
 *
 * Rule 1: a fault in one section never takes the others down.
 * Rule 2: only the visible section is drawn; the others are marked stale and drawn when they come to the front.
 */

import { openDifference } from './compare.js';
import { emptyState } from './components.js';
import { Decisions } from './decisions.js';
import { find, h, put } from './elements.js';
import { Frame } from './frame.js';
import { drawBanners, drawHeader, drawState, drawWork } from './header.js';
import { goToEntry } from './history.js';
import { LazySection } from './lazylist.js';
import { Menu } from './menu.js';
import { showBlock } from './projection.js';
import { Returning } from './returning.js';
import { STATUSES, keyOf, label, statusOf } from './rownames.js';
import { keyboardIn } from './keyboard.js';
import { DRAW, TABS } from './sections.js';
import { Session, deltaKey, headOf } from './session.js';
import { clean } from './text.js';
import { Sweeps } from './sweeps.js';
import { Timeline } from './timeline.js';
import { sorted, stubsOf } from './tree.js';
import { dict, list, number } from './values.js';

/** @import {CondensedEvents} from '../messages.js' */
/** @import {AskingMessage, BegunStatement, BeginMessage, CheckpointMessage, KernelMessage} from '../messages.js' */
/** @import {Costs, Price, ProjectionBlocks} from '../messages.js' */
/** @import {SnapshotMessage, TurnMessage} from '../messages.js' */
/** @import {Offer} from './cellversions.js' */
/** @import {Phase} from './phases.js' */
/** @import {Actions} from './render.js' */
/** @import {Tab} from './sections.js' */
/** @import {AnyRow} from './tree.js' */

/** Rows from which on a snapshot is drawn later than it is taken. */
const MANY_ROWS = 1000;
/** It stays when the next cell begins: a cell that has no run yet may wait for its turn. */
const NO_RUN =
  'This cell has not run on the way to the present state, so nothing was done. If it waits or runs now, try again when it has ended.';

class View extends Session {
  /** @param {HTMLElement} el @param {Actions} actions */
  constructor(el, actions) {
    super(actions);
    /** The first of two states that are to be compared. @type {AnyRow | null} */
    this.comparing = null;
    /** Drawn timelines: that of the panel, and that of a tab. @type {Set<Timeline>} */
    this.timelines = new Set();
    this.openHandles = /** @type {Set<string>} */ (new Set());
    this.openBlocks = /** @type {Set<string>} */ (new Set());
    /** Whether there was a handle or an ask: from then on tokens and price are shown. */
    this.grown = false;
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
    /** Folds that are open, by key. */
    this.openFolds = /** @type {Set<string>} */ (new Set());
    /** What the reader has typed into fields of a section, which is drawn anew with each turn. @type {Map<string, string>} */
    this.drafts = new Map();
    /** What condensations stand for, as far as it was asked for. @type {Map<string, Partial<CondensedEvents>>} */
    this.condensed = new Map();
    /** The two projections that are compared, and the newest question. */
    this.against = { old: '', new: '', asked: false, turn: {} };
    this.onlyDiffering = true;
    /** What the notebook's cells can be shown as. @type {Offer | null} */
    this.following = null;
    /** @type {(Partial<BegunStatement> & {since: number}) | null} */
    this.running = null;
    /** The ask that a model works on now. @type {{model: string, since: number} | null} */
    this.asking = null;
    this.status = 'unknown';
    /** @type {Phase | null} */
    this.phaseNow = null;
    this.heading = '';
    this.stale = /** @type {Set<Tab>} */ (new Set(TABS));
    /** @type {Tab} */
    this.tab = 'timeline';
    /** Timers that tell how long what runs, and the ask, has taken. @type {number | undefined} */
    this.ticker = undefined;
    /** @type {number | undefined} */
    this.asker = undefined;
    this.decisions = new Decisions(this);
    this.sweeps = new Sweeps(this);
    this.frame = new Frame(this);
    this.root = this.frame.root;
    this.id = this.frame.id;
    this.tabs = this.frame.tabs;
    this.sections = this.frame.sections;
    /** Sections whose items are made when they are near. */
    this.lazy = { projection: new LazySection(this.sections.projection), changes: new LazySection(this.sections.changes) };
    this.menu = new Menu(this.root);
    this.timeline = new Timeline(this, this.sections.timeline);
    this.timelines.add(this.timeline);
    this.returning = new Returning(this);
    el.append(this.root);
    this.select(TABS.find((tab) => tab === actions.tab) ?? 'timeline', false);
    this.drawHeader();
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
        const lazy = this.tab in this.lazy ? this.lazy[/** @type {keyof View['lazy']} */ (this.tab)] : null;
        lazy?.remember();
        const made = DRAW[this.tab](this);
        section.replaceChildren();
        put(section, made);
        lazy?.restore();
      }
    } catch (error) {
      console.error('ctxkernel panel', error);
      section.replaceChildren(
        emptyState('This part could not be drawn', `${error}. Reconnect, or report it with this text.`)
      );
    }
    if (this.tab !== 'timeline') section.scrollTop = top;
    if (this.tab in this.lazy) this.lazy[/** @type {keyof View['lazy']} */ (this.tab)].makeNear();
    kept?.();
  }

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

  /** @param {Partial<KernelMessage> | null | undefined} msg */
  message(msg) {
    switch (msg?.type) {
      case 'snapshot':
        return this.snapshot(msg);
      case 'begin':
        return this.begin(msg);
      case 'turn':
        this.decisions.refused = '';
        return this.turn(msg);
      case 'checkpoint':
        return this.checkpoint(msg);
      case 'proposal':
        return this.decisions.take(msg);
      case 'asking':
        return this.asks(msg);
      case 'sweeping':
        return this.sweeps.take(msg);
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
    this.startWith(stubsOf(msg.shape));
    for (const row of this.rows.size ? told : sorted(told)) this.keep(row);
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
      this.sweeps.forget();
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
    this.decisions.take(msg);
    this.asks(msg);
    // What `begin` says of the running statement: it has no row of its own yet.
    const { running } = msg;
    this.run(null);
    if (running?.statement_id) {
      if (!this.rows.has(keyOf(running))) this.keep({ ...running, status: 'running' });
      // Started before this page knew of it: only the kernel's clock can tell how long ago.
      const started = number(running.started_at);
      this.run(running, started === null ? 0 : Math.max(0, Date.now() - started * 1000));
    }
    this.grow();
    // Of a long session in a task of its own: to take the rows is work enough for this one.
    if (this.rows.size > MANY_ROWS) setTimeout(() => this.disposed || this.refresh(...TABS), 0);
    else this.refresh(...TABS);
    this.drawHeader();
    this.drawBanners();
    if (msg.sweeps) void this.sweeps.ask();
  }

  /** @param {Partial<BeginMessage>} msg */
  begin(msg) {
    const s = dict(msg.statement);
    if (!s.statement_id) return;
    const was = this.head;
    if (this.head !== undefined) this.head = headOf(msg) ?? keyOf(s);
    const row = /** @type {AnyRow} */ ({ status: 'running', ...s });
    this.keep(row);
    this.run(s, 0);
    this.grow(row, was);
    this.refresh('timeline');
    this.returning.began();
    this.drawHeader();
    this.frame.live.textContent = `running ${label(s)}`;
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
      this.keep(msg.outside);
    }
    this.keep(row);
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
    this.frame.live.textContent = `${label(row)} ${STATUSES[statusOf(row)][1]}${moved || ''}`;
    this.afterPaint(() =>
      this.actions.painted?.({ statement_id: String(row.statement_id), ended_at: number(row.ended_at) })
    );
  }

  /**
   * A checkpoint became durable, or what is stored changed, after its turn was told.
   * @param {Partial<CheckpointMessage>} msg
   */
  checkpoint(msg) {
    const { execution_id, checkpoint, diff } = msg;
    if (execution_id) this.amend({ execution_id, checkpoint, ...(diff ? { diff } : {}) });
    if (msg.storage !== undefined) this.storage = msg.storage;
    if (msg.work !== undefined) this.work = list(msg.work);
    drawWork(this);
    this.refresh('timeline');
    this.returning.draw();
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

  /** A model works on an ask now, or does not any more. @param {Partial<Pick<AskingMessage, 'asking' | 'sent' | 'rows'>>} msg */
  asks(msg) {
    this.sent = msg.sent ?? this.sent;
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
    this.drawHeader();
  }

  get busy() {
    return this.running !== null || this.status === 'busy' || this.phaseNow !== null || this.returning.reruns.running;
  }

  /** The newest run of a cell on the way to HEAD. Null: there is none, and a message says so. @param {string} cellId */
  nodeOfCell(cellId) {
    const node = this.wayToHead.findLast(({ row }) => row.cell_id === cellId);
    if (!node) this.returning.tell(NO_RUN, { tone: 'warn', keep: true });
    return node ?? null;
  }

  /**
   * Do something with the row of a cell on the way to HEAD. Returns what that returns; false: the cell has no row there.
   * @template T
   * @param {string} cellId @param {(row: AnyRow) => T | Promise<T>} job
   * @returns {Promise<T | false>}
   */
  async onRowOf(cellId, job) {
    const node = this.nodeOfCell(cellId);
    if (!node) return false;
    await this.ensure([node.key]);
    return job(this.rows.get(node.key) ?? node.row);
  }

  /** @param {string} status */
  kernelStatus(status) {
    this.status = String(status ?? 'unknown');
    if (['restarting', 'autorestarting', 'dead', 'terminating'].includes(this.status)) {
      if (this.running) this.frame.live.textContent = `${label(this.running)} was cancelled: its kernel ended`;
      this.run(null);
      this.asks({});
      this.decisions.take({});
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
    this.decisions.draw();
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
    for (const one of [...this.timelines, ...Object.values(this.lazy)]) one.dispose();
    this.menu.close(false);
    this.root.remove();
  }

  /** @param {Partial<BegunStatement> | null} statement @param {number} [ago] */
  run(statement, ago = 0) {
    clearInterval(this.ticker);
    this.running = statement && { ...statement, since: performance.now() - ago };
    if (statement) this.ticker = setInterval(() => this.drawState(), 250);
    // The kernel's `idle` and the turn come in either order.
    this.busyChanged();
  }

  drawState() {
    drawState(this);
  }

  drawHeader() {
    drawHeader(this);
  }

  drawBanners() {
    drawBanners(this);
  }
}

export { View };
