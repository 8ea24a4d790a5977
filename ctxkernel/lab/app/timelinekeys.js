/** The keys of the timeline: arrows move in the list, letters act on the row that the keyboard is on. */

import { find } from './elements.js';

/** @import {Timeline} from './timeline.js' */
/** @import {Entry} from './tree.js' */

/** Keys that act on the row with the keyboard. @type {Record<string, string>} */
const KEYS = { g: 'go', b: 'back', r: 'rerun', n: 'name', c: 'compare', m: 'more', u: 'undo' };
const HELP = 'Arrow keys: move. Enter: details. G: go to its cell. B: go back. R: re-run. N: name. C: compare. M: menu. U: undo. /: search.';

/** @param {Timeline} list @param {KeyboardEvent} event */
function pressKey(list, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { target } = event;
  if (!(target instanceof HTMLElement) || target.closest('.ctxk-details')) return;
  const at = list.entries.findIndex((entry) => entry.key === list.active);
  const page = list.pageSize;
  const last = list.entries.length - 1;
  /** @type {Record<string, number>} */
  const places = {
    ArrowDown: at + 1,
    ArrowUp: at - 1,
    PageDown: at + page,
    PageUp: at - page,
    Home: 0,
    End: last
  };
  const to = places[event.key];
  if (to !== undefined) list.focus(list.entries[Math.max(0, Math.min(last, to))]?.key);
  else if (event.key === '/') list.bar.focus();
  else if (target.getAttribute('role') !== 'row' || !act(list, event.key, list.entries[at])) return;
  // JupyterLab's own shortcuts must not see these.
  event.preventDefault();
  event.stopPropagation();
}

/** Do what a key means on an entry; false: nothing. @param {Timeline} list @param {string} key @param {Entry | undefined} entry */
function act(list, key, entry) {
  const el = list.items.get(entry?.key ?? '')?.el;
  if (!entry || !el) return false;
  const isOpen = el.getAttribute('aria-expanded') === 'true';
  if (key === 'Enter' || key === ' ' || (key === 'ArrowRight' && !isOpen) || (key === 'ArrowLeft' && isOpen)) {
    find(el, '[data-part=toggle], [data-part=fold], [data-part=back]')?.click();
    return true;
  }
  const what = KEYS[key.toLowerCase()];
  if (!what) return key === 'ArrowRight' || key === 'ArrowLeft';
  const { returning } = list.view;
  if (what === 'undo') void returning.undo();
  else if (what === 'go' || what === 'more') find(el, `[data-part=${what}]`)?.click();
  else if (entry.kind !== 'row') return false;
  else if (what === 'compare') list.view.compareFrom(entry.row);
  else if (list.view.canMove) {
    if (what === 'back') void returning.goBack(entry.row);
    else if (what === 'rerun') void returning.reruns.rerun(entry.row);
    else returning.name(entry.row);
  }
  return true;
}

export { HELP, pressKey };
