/** The section Changes: the delta feed, grouped by the statement that made them. */

import { emptyState, h, headline, put } from './base.js';
import { madeLater } from './lazylist.js';

/** @import {DeltaItem} from '../messages.js' */
/** @import {AnyRow} from './tree.js' */
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

/** What each statement changed, the newest first. @param {View} view */
function drawChanges(view) {
  if (!view.deltas.length)
    return emptyState(
      'No changes yet',
      'Variables, handles and files that a cell changes are listed here, newest first.'
    );
  /** @type {Map<string, Partial<DeltaItem>[]>} */
  const groups = new Map();
  for (const item of view.deltas) {
    const id = String(item.statement_id ?? '');
    const items = groups.get(id);
    if (items) items.push(item);
    else groups.set(id, [item]);
  }
  return [...groups.entries()].reverse().map(([id, items]) => {
    const section = h('section', { class: 'ctxk-group', 'data-group': id }, id || 'outside');
    return madeLater(section, id, () => fillGroup(section, view.rowOf(id), id, items));
  });
}

/**
 * @param {HTMLElement} section
 * @param {AnyRow | undefined} row
 * @param {string} id
 * @param {Partial<DeltaItem>[]} items
 */
function fillGroup(section, row, id, items) {
  put(
    section,
    h(
      'h3',
      { class: 'ctxk-grouphead' },
      h('span', { class: 'ctxk-index' }, id || 'outside'),
      row && h('code', { class: 'ctxk-src' }, headline(row.source))
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
