/**
 * Long lists of a section whose items are made only when they come near to what is seen.
 *
 * Rule 1: every item has its element from the start, in order, with a line of text that tells what it is. So a search of
 *         the page, a screen reader and the scroll bar know all of them.
 * Rule 2: the first item, the last, and those beside the keyboard are made: Tab reaches each, from both ends.
 * Rule 3: an item that was made stays. One that is drawn anew first has the height that it had.
 */

/** Pixels above and below what is seen where items are made, too. */
const NEAR = 500;
/** Most items that are made at once: more of them would hold up the page. */
const AT_ONCE = 12;
/** A list of no more items is made whole. */
const FEW = 40;
/** Items before and after the one with the keyboard that are made. */
const BESIDE = 6;
/** Most heights that are remembered. */
const MOST_HEIGHTS = 4000;

/** What makes the content of an element that waits for it. @type {WeakMap<Element, () => void>} */
const waiting = new WeakMap();

/**
 * Have the content of an item made later. `key` tells it from the others of its section.
 * @template {HTMLElement} T
 * @param {T} el with the line that stands for it
 * @param {string} key
 * @param {() => void} make puts the content in the place of that line
 * @returns {T}
 */
function madeLater(el, key, make) {
  el.dataset.item = key;
  el.dataset.later = '';
  waiting.set(el, make);
  return el;
}

/** Make the content of an item, if it waits. @param {HTMLElement} el */
function makeNow(el) {
  const make = waiting.get(el);
  if (!make) return;
  waiting.delete(el);
  delete el.dataset.later;
  el.replaceChildren();
  make();
}

/** A section with such items. */
class LazySection {
  /** @param {HTMLElement} section what scrolls */
  constructor(section) {
    this.section = section;
    this.frame = 0;
    /** Heights of items that were made, by key. @type {Map<string, number>} */
    this.heights = new Map();
    section.addEventListener('scroll', () => this.soon(), { passive: true });
    section.addEventListener('focusin', ({ target }) => {
      const item = target instanceof Element ? target.closest('[data-item]') : null;
      if (item) this.makeBeside(item);
    });
    this.resize = new ResizeObserver(() => this.soon());
    this.resize.observe(section);
  }

  dispose() {
    cancelAnimationFrame(this.frame);
    this.resize.disconnect();
  }

  soon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.makeNear();
    });
  }

  /** All items, in order. @returns {HTMLElement[]} */
  get items() {
    return [...this.section.querySelectorAll('[data-item]')].filter((el) => el instanceof HTMLElement);
  }

  /** The section is about to be drawn anew: remember how high its items are. */
  remember() {
    for (const el of this.items) {
      if ('later' in el.dataset) continue;
      const key = el.dataset.item ?? '';
      this.heights.delete(key);
      this.heights.set(key, el.offsetHeight);
    }
    for (const key of this.heights.keys()) {
      if (this.heights.size <= MOST_HEIGHTS) break;
      this.heights.delete(key);
    }
  }

  /** The section was drawn anew: give items the heights that they had. */
  restore() {
    for (const el of this.items) {
      const height = this.heights.get(el.dataset.item ?? '');
      if (height) el.style.setProperty('--height', `${height}px`);
    }
  }

  /** Make what is seen and what is near to it; the rest of that, if it is much, in the next frame. */
  makeNear() {
    const seen = this.section.getBoundingClientRect();
    if (!seen.height) return;
    const items = this.items;
    for (const el of items.length > FEW ? [items[0], items[items.length - 1]] : items) makeNow(el);
    let room = AT_ONCE;
    // What is made may be lower than its room, so that more comes into view.
    for (let round = 0; round < 4; round += 1) {
      const near = nearOf(items, seen.top - NEAR, seen.bottom + NEAR).filter((el) => waiting.has(el));
      if (!near.length) return;
      const middle = (seen.top + seen.bottom) / 2;
      // What is seen comes first.
      const places = new Map(near.map((el) => [el, Math.abs(el.getBoundingClientRect().top - middle)]));
      near.sort((a, b) => (places.get(a) ?? 0) - (places.get(b) ?? 0));
      for (const el of near.slice(0, room)) makeNow(el);
      if (near.length >= room) return this.soon();
      room -= near.length;
    }
  }

  /** Make the items beside one, so that the keyboard can go on. @param {Element} item */
  makeBeside(item) {
    const items = this.items;
    const at = items.findIndex((el) => el === item);
    for (const el of items.slice(Math.max(0, at - BESIDE), at + BESIDE + 1)) makeNow(el);
  }
}

/**
 * The items between two heights of the window; they stand below each other.
 * @param {HTMLElement[]} items @param {number} top @param {number} bottom
 */
function nearOf(items, top, bottom) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].getBoundingClientRect().bottom < top) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < items.length && items[end].getBoundingClientRect().top <= bottom) end += 1;
  return items.slice(low, end);
}

export { LazySection, madeLater, makeNow };
