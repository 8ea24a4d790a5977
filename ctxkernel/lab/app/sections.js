/** The sections of the panel: their names, their order, and what draws each. The timeline draws itself. */

import { drawChanges } from './changes.js';
import { drawComparisons } from './comparisons.js';
import { drawCosts } from './costs.js';
import { drawHandles } from './handles.js';
import { drawHistory } from './history.js';
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

export { DRAW, TABS, TAB_LABELS };
