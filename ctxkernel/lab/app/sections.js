/** The sections of the panel: their names, their order, and what draws each. The timeline draws itself. */

import { drawChanges } from './changes.js';
import { drawComparisons } from './comparisons.js';
import { drawCosts } from './costs.js';
import { findAll } from './elements.js';
import { drawHandles } from './handles.js';
import { drawHistory } from './history.js';
import { makeNow } from './lazylist.js';
import { drawProjection } from './projection.js';
import { drawSweeps } from './sweeps.js';

/** @import {Child} from '../types.js' */
/** @import {View} from './view.js' */

const TABS = /** @type {const} */ (['timeline', 'handles', 'projection', 'cost', 'history', 'changes', 'rerun', 'sweeps']);
/** @typedef {(typeof TABS)[number]} Tab */

/** @type {Record<Tab, string>} */
const TAB_LABELS = {
  timeline: 'Timeline',
  handles: 'Handles',
  projection: 'Projection',
  cost: 'Cost',
  history: 'History',
  changes: 'Changes',
  rerun: 'Re-run',
  sweeps: 'Sweeps'
};
/** @type {Record<Exclude<Tab, 'timeline'>, (view: View) => Child>} */
const DRAW = {
  handles: drawHandles,
  projection: drawProjection,
  cost: drawCosts,
  history: drawHistory,
  changes: drawChanges,
  rerun: drawComparisons,
  sweeps: drawSweeps
};

/**
 * Returns what puts the keyboard back where it is in a section that is drawn anew; null where it is not in it.
 * @param {HTMLElement} section
 */
function keyboardIn(section) {
  const el = document.activeElement;
  const key = el instanceof HTMLElement && section.contains(el) ? el.dataset.keep : undefined;
  if (key === undefined) return null;
  const item = el?.closest('[data-item]')?.getAttribute('data-item');
  const text = el instanceof HTMLInputElement && el.type === 'text' ? el : null;
  const [start, end] = [text?.selectionStart ?? null, text?.selectionEnd ?? null];
  return () => {
    const drawn = findAll(section, '[data-item]').find((one) => one.dataset.item === item);
    if (drawn) makeNow(drawn);
    const now = findAll(section, '[data-keep]').find((one) => one.dataset.keep === key);
    now?.focus({ preventScroll: true });
    if (text && now instanceof HTMLInputElement) now.setSelectionRange(start, end);
  };
}

export { DRAW, TABS, TAB_LABELS, keyboardIn };
