/**
 * Making and finding elements.
 *
 * Rule: every text is untrusted (cells, reprs, exceptions, models). It enters the page as a text node or as the `title`
 *       property, never as HTML, never as an attribute that does something.
 */

import { clean } from './text.js';

/** @import {Child} from '../types.js' */

/**
 * Make an element. Strings become text nodes; `on*` keys are listeners; the rest of `props` are attributes of OUR making.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'class') el.className = value;
    else if (key === 'title') el.title = clean(value);
    else if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
    else el.setAttribute(key, value === true ? '' : String(value));
  }
  put(el, ...children);
  return el;
}

/**
 * Append children; nothing for null, undefined and false.
 * @template {Node & ParentNode} T
 * @param {T} el
 * @param {...Child} children
 */
function put(el, ...children) {
  for (const child of /** @type {any[]} */ (children).flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    el.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return el;
}

/**
 * The element that a selector finds: all of ours are HTML elements.
 * @param {ParentNode} root @param {string} selector
 */
const find = (root, selector) => /** @type {HTMLElement | null} */ (root.querySelector(selector));

/** @param {ParentNode} root @param {string} selector */
const findAll = (root, selector) => /** @type {HTMLElement[]} */ ([...root.querySelectorAll(selector)]);

/** @param {Element} el */
const atBottom = (el) => el.scrollHeight - el.scrollTop - el.clientHeight < 24;

/**
 * Scroll `section` so that `el` stands in its middle. Not scrollIntoView: that may scroll what the panel stands in, too.
 * @param {Element} section
 * @param {Element} el
 */
function bringToMiddle(section, el) {
  const [at, seen] = [el.getBoundingClientRect(), section.getBoundingClientRect()];
  section.scrollTop += at.top - seen.top - Math.max(0, (seen.height - at.height) / 2);
}

/** Draw the eye to an element. @param {HTMLElement} el */
function flash(el) {
  el.classList.remove('ctxk-flash');
  void el.offsetWidth; // so that it begins anew
  el.classList.add('ctxk-flash');
}

/** @param {() => void} job */
const whenIdle = (job) =>
  'requestIdleCallback' in window ? requestIdleCallback(job, { timeout: 300 }) : setTimeout(job, 16);
/** @param {number | undefined} id */
const cancelIdle = (id) => {
  if (id === undefined) return;
  if ('cancelIdleCallback' in window) cancelIdleCallback(id);
  else clearTimeout(id);
};

export { h, put, find, findAll, atBottom, bringToMiddle, flash, whenIdle, cancelIdle };
