/**
 * A rendering of a handle as people read it: text, tables with bars, code in colours. For the panel and the widget.
 *
 * Rule 1: every text is untrusted, and enters the page as a text node (elements.js); of a message only texts and numbers are
 *         used, and each number is held within its bounds.
 */

import { h } from './elements.js';
import { clean } from './text.js';
import { list, number } from './values.js';

/** @import {Distribution, RenderingBlock, TableBlock} from '../messages.js' */

const STYLES = ['keyword', 'string', 'number', 'comment', 'definition', 'inserted', 'deleted'];

/**
 * Draw the blocks of a rendering; lines of text are wrapped where `wraps` says so, and beside tables and code.
 * @param {unknown} blocks
 * @param {boolean} wraps
 * @returns {HTMLElement[]}
 */
function drawBlocks(blocks, wraps) {
  const all = list(/** @type {RenderingBlock[]} */ (blocks));
  const wrap = wraps || all.length > 1 ? ' ctxk-r-wrap' : '';
  return all.map((block) => {
    if (block?.kind === 'table') return drawTable(block);
    if (block?.kind !== 'code') return h('pre', { class: `ctxk-r-text${wrap}` }, block?.text);
    const spans = list(block.spans).map((one) => {
      const [style, text] = list(one).map(clean);
      return STYLES.includes(style ?? '') ? h('span', { class: `ctxk-r-${style}` }, text) : (text ?? '');
    });
    return h('pre', { class: 'ctxk-r-text' }, spans);
  });
}

/** @param {TableBlock} block */
function drawTable(block) {
  const right = list(block.right);
  const bars = list(block.bars);
  const labels = number(block.labels) ?? 0;
  const side = (/** @type {number} */ at) => (right.includes(at) ? 'ctxk-r-right' : null);
  const head = list(block.head).map((cell, at) => h('th', { scope: 'col', class: side(at) }, cell));
  if (bars.length) head.splice(labels, 0, h('th', { scope: 'col' }, 'distribution'));
  const rows = list(block.rows).map((row, at) => {
    const cells = list(row).map((cell, column) =>
      column < labels
        ? h('th', { scope: 'row', class: side(column) }, cell)
        : h('td', { class: side(column) }, cell)
    );
    if (bars.length) cells.splice(labels, 0, h('td', null, drawBar(bars[at])));
    return h('tr', null, cells);
  });
  return h('table', { class: 'ctxk-r-table' }, head.length ? h('thead', null, h('tr', null, head)) : null, h('tbody', null, rows));
}

/** @param {Distribution | null | undefined} bar */
function drawBar(bar) {
  if (!bar) return null;
  const label = clean(bar.label);
  const svg = element('svg', { width: 90, height: 12, viewBox: '0 0 90 12', role: 'img', class: 'ctxk-r-bar', 'aria-label': label });
  for (const shape of list(bar.shapes)) {
    const [x, y, width, height, opacity] = list(shape).map((one) => Math.min(90, Math.max(0, number(one) ?? 0)));
    svg.append(element('rect', { x, y, width, height, opacity }));
  }
  return svg;
}

/** @param {string} tag @param {Record<string, unknown>} attributes */
function element(tag, attributes) {
  const one = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, String(value));
  return one;
}

export { drawBlocks };
