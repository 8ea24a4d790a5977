/** The comparison of two states that a person chose. */

import { showDifferences } from './differences.js';
import { h } from './elements.js';
import { keyOf, label } from './rownames.js';

/** @import {View} from './view.js' */
/** @import {AnyRow} from './tree.js' */

/**
 * Show in the panel's sheet how the states after two runs differ, by value.
 * @param {View} view @param {AnyRow} old @param {AnyRow} now
 */
async function openDifference(view, old, now) {
  const box = h('div', { class: 'ctxk-differences', 'aria-live': 'polite' });
  const shown = showDifferences(view.actions.ask, box, { old: keyOf(old), new: keyOf(now) });
  view.returning.show(`${label(old)} compared with ${label(now)}`, [box], { cancel: 'Close' });
  await shown;
}

export { openDifference };
