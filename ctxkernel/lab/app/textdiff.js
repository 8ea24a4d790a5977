/** The difference of two texts, line by line. Pure but for `drawDiff`. */

import { h } from './elements.js';
import { marked } from './text.js';

/** @typedef {{kind: 'same' | 'old' | 'new', text: string}} DiffLine */

/** More pairs of lines than these are not compared one by one. */
const MOST_PAIRS = 250_000;
/** Lines round a change that are shown. */
const ROUND = 2;

/**
 * The lines of both texts: those of `before` alone, of `after` alone, and of both.
 * @param {string} before @param {string} after @returns {DiffLine[]}
 */
function diffLines(before, after) {
  const [a, b] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  /** @param {DiffLine['kind']} kind @returns {(text: string) => DiffLine} */
  const as = (kind) => (text) => ({ kind, text });
  const middle = x.length * y.length > MOST_PAIRS ? [...x.map(as('old')), ...y.map(as('new'))] : common(x, y);
  return [...a.slice(0, start).map(as('same')), ...middle, ...a.slice(a.length - end).map(as('same'))];
}

/** By the longest common subsequence. @param {string[]} x @param {string[]} y */
function common(x, y) {
  const width = y.length + 1;
  const longest = new Uint32Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i -= 1)
    for (let j = y.length - 1; j >= 0; j -= 1)
      longest[i * width + j] =
        x[i] === y[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  /** @type {DiffLine[]} */
  const out = [];
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      out.push({ kind: 'same', text: x[i] });
      i += 1;
      j += 1;
    } else if (j === y.length || (i < x.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      out.push({ kind: 'old', text: x[i] });
      i += 1;
    } else {
      out.push({ kind: 'new', text: y[j] });
      j += 1;
    }
  }
  return out;
}

/**
 * The difference as an element; a screen reader hears which lines go and which come. Long parts that are the same are left
 * out.
 * @param {string} before @param {string} after
 */
function drawDiff(before, after) {
  const lines = diffLines(before, after);
  const near = lines.map((_, i) => lines.slice(Math.max(0, i - ROUND), i + ROUND + 1).some((one) => one.kind !== 'same'));
  const box = h('div', { class: 'ctxk-nbdiff', role: 'group', 'aria-label': 'Difference of the texts' });
  let left = 0;
  const skip = () => {
    if (left) box.append(h('div', { class: 'ctxk-nbdiffskip' }, `${left} more line${left === 1 ? '' : 's'}`));
    left = 0;
  };
  lines.forEach(({ kind, text }, i) => {
    if (!near[i]) return void (left += 1);
    skip();
    const sign = { same: ' ', old: '−', new: '+' }[kind];
    const said = { same: '', old: 'now: ', new: 'then: ' }[kind];
    const line = h('div', { class: `ctxk-nbdiffline ctxk-nbdiff-${kind}` });
    line.append(
      h('span', { class: 'ctxk-nbdiffsign', 'aria-hidden': 'true' }, sign),
      said && h('span', { class: 'ctxk-nbsr' }, said),
      document.createTextNode(marked(text))
    );
    box.append(line);
  });
  skip();
  return box;
}

export { diffLines, drawDiff };
