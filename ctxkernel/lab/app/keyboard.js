/** The place of the keyboard in an element whose content is drawn anew. */

import { findAll } from './elements.js';
import { makeNow } from './lazylist.js';

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

export { keyboardIn };
