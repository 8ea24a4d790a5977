/** The elements of the timeline's entries: a row, a fold of branches, a branch, and where HEAD is in the past. */

import { chips, fillDetails } from './details.js';
import { atBottom, h } from './elements.js';
import { icon } from './icons.js';
import { AUTHORS, STATUSES, keyOf, label, statusOf } from './rownames.js';
import {
  ASK_STATUSES,
  LARGE_BYTES,
  askOf,
  branchTold,
  checkpointTold,
  comparisonMark,
  decisionOf,
  questionOf,
  spanOf,
  tipOf,
  wordsOf
} from './rowparts.js';
import { isResponse } from './spending.js';
import { clean, headline, marked } from './text.js';
import { bytes, dict, duration, list, number, plural, spentTold } from './values.js';

/** @import {Child} from '../types.js' */
/** @import {Timeline} from './timeline.js' */
/** @import {AnyRow, Branch, Entry} from './tree.js' */

/**
 * @template {Entry['kind']} Kind
 * @typedef {Extract<Entry, {kind: Kind}>} EntryOf
 */

class EntryElements {
  /** @param {Timeline} list */
  constructor(list) {
    this.list = list;
    this.view = list.view;
  }

  /** A new element for an entry. @param {Entry} entry */
  made(entry) {
    switch (entry.kind) {
      case 'row':
        return this.view.isStub(entry.row) ? this.stub(entry) : this.row(entry);
      case 'here':
        return this.here(entry);
      case 'fold':
        return this.fold(entry);
      case 'branch':
        return this.branch(entry);
    }
  }

  /**
   * A line of the list.
   * @param {string} cls @param {Record<string, any>} props @param {...Child} inside
   */
  line(cls, props, ...inside) {
    return h('div', { class: cls, role: 'row', tabindex: '-1', ...props }, h('div', { class: 'ctxk-cell', role: 'gridcell' }, inside));
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
      { class: 'ctxk-link', type: 'button', tabindex: '-1', 'data-part': 'back', onclick: () => this.view.returning.goBack(tip) },
      `Back to ${label(tip)}`
    );
    return this.line(
      'ctxk-here',
      { 'data-here': head ? head.key : '' },
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

  /** @param {string} key @param {boolean} open @param {string} told @param {...Child} inside */
  foldButton(key, open, told, ...inside) {
    return h(
      'button',
      {
        class: 'ctxk-foldbutton',
        type: 'button',
        tabindex: '-1',
        'data-part': 'fold',
        'aria-expanded': String(open),
        title: told,
        onclick: () => this.list.flip(key)
      },
      icon('chevron'),
      inside
    );
  }

  /** @param {EntryOf<'fold'>} entry */
  fold(entry) {
    const { branches, fork } = entry;
    const from = fork ? ` from ${label(fork.row)}` : ' from the start';
    const names = branches.map((one) => spanOf(one));
    const several = branches.length > 1;
    const text = several
      ? `${plural(branches.length, 'other branch', 'other branches')}${from}`
      : `Other branch${from}`;
    return this.line(
      'ctxk-branches',
      { 'data-fork': fork?.key ?? '', 'aria-expanded': String(entry.open) },
      h('span', { class: 'ctxk-lanes', 'aria-hidden': 'true' }),
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
    return this.line(
      'ctxk-branches ctxk-onebranch',
      { 'aria-expanded': String(open) },
      h('span', { class: 'ctxk-lanes', 'aria-hidden': 'true' }),
      this.foldButton(
        key,
        open,
        branchTold(branch),
        h(
          'span',
          { class: 'ctxk-foldtext' },
          h('span', null, spanOf(branch)),
          !this.view.isStub(tipOf(branch)) && h('code', null, headline(tipOf(branch).source))
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
          tabindex: '-1',
          'data-part': 'tip',
          title: `Go to the end of this branch: ${label(tip)}`,
          onclick: () => this.view.returning.goBack(tip)
        },
        'go there'
      )
    );
  }

  /* ------------------------------------------------------------ a row */

  /** A row whose content is on its way. @param {EntryOf<'row'>} entry */
  stub({ row }) {
    return this.line(
      'ctxk-row ctxk-stub',
      { 'data-statement': row.statement_id, 'data-execution': keyOf(row), 'aria-busy': 'true' },
      h(
        'div',
        { class: 'ctxk-rowline' },
        h('span', { class: 'ctxk-lanes', 'aria-hidden': 'true' }),
        h('span', { class: 'ctxk-index' }, label(row)),
        h('span', { class: 'ctxk-muted' }, '…')
      )
    );
  }

  /** @param {EntryOf<'row'>} entry */
  row({ row }) {
    const { view } = this;
    const key = keyOf(row);
    const status = statusOf(row);
    const isOpen = this.list.open.has(key) && !this.list.pane;
    const author = row.author && row.author in AUTHORS ? row.author : 'human';
    const details = h('div', { class: 'ctxk-details', hidden: !isOpen });
    const toggle = h(
      'button',
      {
        class: 'ctxk-toggle',
        type: 'button',
        tabindex: '-1',
        'data-part': 'toggle',
        'aria-expanded': String(isOpen),
        'aria-label': `Details of ${label(row)}`,
        title: 'Details (Enter)'
      },
      icon('chevron')
    );
    const missing = h('p', { class: 'ctxk-missing', role: 'status', hidden: true });
    const el = this.line(
      `ctxk-row ctxk-row-${status}${askOf(row, view.rows) ? ' ctxk-ofask' : ''}`,
      {
        'data-statement': row.statement_id,
        'data-execution': key,
        'data-author': author,
        'data-loose': isOpen || null,
        'aria-label': told(row),
        'aria-expanded': String(isOpen)
      },
      h(
        'div',
        { class: 'ctxk-rowline' },
        h('span', { class: 'ctxk-lanes', 'aria-hidden': 'true' }),
        toggle,
        this.go(row, () => flip(), missing),
        chips(row, this.tags(row)),
        this.outcome(row),
        this.more(row)
      ),
      missing,
      details
    );
    const flip = () => {
      if (this.list.pane) return this.list.select(key);
      const now = !this.list.open.has(key);
      this.list.open[now ? 'add' : 'delete'](key);
      for (const one of [toggle, el]) one.setAttribute('aria-expanded', String(now));
      // The reader is looking here now: following the newest row would carry this one away.
      this.list.stuck = false;
      el.toggleAttribute('data-loose', now);
      details.hidden = !now;
      if (now && !details.childElementCount) fillDetails(details, row, view.actions, () => this.list.place());
      this.list.place();
      requestAnimationFrame(() => (this.list.stuck = atBottom(this.list.section)));
    };
    toggle.addEventListener('click', flip);
    if (isOpen) fillDetails(details, row, view.actions, () => this.list.place());
    return el;
  }

  /**
   * What a row is about, which leads to its cell.
   * @param {AnyRow} row @param {() => void} flip @param {HTMLElement} missing what is said where there is no such cell
   */
  go(row, flip, missing) {
    const { view } = this;
    const author = row.author && row.author in AUTHORS ? row.author : 'human';
    const go = async () => {
      if (!view.actions.goto) return flip();
      const found = row.cell_id ? await view.actions.goto(String(row.cell_id)) : false;
      missing.hidden = found;
      missing.textContent = found
        ? ''
        : row.cell_id
          ? 'Its cell is not in this notebook any more. The details have its source.'
          : 'It was not run from a cell. The details have its source.';
      missing.closest('[role=row]')?.toggleAttribute('data-loose', !found || this.list.open.has(keyOf(row)));
      this.list.place();
    };
    const source = marked(row.source).slice(0, 600);
    return h(
      'button',
      {
        class: 'ctxk-go',
        type: 'button',
        tabindex: '-1',
        'data-part': 'go',
        onclick: go,
        title: view.actions.goto ? `${source}\n\nClick: go to the cell` : source
      },
      h('span', { class: 'ctxk-index' }, label(row)),
      icon(author, `by ${AUTHORS[author]}`),
      wordsOf(row),
      author === 'model' && !isResponse(row) && h('span', { class: 'ctxk-tag ctxk-bymodel' }, 'model'),
      author === 'agent' && h('span', { class: 'ctxk-tag ctxk-bymodel' }, clean(dict(row.tags).agent) || 'agent'),
      row.kind === 'meta' && author !== 'model' && !questionOf(row) && !decisionOf(row) && h('span', { class: 'ctxk-tag' }, 'meta')
    );
  }

  /** How a row ended, and how long it took. @param {AnyRow} row */
  outcome(row) {
    const ask = dict(row.ask);
    const status = statusOf(row);
    const state = ASK_STATUSES[clean(ask.result)] ?? status;
    const [glyph, word] = STATUSES[state];
    return [
      comparisonMark(row.comparison),
      h(
        'span',
        { class: `ctxk-status ctxk-is-${state}`, title: clean(ask.text) || word },
        h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph),
        h('span', { class: ask.told ? 'ctxk-word ctxk-keep' : state === 'ok' ? 'ctxk-sr' : 'ctxk-word' }, clean(ask.told) || word)
      ),
      h('span', { class: 'ctxk-time', hidden: Boolean(ask.told) }, status === 'running' ? '' : duration(row.time_ms))
    ];
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
      { ...parts, type: 'button', tabindex: '-1', 'aria-haspopup': 'menu', 'aria-expanded': 'false', 'aria-label': name.join('. ') },
      mark,
      icon('more')
    );
    button.addEventListener('click', () => this.view.returning.menu(row, button, this.list.menu));
    return button;
  }

  /** What an ask has cost, as it is told; empty where it is none. @param {string} key */
  spentOn(key) {
    const sum = this.view.spending.ofAsk.get(key);
    return sum ? spentTold(sum) : '';
  }

  /** Its names and marks: what a person said of it. @param {AnyRow} row */
  tags(row) {
    const marks = dict(row.marks);
    const { fenced, held, replayed } = dict(row.tags);
    const spent = isResponse(row) ? spentTold(row) : this.spentOn(keyOf(row));
    const out = [
      held && h('span', { class: 'ctxk-tag ctxk-held' }, 'held: what it had seen changed'),
      fenced &&
        h('span', { class: 'ctxk-tag', title: 'Its answer has no script tag: the cell is its fenced block' }, 'read from a fenced block'),
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

/** A row in words. @param {AnyRow} row */
function told(row) {
  const error = dict(row.exception).type;
  const ask = clean(dict(row.ask).told);
  const ended = ask ? [ask] : [error ?? STATUSES[statusOf(row)][1], duration(row.time_ms)];
  const words = [headline(row.source), ...ended, ...list(row.names)];
  return clean([label(row), ...words].filter(Boolean).join(', ')).slice(0, 300);
}

/**
 * The lanes of branches beside a row: a line for each branch that goes on there, a dot where the row is.
 * @param {Entry} entry @param {number} depth
 */
function lanes(entry, depth) {
  return Array.from({ length: depth + 1 }, (_, lane) => {
    const own = lane === depth;
    const kind = !own ? 'line' : entry.kind === 'row' ? 'dot' : 'fork';
    return h('span', { class: `ctxk-lane ctxk-lane-${kind}` });
  });
}

export { EntryElements, lanes };
