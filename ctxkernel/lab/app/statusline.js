/** The status bar's item: where the kernel is, and what the projection of the notebook in front holds and has cost. */

import { h } from './elements.js';
import { nameOf } from './marks.js';
import { costOf } from './projection.js';
import { branchesOf } from './tree.js';
import { count, dict, number, plural } from './values.js';

/** @import {View} from './view.js' */

/**
 * The parts of the line, and a sentence for each.
 * @param {View} view @returns {[string, string][]}
 */
function statusParts(view) {
  if (view.phaseNow || view.sent === null) return [];
  const { projection: p } = view;
  const { leaves, at } = branchesOf(view.tree, view.head);
  const spent = view.spending.usd;
  const here = view.head ? nameOf(view.head) : 'the start';
  const branch = leaves.length > 1 && at >= 0 ? ` · branch ${at + 1} of ${leaves.length}` : '';
  /** @type {[string, string][]} */
  const parts = [[`${view.head ? here : 'start'}${branch}`, `The kernel is at ${here}${branch}`]];
  // A newcomer without handles and asks is spared it, as in the panel.
  if (!view.grown) return parts;
  if (p) {
    const cost = costOf(p);
    parts.push([`~${count(p.tokens)} tokens`, `The projection has about ${count(p.tokens)} tokens${cost ? `; to send it would cost ${cost}` : ''}`]);
  }
  if (spent) parts.push([`spent $${spent.toFixed(spent < 1 ? 4 : 2)}`, 'The cost of the responses in this session']);
  if (p) {
    const report = dict(p.report);
    const n = number(report.count) || 1;
    parts.push(report.ok ? ['✓ checks', 'All checks of the projection pass'] : [`✕ ${plural(n, 'violation')}`, 'The projection breaks rules of the model’s API']);
  }
  return parts;
}

/** The item's button. @param {() => void} open */
function statusButton(open) {
  return h('button', { class: 'ctxk-nb ctxk-statusitem', type: 'button', onclick: open });
}

/** @param {HTMLElement} button @param {[string, string][]} parts */
function drawStatus(button, parts) {
  const text = parts.map(([short]) => short).join(' · ');
  if (button.textContent === text) return;
  button.textContent = text;
  button.title = parts.map(([, said]) => said).join('\n');
  button.setAttribute('aria-label', `ctxkernel: ${parts.map(([, said]) => said).join('. ')}. Open the panel`);
}

export { drawStatus, statusButton, statusParts };
