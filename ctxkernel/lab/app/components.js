/** Pieces that several sections are made of: bars, folds, facts, lines to copy. */

import { h, put } from './elements.js';
import { clean } from './text.js';
import { dict } from './values.js';

/** @import {HandleFacts} from '../messages.js' */
/** @import {Child} from '../types.js' */

/** @param {string} kind @param {string} glyph @param {string} text @param {string} [title] */
function badge(kind, glyph, text, title) {
  return h(
    'span',
    { class: `ctxk-badge ctxk-is-${kind}`, title },
    glyph && h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph),
    text
  );
}

/** @param {number} share @param {string} kind */
function bar(share, kind) {
  const inner = h('span', { class: 'ctxk-barfill' });
  inner.style.width = `${Math.max(0, Math.min(100, 100 * share)).toFixed(1)}%`;
  return h('span', { class: `ctxk-bar ctxk-bar-${kind}`, 'aria-hidden': 'true' }, inner);
}

/** @param {Child} text */
const pre = (text) => h('pre', { class: 'ctxk-pre' }, text);

/** @param {Child} text */
const heading = (text) => h('h4', { class: 'ctxk-h' }, text);

/** Longest text that is drawn whole before the reader asks for the rest. */
const FOLDED_CHARS = 700;
const FOLDED_LINES = 10;

/**
 * A text, folded where it is long. `open` has the keys of those that the reader opened.
 * @param {Set<string>} open
 * @param {string} key
 * @param {unknown} raw
 */
function foldedText(open, key, raw) {
  const text = clean(raw);
  const long = text.length > FOLDED_CHARS || text.split('\n').length > FOLDED_LINES;
  const body = pre('');
  const more = h('button', { class: 'ctxk-link ctxk-showall', type: 'button' });
  const draw = () => {
    const all = !long || open.has(key);
    body.textContent = all ? text : text.slice(0, FOLDED_CHARS);
    body.classList.toggle('ctxk-clamped', !all);
    more.textContent = all ? 'less' : 'show all';
    more.setAttribute('aria-expanded', String(all));
  };
  more.addEventListener('click', () => {
    open[open.has(key) ? 'delete' : 'add'](key);
    draw();
  });
  draw();
  return text ? [body, long && more] : [];
}

/**
 * A part that opens. `open` has the keys of those that are; `fill` makes what is inside when it is first looked at.
 * @param {Set<string>} open
 * @param {string} key
 * @param {string} title
 * @param {(box: HTMLElement) => Child} fill
 */
function foldable(open, key, title, fill) {
  const box = h('div', { class: 'ctxk-folded' });
  const fold = h('details', { class: 'ctxk-fold' }, h('summary', { 'data-keep': key }, title), box);
  fold.open = open.has(key);
  const draw = () => {
    open[fold.open ? 'add' : 'delete'](key);
    if (fold.open && !box.childElementCount) put(box, fill(box));
  };
  fold.addEventListener('toggle', draw);
  draw();
  return fold;
}

/**
 * The picture that a model is shown, as it is sent: a PNG or JPEG in base64. Null for anything else.
 * @param {HandleFacts['picture'] | undefined} source
 */
function pictureOf(source) {
  const { media_type: type, data } = dict(source);
  if (!type || !['image/png', 'image/jpeg', 'image/webp', 'image/gif'].includes(type) || !/^[A-Za-z0-9+/=]+$/.test(data ?? '')) return null;
  return h('img', { class: 'ctxk-picture', alt: 'The picture that a model is shown', src: `data:${type};base64,${data}` });
}

/** @param {readonly (readonly any[])[]} pairs names and values */
function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== '');
  return shown.length
    ? h(
        'dl',
        { class: 'ctxk-facts' },
        shown.map(([k, v]) =>
          h('div', null, h('dt', null, k), h('dd', null, typeof v === 'object' ? JSON.stringify(v) : v))
        )
      )
    : null;
}

/** @param {string} title @param {string} [text] @param {string} [code] */
function emptyState(title, text, code) {
  return h(
    'div',
    { class: 'ctxk-empty' },
    h('strong', null, title),
    text && h('p', null, text),
    code && codeLine(code)
  );
}

/** A line to run, with a button that copies it. @param {string} code */
function codeLine(code) {
  const copy = h('button', { class: 'ctxk-link', type: 'button', title: 'Copy this line' }, 'copy');
  copy.addEventListener('click', async () => {
    copy.textContent = (await copyText(code)) ? 'copied' : 'not allowed';
    setTimeout(() => (copy.textContent = 'copy'), 2000);
  });
  return h('div', { class: 'ctxk-codeline' }, h('code', null, code), copy);
}

/** @param {string} text */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

export { badge, bar, pre, heading, foldedText, foldable, pictureOf, facts, emptyState, codeLine, copyText };
