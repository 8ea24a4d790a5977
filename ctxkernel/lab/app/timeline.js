/**
 * The section Timeline: one line a run on the way to HEAD, what lies ahead of it, and the branches beside it.
 *
 * Rule 1: only rows that are seen are in the page. A row is made again only when its content changed.
 * Rule 2: the tree of all runs is known; content of old rows is asked for when they are scrolled to.
 * Rule 3: the list is one tab stop. Arrow keys move in it; what a button of a row does, a key does too.
 */

import { emptyState } from './components.js';
import { fillDetails } from './details.js';
import { atBottom, find, flash, h } from './elements.js';
import { EntryElements, lanes } from './entryelements.js';
import { phaseBox } from './header.js';
import { keyOf, label } from './rownames.js';
import { FILTERS, SearchBar } from './search.js';
import { HELP, pressKey } from './timelinekeys.js';
import { extend, laidOut, layOut } from './tree.js';
import { count } from './values.js';

/** @import {EntryOf} from './entryelements.js' */
/** @import {Menu} from './menu.js' */
/** @import {View} from './view.js' */
/** @import {AnyRow, Entry, Laid} from './tree.js' */

/** Height of a line, in pixels; timeline.css has it too. */
const LINE = 25;
/** Height of the line `here` before it was measured. */
const HERE = 62;
/** Pixels above and below what is seen where rows are in the page, too. */
const MARGIN = 200;
/** Most rows that are made at once: more of them would hold up the page. */
const ROWS_AT_ONCE = 16;
/** Rows without content are asked for when scrolling has paused this long. */
const PAUSE_MS = 60;
/** Depths of branches that have a lane of their own. */
const LANES = 4;
/**
 * What is drawn of an entry, and all that it was made of.
 * @typedef {{el: HTMLElement, sign: AnyRow | string, spent: string | undefined, kind: Entry['kind'], stand: string}} Item
 */

class Timeline {
  /**
   * @param {View} view what it draws: rows, head, actions
   * @param {HTMLElement} section what scrolls
   * @param {{pane?: HTMLElement, menu?: Menu}} [parts] where details stand, if not below their row; the menu of rows
   */
  constructor(view, section, { pane, menu } = {}) {
    this.view = view;
    this.section = section;
    this.pane = pane;
    this.menu = menu;
    /** What is drawn, by the key of its entry. @type {Map<string, Item>} */
    this.items = new Map();
    /** Heights of entries that are not one line, by key. @type {Map<string, number>} */
    this.heights = new Map();
    /** Executions whose details are open, and folds; by key, so that a redraw keeps them open. */
    this.open = /** @type {Set<string>} */ (new Set());
    /** @type {Entry[]} */
    this.entries = [];
    /** Top of each entry, and the end of the last one. @type {number[]} */
    this.tops = [0];
    /** What the entries were laid out of; null: they are laid out anew. @type {Laid | null} */
    this.laid = null;
    /** The place of `here` in the entries; -1: HEAD is at the end. */
    this.hereAt = -1;
    /** The entry that the keyboard is on. @type {string | null} */
    this.active = null;
    this.stuck = true;
    this.unseen = 0;
    /** The moves of HEAD that were drawn. */
    this.moves = 0;
    /** The reader opens or closes a fold. */
    this.flipping = false;
    /** Rows that may still be made in this frame. */
    this.room = 0;
    /** The list holds the keyboard for a row that was scrolled away. */
    this.parked = false;
    this.frame = 0;
    /** @type {number | undefined} */
    this.pause = undefined;
    /** The height of the section when its rows were last placed. */
    this.seenHeight = 0;
    this.elements = new EntryElements(this);
    this.bar = new SearchBar(view, () => this.draw());
    this.ol = h('div', { class: 'ctxk-rows', role: 'treegrid', 'aria-label': 'Statements', 'aria-description': HELP });
    this.empty = h('div', { class: 'ctxk-empty' });
    this.newest = h('button', { class: 'ctxk-newest', type: 'button', hidden: true, onclick: () => this.toBottom() });
    section.removeAttribute('tabindex');
    section.append(this.bar.el, this.empty, this.ol, this.newest);
    section.addEventListener(
      'scroll',
      () => {
        // A notice that opens below makes the section lower before a scroll of ours is told: `shown` scrolls again then.
        const isLower = this.stuck && section.clientHeight < this.seenHeight;
        this.stuck = isLower || atBottom(section);
        if (this.stuck) this.seen();
        this.frame ||= requestAnimationFrame(() => this.place());
      },
      { passive: true }
    );
    this.ol.addEventListener('keydown', (event) => pressKey(this, event));
    this.ol.addEventListener('focusin', ({ target }) => this.focused(target));
    // The section may grow, or come to the front.
    this.resize = new ResizeObserver(() => this.shown());
    this.resize.observe(section);
  }

  dispose() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.pause);
    this.resize.disconnect();
    this.view.timelines.delete(this);
  }

  /** Lines that a page of the keyboard moves by. */
  get pageSize() {
    return Math.max(1, Math.floor(this.section.clientHeight / LINE) - 2);
  }

  get inFront() {
    return this.section.clientHeight > 0;
  }

  shown() {
    if (!this.inFront) return;
    this.seenHeight = this.section.clientHeight;
    this.place();
    if (this.stuck && this.section.scrollTop !== this.section.scrollHeight - this.section.clientHeight) {
      this.section.scrollTop = this.section.scrollHeight;
      this.place();
    }
  }

  seen() {
    this.unseen = 0;
    this.newest.hidden = true;
  }

  toBottom() {
    this.stuck = true;
    this.shown();
    this.seen();
  }

  /** All is new: another session, or the first. */
  reset() {
    this.items.clear();
    this.ol.replaceChildren();
    this.heights.clear();
    this.entries = [];
    this.laid = null;
    this.active = null;
    this.stuck = true;
    this.bar.clear();
    this.seen();
  }

  /** Draw what changed. Where HEAD has moved, the reader's eyes go with it. */
  draw() {
    const { view } = this;
    const moved = this.moves !== view.moves;
    this.moves = view.moves;
    const before = this.entries.length;
    const was = this.hereAt >= 0;
    this.layOut();
    const here = this.hereAt;
    // Out of the past again: what comes now is followed.
    if (moved || (was && here < 0)) this.stuck = true;
    // Only rows that came by themselves: not those of a fold that the reader opened.
    const added = this.flipping || this.bar.found ? 0 : this.entries.length - before;
    if (before && added > 0 && !this.stuck && !atBottom(this.section)) {
      this.unseen += added;
      this.newest.hidden = false;
      this.newest.textContent = `${count(this.unseen)} new ↓`;
    }
    this.drawEmpty();
    if (here >= 0 && (moved || !before)) this.lookAt('here');
    this.shown();
    if (this.stuck) this.seen();
    this.drawPane();
  }

  /** Have the entries up to date: a turn that only goes on adds one. */
  layOut() {
    const { tree, headKnown } = this.view;
    if (!this.bar.found && extend(this.entries, this.laid, tree, headKnown)) return this.measure(this.tops.length - 1);
    this.laid = this.bar.found ? null : laidOut(tree, headKnown);
    this.entries = this.bar.found ? this.bar.entries(this.view) : layOut(tree, headKnown, (key) => this.open.has(key));
    this.hereAt = this.entries.findIndex((entry) => entry.kind === 'here');
    this.measure();
  }

  /* ------------------------------------------------------------ what is seen */

  /** Compute where each entry stands, from one on. @param {number} [from] */
  measure(from = 0) {
    const tops = from ? this.tops : [0];
    for (const entry of from ? this.entries.slice(from) : this.entries)
      tops.push(tops[tops.length - 1] + (this.heights.get(entry.key) ?? (entry.kind === 'here' ? HERE : LINE)));
    this.tops = tops;
    this.ol.setAttribute('aria-rowcount', String(this.entries.length));
  }

  /** The index of the entry at a height. @param {number} y */
  at(y) {
    let [low, high] = [0, this.entries.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Put the rows that are seen into the page, in order, with as few changes as can be. */
  place() {
    this.frame = 0;
    if (this.view.disposed || !this.inFront) return;
    const height = this.section.clientHeight;
    // The list may have become shorter than the place that was scrolled to.
    const top = Math.min(this.section.scrollTop - this.ol.offsetTop, this.tops[this.entries.length] - height);
    const first = this.at(Math.max(0, top - MARGIN));
    const end = Math.min(this.entries.length, this.at(top + height + MARGIN) + 1);
    this.room = ROWS_AT_ONCE;
    const wanted = this.entries.slice(first, end).map((entry, i) => this.item(entry, first + i));
    const keep = new Set(wanted);
    const had = this.ol.contains(document.activeElement);
    for (const [key, item] of this.items) {
      if (keep.has(item.el)) continue;
      item.el.remove();
      this.items.delete(key);
    }
    let at = this.ol.firstChild;
    for (const el of wanted) {
      if (el === at) at = el.nextSibling;
      else this.ol.insertBefore(el, at);
    }
    this.pad(first, end);
    this.tabStop(had && !this.ol.contains(document.activeElement));
    if (this.remeasured()) {
      this.pad(first, end);
      this.frame ||= requestAnimationFrame(() => this.place()); // a row that was closed leaves room for others
    }
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.fill(first, end), PAUSE_MS);
  }

  /** Leave room for the rows that are not in the page. @param {number} first @param {number} end */
  pad(first, end) {
    this.ol.style.paddingTop = `${this.tops[first] ?? 0}px`;
    this.ol.style.paddingBottom = `${this.tops[this.entries.length] - (this.tops[end] ?? 0)}px`;
  }

  /** Note the heights of entries that are not one line; false: none has changed. */
  remeasured() {
    let changed = false;
    for (const [key, { el, kind }] of this.items) {
      const loose = kind === 'here' || 'loose' in el.dataset;
      if (!loose && !this.heights.has(key)) continue;
      const height = el.offsetHeight;
      if ((this.heights.get(key) ?? LINE) === height) continue;
      if (height === LINE) this.heights.delete(key);
      else this.heights.set(key, height);
      changed = true;
    }
    if (changed) this.measure();
    return changed;
  }

  /** Ask for the content of rows that are seen and have none. @param {number} first @param {number} end */
  fill(first, end) {
    if (this.view.disposed) return;
    /** @type {string[]} */
    const missing = [];
    for (const entry of this.entries.slice(Math.max(0, first - 60), end + 60))
      if (entry.kind === 'row' && this.view.isStub(entry.row)) missing.push(entry.key);
    if (missing.length) void this.view.ensure(missing).then((came) => came && this.draw());
  }

  /** The entry that the tab key leads to: the last one, where the one that had the keyboard is not in the list. */
  get stopKey() {
    const { active, entries } = this;
    const known = active !== null && entries.some((entry) => entry.key === active);
    return known ? active : entries[entries.length - 1]?.key;
  }

  /** Give the list its one tab stop. @param {boolean} focus the row that had the keyboard has gone */
  tabStop(focus) {
    const item = this.items.get(this.active ?? '');
    const stop = item ?? this.items.get(this.stopKey ?? '');
    for (const one of this.items.values()) {
      const on = one === stop ? '0' : '-1';
      if (one.el.getAttribute('tabindex') !== on) one.el.setAttribute('tabindex', on);
    }
    // The row of the keyboard is scrolled away: the list itself has the stop.
    this.ol.tabIndex = stop || !this.entries.length ? -1 : 0;
    if (!focus) return;
    this.parked = !item;
    (item?.el ?? this.ol).focus({ preventScroll: true });
    this.parked = false;
  }

  /** Bring an entry into the middle of what is seen. @param {string} key */
  lookAt(key) {
    const index = this.entries.findIndex((entry) => entry.key === key);
    if (index < 0 || !this.inFront) return;
    this.stuck = false;
    const middle = (this.tops[index] + this.tops[index + 1]) / 2;
    // What is to be scrolled to must have its room first.
    this.pad(0, 0);
    this.section.scrollTop = this.ol.offsetTop + middle - this.section.clientHeight / 2;
    this.place();
    this.stuck = atBottom(this.section);
  }

  /**
   * Show the row of a run, or of a statement's run on the way to HEAD, and put the keyboard there. False: there is none.
   * @param {string} run
   */
  goTo(run) {
    /** @param {Entry} entry */
    const is = (entry) => entry.kind === 'row' && (entry.key === run || entry.row.statement_id === run);
    if (this.bar.found && !this.entries.some(is)) {
      this.bar.clear();
      this.draw();
    }
    const index = this.entries.findLastIndex(is);
    if (index < 0 || !this.inFront) return false;
    const { key } = this.entries[index];
    this.lookAt(key);
    this.focus(key);
    const el = this.items.get(key)?.el;
    if (el) flash(el);
    return Boolean(el);
  }

  drawEmpty() {
    const { view } = this;
    this.empty.hidden = view.rows.size > 0 && !this.bar.isVain;
    this.bar.el.hidden = !view.rows.size;
    if (this.bar.isVain) this.empty.replaceChildren(emptyState('No statement was found', FILTERS));
    if (view.rows.size) return;
    if (view.phaseNow) this.empty.replaceChildren(phaseBox(view, view.phaseNow, 'ctxk-phase'));
    else if (view.sent === null) this.empty.replaceChildren(emptyState('Connecting to the kernel…'));
    else
      this.empty.replaceChildren(
        view.resume?.statements
          ? emptyState(
              'No cell has run in this kernel yet',
              'The statements of the earlier session are kept: “Resume” goes on with them. Or run a cell to start afresh.'
            )
          : emptyState('No cell has run yet', 'Run a cell with Shift+Enter: it appears here with what it changed.')
      );
  }

  /* ------------------------------------------------------------ the keyboard */

  /** A row got the keyboard, or something in it. @param {EventTarget | null} target */
  focused(target) {
    if (target === this.ol) {
      if (this.parked) return;
      const key = this.stopKey;
      if (key && !this.items.has(key)) this.lookAt(key);
      this.focus(key);
      return;
    }
    const row = target instanceof Element ? target.closest('[role=row]') : null;
    for (const [key, item] of this.items) if (item.el === row) this.active = key;
    this.tabStop(false);
    this.drawPane();
  }

  /** Put the keyboard on an entry, where it can be seen. @param {string | undefined} key */
  focus(key) {
    const index = this.entries.findIndex((entry) => entry.key === key);
    if (index < 0 || key === undefined) return;
    this.active = key;
    const { section } = this;
    const [from, to] = [this.ol.offsetTop + this.tops[index], this.ol.offsetTop + this.tops[index + 1]];
    const bar = this.bar.el.offsetHeight;
    if (from < section.scrollTop + bar) section.scrollTop = from - bar;
    else if (to > section.scrollTop + section.clientHeight)
      section.scrollTop = Math.min(from - bar, to - section.clientHeight);
    this.place();
    this.items.get(key)?.el.focus({ preventScroll: true });
  }

  /* ------------------------------------------------------------ entries */

  /** The element of an entry: the one that is there where it shows the same, else a new one. @param {Entry} entry @param {number} index */
  item(entry, index) {
    const old = this.items.get(entry.key);
    const sign = entry.kind === 'row' ? entry.row : JSON.stringify(this.elements.sign(entry));
    const spent = this.elements.spentOn(entry.key); // grows with each response, while the row of the ask stays
    let item = old;
    if (!item || item.sign !== sign || item.spent !== spent || item.kind !== entry.kind) {
      if (entry.kind === 'row' && !this.view.isStub(entry.row) && this.room-- <= 0) return this.later(entry, index);
      item = { el: this.elements.made(entry), sign, spent, kind: entry.kind, stand: '' };
      if (old?.el.isConnected) {
        // A keyboard that was in the old one goes on in the new one.
        const at = document.activeElement;
        const had = at instanceof HTMLElement && old.el.contains(at);
        const part = had ? at.dataset.part : null;
        old.el.replaceWith(item.el);
        item.el.tabIndex = -1;
        if (had) (part ? find(item.el, `[data-part=${part}]`) : item.el)?.focus({ preventScroll: true });
      }
      this.items.set(entry.key, item);
    }
    return this.placeRow(item, entry, index);
  }

  /** What stands for a row until the next frame. @param {EntryOf<'row'>} entry @param {number} index */
  later(entry, index) {
    this.frame ||= requestAnimationFrame(() => this.place());
    const old = this.items.get(entry.key);
    if (old) return old.el;
    const item = { el: this.elements.stub(entry), sign: '', spent: '', kind: entry.kind, stand: '' };
    this.items.set(entry.key, item);
    return this.placeRow(item, entry, index);
  }

  /** Bring what depends on its place in the list up to date. @param {Item} item @param {Entry} entry @param {number} index */
  placeRow(item, entry, index) {
    const { el } = item;
    const depth = Math.min('depth' in entry ? entry.depth : 0, LANES);
    // Touched only where it changed: each touch of an attribute costs the page a look at the styles of that row.
    const stand = entry.kind === 'row' ? `${index}|${entry.place}|${entry.head}|${depth}` : `${index}|${depth}`;
    if (item.stand === stand) return el;
    item.stand = stand;
    el.setAttribute('aria-rowindex', String(index + 1));
    el.setAttribute('aria-level', String(depth + 1));
    if (entry.kind === 'row') {
      el.classList.toggle('ctxk-off', entry.place !== 'path');
      el.dataset.place = entry.place;
      if (entry.head) el.setAttribute('aria-current', 'step');
      else el.removeAttribute('aria-current');
    }
    el.style.setProperty('--depth', String(depth));
    find(el, '.ctxk-lanes')?.replaceChildren(...lanes(entry, depth));
    return el;
  }

  /** @param {string} key */
  flip(key) {
    if (this.open.has(key)) this.open.delete(key);
    else this.open.add(key);
    this.stuck = false;
    this.flipping = true;
    this.laid = null;
    this.draw();
    this.flipping = false;
  }

  /* ------------------------------------------------------------ details beside the list */

  /** Show the details of a run beside the list. @param {string} key */
  select(key) {
    this.active = key;
    this.drawPane();
    find(this.pane ?? this.section, '[tabindex]')?.focus();
  }

  /** Draw the details of the row that the keyboard is on, or of the newest. */
  drawPane() {
    const { pane } = this;
    if (!pane) return;
    const key = this.active ?? keyOf(this.view.wayToHead.at(-1)?.row);
    const row = this.view.rows.get(key);
    if (!row || pane.dataset.sign === `${key}|${row.status}`) return;
    if (this.view.isStub(row)) return void this.view.ensure([key]).then((came) => came && this.drawPane());
    pane.dataset.sign = `${key}|${row.status}`;
    for (const { el } of this.items.values()) el.classList.toggle('ctxk-chosen', el.dataset.execution === key);
    const body = h('div', { class: 'ctxk-details' });
    pane.replaceChildren(h('h3', { class: 'ctxk-sheettitle' }, `Statement ${label(row)}`), body);
    fillDetails(body, row, this.view.actions, () => {});
  }
}

export { Timeline };
