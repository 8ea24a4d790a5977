/** A modal dialog over the page: a title, a scrolled body, a button that does it and one that does not. */

import { find, findAll, h } from './elements.js';

/** @import {Child} from '../types.js' */

/** The open one. @type {(() => void) | null} */
let closeOpen = null;

/**
 * Open a dialog; only one is open at a time. Escape and its second button close it, and the keyboard goes back.
 * @param {{title: string, body: Child, confirm?: () => string, run?: () => void, cancel?: string, closed?: () => void}} how
 *   `confirm` gives the text of the first button; empty: it cannot be pressed now
 */
function openSheet({ title, body, confirm, run, cancel = 'Cancel', closed }) {
  closeOpen?.();
  const from = document.activeElement;
  const heading = h('h2', { id: `ctxk-sheet-${Math.random().toString(36).slice(2)}` }, title);
  const close = () => {
    veil.remove();
    closeOpen = null;
    closed?.();
    if (from instanceof HTMLElement && from.isConnected) from.focus();
  };
  const yes =
    confirm &&
    h('button', {
      class: 'ctxk-sheetbutton ctxk-primary',
      type: 'button',
      onclick: () => {
        close();
        run?.();
      }
    });
  const label = () => {
    if (!yes) return;
    const text = confirm();
    yes.textContent = text || 'Choose a cell';
    yes.disabled = !text;
  };
  const box = h(
    'div',
    { class: 'ctxk-nb ctxk-nbsheet', role: 'dialog', 'aria-modal': 'true', 'aria-labelledby': heading.id, tabindex: '-1' },
    heading,
    h('div', { class: 'ctxk-nbsheetbody', tabindex: '0', role: 'region', 'aria-labelledby': heading.id }, body),
    h(
      'div',
      { class: 'ctxk-nbsheetfoot' },
      yes,
      h('button', { class: 'ctxk-sheetbutton', type: 'button', onclick: close }, cancel)
    )
  );
  const veil = h('div', { class: 'ctxk-veil', 'data-lm-suppress-shortcuts': 'true' }, box);
  veil.addEventListener('pointerdown', (event) => event.target === veil && close());
  box.addEventListener('change', label);
  box.addEventListener('keydown', (event) => {
    event.stopPropagation();
    if (event.key === 'Escape') close();
    if (event.key !== 'Tab') return;
    const all = findAll(box, 'button:not([disabled]), input, [tabindex="0"]');
    const at = all.findIndex((one) => one === document.activeElement);
    event.preventDefault();
    all[(at + (event.shiftKey ? all.length - 1 : 1)) % all.length]?.focus();
  });
  label();
  document.body.append(veil);
  closeOpen = close;
  (find(box, '.ctxk-primary:not([disabled])') ?? find(box, '.ctxk-nbsheetfoot button'))?.focus();
}

export { openSheet };
