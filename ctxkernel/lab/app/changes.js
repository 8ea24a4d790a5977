/** The section Changes: the delta feed, grouped by the execution that made them. */

import { emptyState } from './components.js';
import { h, put } from './elements.js';
import { madeLater } from './lazylist.js';
import { keyOf, label } from './rownames.js';
import { headline } from './text.js';

/** @import {DeltaItem} from '../messages.js' */
/** @import {View} from './view.js' */

/** @type {Record<string, string>} */
const DELTA_WORDS = {
  variable: 'var',
  node: 'handle',
  tick: 'tick',
  error: 'error',
  file: 'file',
  late: 'late',
  notice: 'note'
};

/** Sources that are not here are asked for when scrolling has paused this long. */
const PAUSE_MS = 60;

/** What each execution changed, the newest first. @param {View} view */
function drawChanges(view) {
  if (!view.deltas.length)
    return emptyState(
      'No changes yet',
      'Variables, handles and files that a cell changes are listed here, newest first.'
    );
  /** @type {Map<string, Partial<DeltaItem>[]>} */
  const groups = new Map();
  for (const item of view.deltas) {
    const id = item.execution_id || item.statement_id ? label(item) : '';
    const items = groups.get(id);
    if (items) items.push(item);
    else groups.set(id, [item]);
  }
  const sources = sourceLines(view);
  return [...groups.entries()].reverse().map(([id, items]) => {
    const section = h('section', { class: 'ctxk-group', 'data-group': id }, id || 'outside');
    return madeLater(section, id, () => fillGroup(section, sources(id), id, items));
  });
}

/**
 * Returns what makes the first line of a statement's source; that of an old one is asked for, with those of others.
 * @param {View} view
 */
function sourceLines(view) {
  /** @type {Map<string, HTMLElement>} */
  const missing = new Map();
  const ask = async () => {
    const asked = new Map(missing);
    missing.clear();
    await view.ensure([...asked.keys()]);
    for (const [key, line] of asked) {
      const row = view.rows.get(key);
      if (row && !row.stub) line.textContent = headline(row.source);
    }
  };
  /** @param {string} id */
  return (id) => {
    const row = view.rows.get(id) ?? view.rows.get(`${id}.1`) ?? view.rowOf(id);
    if (!row) return null;
    const line = h('code', { class: 'ctxk-src' }, row.stub ? '' : headline(row.source));
    if (row.stub) {
      if (!missing.size) setTimeout(() => void ask(), PAUSE_MS);
      missing.set(keyOf(row), line);
    }
    return line;
  };
}

/**
 * @param {HTMLElement} section
 * @param {HTMLElement | null} source its first line
 * @param {string} id
 * @param {Partial<DeltaItem>[]} items
 */
function fillGroup(section, source, id, items) {
  put(
    section,
    h(
      'h3',
      { class: 'ctxk-grouphead' },
      h('span', { class: 'ctxk-index' }, id || 'outside'),
      source
    ),
    h(
      'ul',
      { class: 'ctxk-deltas' },
      items.map((item) =>
        h(
          'li',
          null,
          h(
            'span',
            { class: `ctxk-kind ctxk-kind-${item.kind && item.kind in DELTA_WORDS ? item.kind : 'other'}` },
            DELTA_WORDS[item.kind ?? ''] ?? item.kind
          ),
          h('span', { class: 'ctxk-summary' }, h('code', { class: 'ctxk-subject' }, item.subject), ' ', item.summary)
        )
      )
    )
  );
}

export { drawChanges };
