/**
 * The section Timeline: one row a run on the way to HEAD, what lies ahead of it, and the branches beside it.
 *
 * Rule 1: a row is made again only when what it shows changed; all else of a draw is putting made rows in their places.
 * Rule 2: the newest rows are drawn at once, older ones in idle time, so that a long session opens as fast as a short one.
 */

import {
  AUTHORS,
  STATUSES,
  atBottom,
  bringToMiddle,
  bytes,
  cancelIdle,
  clean,
  clock,
  count,
  dict,
  duration,
  emptyState,
  find,
  flash,
  h,
  headline,
  icon,
  keyOf,
  label,
  list,
  number,
  plural,
  spentTold,
  statusOf,
  whenIdle
} from './base.js';
import { chips, fillDetails, isResponse } from './details.js';
import { layOut, unseen } from './tree.js';

/** @import {Checkpoint, Comparison, Divergence} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {Icon} from './base.js' */
/** @import {View} from './render.js' */
/** @import {AnyRow, Branch, Entry} from './tree.js' */

const FIRST_ROWS = 60;
const ROWS_A_STEP = 120;
/** A copy that is on its way to the disk is told with its size from here on. */
const LARGE_BYTES = 1e6;

/** How a checkpoint's mark looks and what it means. @type {Record<string, [Icon, string]>} */
const CHECKPOINTS = {
  durable: ['durable', 'can be returned to, also after the kernel has ended'],
  partial: ['partial', 'can be returned to, but for what is named here'],
  writing: ['writing', 'is on its way to the disk; until then it ends with the kernel'],
  skipped: ['skipped', 'was not taken'],
  thinned: ['thinned', 'its large data were given up for space'],
  damaged: ['damaged', 'its data are gone or changed']
};

/**
 * The mark of a checkpoint and what to say of it, line by line; null where there is none.
 * @param {Partial<Checkpoint> | null | undefined} checkpoint
 */
function checkpointTold(checkpoint) {
  if (!checkpoint || typeof checkpoint !== 'object') return null;
  const missing = Object.entries(dict(checkpoint.missing));
  const state = checkpoint.state === 'durable' && missing.length ? 'partial' : String(checkpoint.state ?? 'unknown');
  /** @type {[Icon, string]} */
  const [mark, meaning] = CHECKPOINTS[state] ?? ['skipped', state];
  const size = number(checkpoint.bytes_new);
  const cost = [size ? `${bytes(size)} new` : 'nothing new to store', duration(checkpoint.time_ms)].filter(Boolean);
  return {
    mark,
    lines: [
      `State after it: ${meaning}`,
      checkpoint.reason,
      ...missing.slice(0, 8).map(([name, why]) => `not stored: ${name} (${why})`),
      missing.length > 8 && `and ${missing.length - 8} more`,
      mark === 'skipped' || cost.join(' · ')
    ].flatMap((line) => (typeof line === 'string' && line ? [line] : []))
  };
}

/**
 * What a comparison came to: `same`, `differs` or `expected`, and the glyph for it.
 * @param {Partial<Comparison> | null | undefined} comparison
 * @returns {{word: 'same' | 'differs' | 'expected', glyph: string, found: Partial<Divergence>[]}}
 */
function verdict(comparison) {
  const found = list(comparison?.divergences)
    .map((one) => dict(one))
    .filter((one) => one.kind !== 'timing');
  const same = typeof comparison?.same === 'boolean' ? comparison.same : !found.length;
  if (same) return { word: 'same', glyph: '=', found };
  return comparison?.expected ? { word: 'expected', glyph: '≈', found } : { word: 'differs', glyph: '≠', found };
}

/**
 * What is drawn of an entry, and all that it was made of.
 * @typedef {{el: HTMLElement, sign: AnyRow | string, spent: string | undefined, kind: Entry['kind'], stand: string}} Item
 */

/**
 * @template {Entry['kind']} Kind
 * @typedef {Extract<Entry, {kind: Kind}>} EntryOf
 */

class Timeline {
  /** @param {View} view what it draws: rows, head, actions @param {HTMLElement} section */
  constructor(view, section) {
    this.view = view;
    this.section = section;
    /** What is drawn, by the key of its entry. @type {Map<string, Item>} */
    this.items = new Map();
    /** Executions whose details are open, and folds; by key, so that a redraw keeps them open. */
    this.open = /** @type {Set<string>} */ (new Set());
    /** @type {Entry[]} */
    this.entries = [];
    /** What asks have cost, as it is told; by the ask's run. @type {Map<string, string>} */
    this.spent = new Map();
    /** Index of the first entry that is drawn. */
    this.first = 0;
    this.stuck = true;
    this.unseen = 0;
    /** The reader opens or closes a fold. */
    this.flipping = false;
    /** @type {number | undefined} */
    this.idle = undefined;
    this.older = h('p', { class: 'ctxk-hint', hidden: true });
    this.ol = h('ol', { class: 'ctxk-rows' });
    this.empty = h('div', { class: 'ctxk-empty' });
    this.newest = h('button', { class: 'ctxk-newest', type: 'button', hidden: true, onclick: () => this.toBottom() });
    section.append(this.older, this.empty, this.ol, this.newest);
    section.addEventListener(
      'scroll',
      () => {
        this.stuck = atBottom(section);
        if (this.stuck) this.seen();
      },
      { passive: true }
    );
    // Rows off the screen have estimated heights (content-visibility). As real ones replace them the list grows
    // without a scroll event, so "at the bottom" has to be held, not only set once.
    this.resize = new ResizeObserver(() => this.shown());
    this.resize.observe(this.ol);
  }

  dispose() {
    cancelIdle(this.idle);
    this.resize.disconnect();
  }

  get inFront() {
    return this.view.tab === 'timeline';
  }

  shown() {
    if (this.stuck && this.inFront) this.section.scrollTop = this.section.scrollHeight;
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
    this.entries = [];
    this.first = 0;
    this.stuck = true;
    this.seen();
  }

  /** Draw what changed. `moved`: HEAD went elsewhere, so the reader's eyes go with it. */
  draw(moved = false) {
    const { view } = this;
    const before = this.entries.length;
    const was = this.entries.some((entry) => entry.kind === 'here');
    this.entries = layOut(view.tree, view.headKnown, (key) => this.open.has(key));
    this.spent = spentByAsk(view.rows);
    const here = this.entries.findIndex((entry) => entry.kind === 'here');
    // Out of the past again: what comes now is followed.
    if (moved || (was && here < 0)) this.toBottom();
    if (!before || moved) {
      const bottom = this.entries.length - FIRST_ROWS;
      const shown = before ? this.first : Infinity;
      this.first = Math.max(0, Math.min(bottom, here < 0 ? bottom : here - FIRST_ROWS / 2, shown));
    }
    this.first = Math.min(this.first, this.entries.length);
    this.place();
    // Only rows that came by themselves: not those of a fold that the reader opened.
    const added = this.flipping ? 0 : this.entries.length - before;
    if (before && added > 0 && !this.stuck && !atBottom(this.section)) {
      this.unseen += added;
      this.newest.hidden = false;
      this.newest.textContent = `${count(this.unseen)} new ↓`;
    }
    const missed = unseen(view.tree, view.branches).length;
    this.older.hidden = !view.truncated && !missed;
    this.older.textContent = [
      view.truncated ? `${plural(view.truncated, 'older statement')} in the session: %ctx timeline shows them.` : '',
      missed ? `${plural(missed, 'older branch', 'older branches')}: %ctx branches.` : ''
    ].join(' ');
    this.drawEmpty();
    if (here >= 0 && (moved || !before)) this.lookAt('here');
    else this.shown();
    this.drawMore();
  }

  /** Bring an entry into the middle of what is seen. @param {string} key */
  lookAt(key) {
    const item = this.items.get(key);
    if (!item || !this.inFront) return;
    this.stuck = false;
    bringToMiddle(this.section, item.el);
  }

  /**
   * Show the row of a run, or of a statement's run on the way to HEAD, and put the keyboard there. False: there is none.
   * @param {string} run
   */
  goTo(run) {
    /** @param {Entry} entry */
    const is = (entry) => entry.kind === 'row' && (entry.key === run || entry.row.statement_id === run);
    const index = this.entries.findLastIndex(is);
    if (index < 0 || !this.inFront) return false;
    const { key } = this.entries[index];
    if (index < this.first) {
      this.first = Math.max(0, index - FIRST_ROWS / 2);
      this.place();
    }
    this.lookAt(key);
    const el = this.items.get(key)?.el;
    if (!el) return false;
    find(el, '[data-part=go]')?.focus({ preventScroll: true });
    flash(el);
    // Rows that come into view get their real heights.
    requestAnimationFrame(() => this.lookAt(key));
    return true;
  }

  /** Put the drawn entries into the list, in order, with as few changes as can be. */
  place() {
    const wanted = this.entries.slice(this.first).map((entry) => this.item(entry));
    const keep = new Set(wanted);
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
  }

  /** Add the older rows above, some at a time. The place that the reader looks at stays where it is. */
  drawMore() {
    cancelIdle(this.idle);
    if (!this.first) return;
    this.idle = whenIdle(() => {
      if (this.view.disposed) return;
      const fromBottom = this.section.scrollHeight - this.section.scrollTop;
      this.first = Math.max(0, this.first - ROWS_A_STEP);
      this.place();
      this.section.scrollTop = this.section.scrollHeight - fromBottom;
      this.drawMore();
    });
  }

  drawEmpty() {
    const { view } = this;
    this.empty.hidden = view.rows.size > 0;
    if (view.rows.size) return;
    if (view.phaseNow) this.empty.replaceChildren(view.phaseBox(view.phaseNow, 'ctxk-phase'));
    else if (view.sent === null) this.empty.replaceChildren(emptyState('Connecting to the kernel…'));
    else
      this.empty.replaceChildren(
        emptyState('No cell has run yet', 'Run a cell with Shift+Enter: it appears here with what it changed.')
      );
  }

  /* ------------------------------------------------------------ entries */

  /** The element of an entry: the one that is there where it shows the same, else a new one. @param {Entry} entry */
  item(entry) {
    const old = this.items.get(entry.key);
    const sign = entry.kind === 'row' ? entry.row : JSON.stringify(this.sign(entry));
    const spent = this.spent.get(entry.key); // grows with each response, while the row of the ask stays
    let item = old;
    if (!item || item.sign !== sign || item.spent !== spent || item.kind !== entry.kind) {
      item = { el: this.made(entry), sign, spent, kind: entry.kind, stand: '' };
      if (old?.el.isConnected) {
        // A keyboard that was in the old one goes on in the new one.
        const at = document.activeElement;
        const part = at instanceof HTMLElement && old.el.contains(at) ? at.dataset.part : null;
        old.el.replaceWith(item.el);
        if (part) find(item.el, `[data-part=${part}]`)?.focus();
      }
      this.items.set(entry.key, item);
    }
    const { el } = item;
    const depth = 'depth' in entry ? entry.depth : 0;
    // Touched only where it changed: each touch of an attribute costs the page a look at the styles of that row.
    const stand = entry.kind === 'row' ? `${entry.place}|${entry.head}|${depth}` : `${depth}`;
    if (item.stand === stand) return el;
    item.stand = stand;
    if (entry.kind === 'row') {
      el.classList.toggle('ctxk-off', entry.place !== 'path');
      el.dataset.place = entry.place;
      if (entry.head) el.setAttribute('aria-current', 'step');
      else el.removeAttribute('aria-current');
    }
    el.style.setProperty('--depth', String(Math.min(depth, 4)));
    return el;
  }

  /** A new element for an entry. @param {Entry} entry */
  made(entry) {
    switch (entry.kind) {
      case 'row':
        return this.row(entry);
      case 'here':
        return this.here(entry);
      case 'fold':
        return this.fold(entry);
      case 'branch':
        return this.branch(entry);
    }
  }

  /**
   * All that the text of a fold, a branch or `here` is made of.
   * @param {EntryOf<'here'> | EntryOf<'fold'> | EntryOf<'branch'>} entry
   */
  sign(entry) {
    if (entry.kind === 'here')
      return [
        entry.known,
        entry.head?.key,
        entry.ahead.length,
        entry.ahead[entry.ahead.length - 1].key,
        this.view.canMove
      ];
    const branches = entry.kind === 'fold' ? entry.branches : [entry.branch];
    return [
      entry.open,
      entry.kind === 'fold' ? entry.fork?.key : undefined,
      branches.map((one) => [one.key, one.size, keyOf(tipOf(one)), tipOf(one).ended_at])
    ];
  }

  /** @param {EntryOf<'here'>} entry */
  here({ head, known, ahead }) {
    const tip = ahead[ahead.length - 1].row;
    const later = plural(ahead.length, 'later statement');
    const back = h(
      'button',
      { class: 'ctxk-link', type: 'button', 'data-part': 'back', onclick: () => this.view.returning.goBack(tip) },
      `Back to ${label(tip)}`
    );
    return h(
      'li',
      { class: 'ctxk-here', 'data-here': head ? head.key : '' },
      h(
        'span',
        { class: 'ctxk-herehead' },
        known ? 'You are here, in the past' : 'You are in the past, above these rows'
      ),
      h(
        'p',
        { class: 'ctxk-hint' },
        `Running a cell starts a branch; the ${later} below ${ahead.length === 1 ? 'stays' : 'stay'}. `,
        this.view.canMove && back
      )
    );
  }

  /** @param {string} key */
  flip(key) {
    if (this.open.has(key)) this.open.delete(key);
    else this.open.add(key);
    this.stuck = false;
    this.flipping = true;
    this.draw();
    this.flipping = false;
  }

  /** @param {string} key @param {boolean} open @param {string} told @param {...Child} inside */
  foldButton(key, open, told, ...inside) {
    return h(
      'button',
      {
        class: 'ctxk-foldbutton',
        type: 'button',
        'data-part': 'fold',
        'aria-expanded': String(open),
        title: told,
        onclick: () => this.flip(key)
      },
      icon('chevron'),
      inside
    );
  }

  /** @param {EntryOf<'fold'>} entry */
  fold(entry) {
    const { branches, fork } = entry;
    const from = fork ? ` from ${label(fork.row)}` : ', from another start';
    const names = branches.map((one) => spanOf(one));
    const several = branches.length > 1;
    const text = several
      ? `${plural(branches.length, 'other branch', 'other branches')}${from}`
      : `Other branch${from}`;
    return h(
      'li',
      { class: 'ctxk-branches', 'data-fork': fork?.key ?? '' },
      this.foldButton(
        entry.key,
        entry.open,
        branches.map(branchTold).join('\n'),
        icon('fork'),
        h(
          'span',
          { class: 'ctxk-foldtext' },
          h('span', null, text),
          h('span', { class: 'ctxk-muted' }, names.join(', '))
        )
      ),
      !several && this.tipButton(branches[0])
    );
  }

  /** @param {EntryOf<'branch'>} entry */
  branch({ branch, open, key }) {
    return h(
      'li',
      { class: 'ctxk-branches ctxk-onebranch' },
      this.foldButton(
        key,
        open,
        branchTold(branch),
        h(
          'span',
          { class: 'ctxk-foldtext' },
          h('span', null, spanOf(branch)),
          h('code', null, headline(tipOf(branch).source))
        )
      ),
      this.tipButton(branch)
    );
  }

  /** @param {Branch} branch */
  tipButton(branch) {
    const tip = tipOf(branch);
    return (
      this.view.canMove &&
      h(
        'button',
        {
          class: 'ctxk-link ctxk-tip',
          type: 'button',
          'data-part': 'tip',
          title: `Go to the end of this branch: ${label(tip)}`,
          onclick: () => this.view.returning.goBack(tip)
        },
        'go there'
      )
    );
  }

  /* ------------------------------------------------------------ a row */

  /** @param {EntryOf<'row'>} entry */
  row({ row }) {
    const { view } = this;
    const key = keyOf(row);
    const status = statusOf(row);
    const isOpen = this.open.has(key);
    const details = h('div', { class: 'ctxk-details', hidden: !isOpen });
    const toggle = h(
      'button',
      {
        class: 'ctxk-toggle',
        type: 'button',
        'data-part': 'toggle',
        'aria-expanded': String(isOpen),
        'aria-label': `Details of ${label(row)}`,
        title: 'Details'
      },
      icon('chevron')
    );
    const flip = () => {
      const now = !this.open.has(key);
      this.open[now ? 'add' : 'delete'](key);
      toggle.setAttribute('aria-expanded', String(now));
      // The reader is looking here now: following the newest row would carry this one away.
      this.stuck = false;
      if (now && !details.childElementCount) fillDetails(details, row);
      details.hidden = !now;
      requestAnimationFrame(() => (this.stuck = atBottom(this.section)));
    };
    toggle.addEventListener('click', flip);
    if (isOpen) fillDetails(details, row);
    const missing = h('p', { class: 'ctxk-missing', role: 'status', hidden: true });
    const go = async () => {
      if (!view.actions.goto) return flip();
      const found = row.cell_id ? await view.actions.goto(String(row.cell_id)) : false;
      missing.hidden = found;
      missing.textContent = found
        ? ''
        : row.cell_id
          ? 'Its cell is not in this notebook any more. The details have its source.'
          : 'It was not run from a cell. The details have its source.';
    };
    const [glyph, word] = STATUSES[status];
    const author = row.author && row.author in AUTHORS ? row.author : 'human';
    const source = clean(row.source).slice(0, 600);
    const line = h(
      'button',
      {
        class: 'ctxk-go',
        type: 'button',
        'data-part': 'go',
        onclick: go,
        title: view.actions.goto ? `${source}\n\nClick: go to the cell` : source
      },
      h('span', { class: 'ctxk-index' }, label(row)),
      icon(author, `by ${AUTHORS[author]}`),
      wordsOf(row),
      author === 'model' && !isResponse(row) && h('span', { class: 'ctxk-tag ctxk-bymodel' }, 'model'),
      row.kind === 'meta' && author !== 'model' && !questionOf(row) && !decisionOf(row) && h('span', { class: 'ctxk-tag' }, 'meta'),
      comparisonMark(row.comparison),
      h(
        'span',
        { class: `ctxk-status ctxk-is-${status}` },
        h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph),
        word
      ),
      h('span', { class: 'ctxk-time' }, status === 'running' ? '' : duration(row.time_ms))
    );
    return h(
      'li',
      {
        class: `ctxk-row ctxk-row-${status}${askOf(row, view.rows) ? ' ctxk-ofask' : ''}`,
        'data-statement': row.statement_id,
        'data-execution': key,
        'data-author': author
      },
      h('div', { class: 'ctxk-rowline' }, toggle, line, this.more(row)),
      chips(row, this.tags(row)),
      missing,
      details
    );
  }

  /**
   * The last place of a row: the mark of its checkpoint, which is the button for what can be done with that state.
   * @param {AnyRow} row
   */
  more(row) {
    const told = checkpointTold(row.checkpoint);
    const size = number(row.checkpoint?.bytes_new) ?? 0;
    const mark = told && [
      told.mark === 'writing' && size >= LARGE_BYTES && h('span', { class: 'ctxk-writesize' }, bytes(size)),
      h('span', { class: `ctxk-cp ctxk-cp-${told.mark}` }, icon(told.mark))
    ];
    const name = [`${label(row)}: go back, re-run, mark`, ...(told?.lines ?? [])];
    const parts = {
      class: 'ctxk-more',
      'data-part': 'more',
      'data-checkpoint': told?.mark ?? '',
      title: name.join('\n')
    };
    if (!this.view.canMove || row.status === 'running')
      return h(
        'span',
        { ...parts, title: told?.lines.join('\n'), role: told ? 'img' : null, 'aria-label': told?.lines[0] },
        mark
      );
    const button = h(
      'button',
      { ...parts, type: 'button', 'aria-haspopup': 'menu', 'aria-expanded': 'false', 'aria-label': name.join('. ') },
      mark,
      icon('more')
    );
    button.addEventListener('click', () => this.view.returning.menu(row, button));
    return button;
  }

  /** Its names and marks: what a person said of it. @param {AnyRow} row */
  tags(row) {
    const marks = dict(row.marks);
    const { held, replayed } = dict(row.tags);
    const spent = isResponse(row) ? spentTold(row) : this.spent.get(keyOf(row));
    const out = [
      held && h('span', { class: 'ctxk-tag ctxk-held' }, 'held: what it had seen changed'),
      replayed && h('span', { class: 'ctxk-tag', title: 'Answered from a recorded turn: nothing was sent' }, 'replayed'),
      spent && h('span', { class: 'ctxk-spent' }, spent),
      ...list(row.names).map((name) =>
        h('span', { class: 'ctxk-named', title: `%ctx goto ${name}` }, icon('flag'), name)
      ),
      marks.differs && h('span', { class: 'ctxk-tag', title: 'A re-run of it is expected to differ' }, 'may differ'),
      marks.asks && h('span', { class: 'ctxk-tag', title: 'It asks before it is run again' }, 'asks first')
    ].filter(Boolean);
    return out;
  }
}

/**
 * What the responses to each ask have cost together, by the ask's run. Of an unknown price there is no sum.
 * @param {Map<string, AnyRow>} rows
 */
function spentByAsk(rows) {
  /** @type {Map<string, {tokens: number, usd: number | null}>} */
  const sums = new Map();
  for (const row of rows.values()) {
    const own = number(row.tokens);
    if (!isResponse(row) || !own) continue;
    const ask = clean(dict(row.tags).ask);
    const { tokens, usd } = sums.get(ask) ?? { tokens: 0, usd: 0 };
    const more = number(row.usd);
    sums.set(ask, { tokens: tokens + own, usd: usd === null || more === null ? null : usd + more });
  }
  return new Map([...sums].map(([ask, sum]) => [ask, spentTold(sum)]));
}

/** The question of a statement that asks the model; empty where it does not. @param {AnyRow} row */
function questionOf(row) {
  const [first, ...rest] = clean(row.source).trim().split('\n');
  const asked = /^%%ask\b\s*((?:--\S+\s+)*)(.*)/.exec(first);
  return asked ? [asked[2], ...rest].join(' ').trim() || '%%ask' : '';
}

const DECISION = /^\s*%%?ctx\s+(approve|edit|reject|stop)\b[ \t]*(.*)/;

/** What a statement decided on a cell of the model, in words; empty where it did not. @param {AnyRow} row */
function decisionOf(row) {
  const [, verb, rest] = DECISION.exec(clean(row.source)) ?? [];
  if (!verb) return '';
  const reason = rest.replace(/^"|"$/g, '').replace(/\\(["\\])/g, '$1');
  if (verb === 'reject') return reason ? `rejected: ${reason}` : 'rejected';
  if (verb === 'approve') return rest.includes('--all') ? 'approved, and all to come' : 'approved';
  return verb === 'edit' ? 'edited, and run so' : 'stopped';
}

/** What a row is about: code as code, what a person or the model said as words. @param {AnyRow} row */
function wordsOf(row) {
  /** @param {string} text @param {string} kind */
  const words = (text, kind) =>
    h('span', { class: `ctxk-src ctxk-words ctxk-${kind}` }, clean(text).replace(/\s+/g, ' ').trim());
  const [question, decision] = [questionOf(row), decisionOf(row)];
  if (question) return words(question, 'question');
  if (decision) return words(decision, 'decision');
  // Only the words: what makes them bold, or code, is left out.
  if (isResponse(row)) return words(clean(row.source).replace(/\*\*|`+/g, ''), 'prose');
  return h('code', { class: 'ctxk-src' }, headline(row.source));
}

/**
 * The ask that a row belongs to: of what the model said and ran, and of what was decided on it; else empty.
 * @param {AnyRow} row
 * @param {Map<string, AnyRow>} rows
 * @returns {string}
 */
function askOf(row, rows) {
  const at = decisionOf(row) ? rows.get(clean(row.parent_execution_id)) : row;
  if (at && at !== row) return questionOf(at) || askOf(at, rows);
  return clean(dict(row.tags).ask);
}

/** @param {Branch} branch */
const tipOf = (branch) => branch.line[branch.line.length - 1].row;

/** `s11 … s20` @param {Branch} branch */
function spanOf(branch) {
  const [first, last] = [label(branch.first.row), label(tipOf(branch))];
  return first === last ? first : `${first} … ${last}`;
}

/** @param {Branch} branch */
function branchTold(branch) {
  const tip = tipOf(branch);
  return [
    `${spanOf(branch)}: ${plural(branch.size, 'statement')}`,
    clock(tip.ended_at ?? tip.started_at),
    headline(tip.source)
  ]
    .filter(Boolean)
    .join(' · ');
}

/** @param {Comparison | null | undefined} comparison */
function comparisonMark(comparison) {
  if (!comparison || typeof comparison !== 'object') return null;
  const { word, glyph, found } = verdict(comparison);
  const causes = [...new Set(found.map((one) => one.cause).filter(Boolean))];
  const told = [
    { same: 'Same as before', expected: 'Differs, as expected', differs: plural(found.length, 'difference') }[word],
    comparison.against && `against ${comparison.against}`,
    ...found.slice(0, 6).map((one) => `${one.subject}: ${one.summary}${one.cause ? ` (${one.cause})` : ''}`)
  ].filter(Boolean);
  return h(
    'span',
    { class: `ctxk-cmp ctxk-cmp-${word}`, title: told.join('\n'), 'data-verdict': word },
    h('span', { 'aria-hidden': 'true' }, glyph, word === 'same' ? '' : ` ${found.length || ''}`),
    h('span', { class: 'ctxk-sr' }, word),
    word === 'differs' && causes.length > 0 && h('span', { class: 'ctxk-cause' }, causes[0])
  );
}

export { checkpointTold, verdict, Timeline };
