/** A menu under a button: one for the whole panel, since only one is open at a time. */

import { find, findAll, h } from './elements.js';
import { icon } from './icons.js';

/** @import {Icon} from './icons.js' */

/**
 * @typedef {object} Item
 * @property {string} text
 * @property {() => void} run
 * @property {Icon} [icon]
 * @property {string} [title]
 * @property {boolean} [off] it cannot be chosen now
 * @property {boolean} [checked] makes it a box to tick
 * @property {HTMLElement} [note] stands under its text; may be filled while the menu is open
 */

class Menu {
  /** @param {HTMLElement} root what it lies over */
  constructor(root) {
    this.root = root;
    /** The button that it is open under … @type {HTMLElement | null} */
    this.of = null;
    /** … and the section that the button is in. @type {Element | null} */
    this.section = null;
    this.box = h('div', { class: 'ctxk-menu', role: 'menu', hidden: true });
    this.box.addEventListener('keydown', (event) => this.key(event));
    this.scrolled = () => this.place();
    /** @param {PointerEvent} event */
    this.outside = ({ target }) => {
      if (target instanceof Node && !this.box.contains(target) && !this.of?.contains(target)) this.close(false);
    };
    root.append(this.box);
  }

  /**
   * Open under `button`, or close where it is open there.
   * @param {HTMLElement} button
   * @param {string} label
   * @param {Item[]} items
   * @param {readonly string[]} told lines under them
   */
  open(button, label, items, told = []) {
    const again = this.of === button;
    this.close(false);
    if (again) return;
    this.box.setAttribute('aria-label', label);
    this.box.replaceChildren(
      ...items.map((item) => this.item(item)),
      told.length
        ? h(
            'div',
            { class: 'ctxk-menutold' },
            told.map((line) => h('p', null, line))
          )
        : ''
    );
    this.of = button;
    this.section = button.closest('.ctxk-section');
    button.setAttribute('aria-expanded', 'true');
    this.box.hidden = false;
    this.place();
    find(this.box, '[role^=menuitem]:not([aria-disabled])')?.focus({ preventScroll: true });
    document.addEventListener('pointerdown', this.outside, true);
    this.section?.addEventListener('scroll', this.scrolled, { passive: true });
  }

  /** @param {Item} item */
  item(item) {
    return h(
      'button',
      {
        class: 'ctxk-menuitem',
        type: 'button',
        role: item.checked === undefined ? 'menuitem' : 'menuitemcheckbox',
        'aria-checked': item.checked === undefined ? null : String(item.checked),
        'aria-disabled': item.off ? 'true' : null,
        tabindex: '-1',
        title: item.title,
        onclick: () => {
          if (item.off) return;
          this.close(true);
          item.run();
        }
      },
      item.checked === undefined
        ? item.icon && icon(item.icon)
        : h('span', { class: 'ctxk-check', 'aria-hidden': 'true' }, item.checked ? '✓' : ''),
      item.note ? h('span', { class: 'ctxk-menutext' }, item.text, item.note) : item.text
    );
  }

  /** Under its button, or over it where there is no room; closed when the button was scrolled away. */
  place() {
    if (!this.of || !this.section) return;
    const [of, root, seen] = [this.of, this.root, this.section].map((el) => el.getBoundingClientRect());
    if (of.bottom < seen.top || of.top > seen.bottom) return this.close(false);
    const { offsetHeight: height } = this.box;
    const under = of.bottom - root.top + 2;
    const over = Math.max(4, of.top - root.top - height - 2);
    this.box.style.top = `${under + height <= root.height ? under : over}px`;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const items = findAll(this.box, '[role^=menuitem]');
    const at = items.findIndex((item) => item === document.activeElement);
    /** @type {Record<string, number>} */
    const places = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 };
    const to = places[event.key];
    if (event.key === 'Escape' || event.key === 'Tab') this.close(true);
    else if (to !== undefined) items[to % items.length].focus();
    else if (event.key !== 'Enter' && event.key !== ' ') return;
    // JupyterLab's own shortcuts must not see these; Enter and Space still press the button.
    event.stopPropagation();
    if (event.key !== 'Enter' && event.key !== ' ') event.preventDefault();
  }

  /** @param {boolean} focus whether the button gets the keyboard */
  close(focus) {
    if (!this.of) return;
    document.removeEventListener('pointerdown', this.outside, true);
    this.section?.removeEventListener('scroll', this.scrolled);
    this.box.hidden = true;
    this.of.setAttribute('aria-expanded', 'false');
    if (focus) this.of.focus();
    this.of = null;
  }

  /** `section` is drawn anew: the button of an open menu in it goes. @param {Element} section */
  leave(section) {
    if (section.contains(this.of)) this.close(false);
  }
}

export { Menu };
