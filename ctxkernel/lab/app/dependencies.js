/** A cell in the graph of the notebook: the cells that it reads from, why it is stale, and the cells that read from it. */

import { h } from './elements.js';
import { dict, list, plural, textOf } from './values.js';

/** @import {Returning} from './returning.js' */

/** Cells of one side of the graph that are shown. */
const MOST_LINKS = 30;

/** Show the graph around a cell. @param {Returning} returning @param {string} cellId @returns {Promise<void>} */
async function showDependencies(returning, cellId) {
  const { view } = returning;
  const node = view.nodeOfCell(cellId);
  if (!node || !(await returning.ready())) return;
  const statement = textOf(node.row.statement_id);
  const answer = await view.actions.gesture?.(`%ctx why stale ${statement} --json`);
  if (!answer?.ok) return returning.tell(answer?.text || 'The kernel gave no answer.', { tone: 'error' });
  /** @type {Record<string, any>} */
  let told;
  try {
    told = dict(JSON.parse(answer.text));
  } catch {
    return returning.tell('The kernel gave no answer that can be read.', { tone: 'error' });
  }
  /** @param {Record<string, any>} one */
  const link = (one) =>
    h(
      'button',
      { class: 'ctxk-link', type: 'button', onclick: () => void view.actions.goto?.(textOf(one.cell)) },
      textOf(one.statement)
    );
  /** @param {string} title @param {any[]} cells */
  const side = (title, cells) => {
    const all = list(cells).map(dict);
    return h(
      'section',
      { class: 'ctxk-graphside' },
      h('h4', { class: 'ctxk-h' }, `${title} ${plural(all.length, 'cell')}`),
      h(
        'ul',
        null,
        all.slice(0, MOST_LINKS).map((one) =>
          h(
            'li',
            null,
            link(one),
            h('code', { class: 'ctxk-src' }, textOf(one.source)),
            h('span', { class: 'ctxk-muted' }, list(one.names).map(textOf).join(', '))
          )
        )
      )
    );
  };
  const because = list(told.because).map(textOf);
  return returning.show(
    `${statement} in the graph of cells`,
    [
      side('Reads from', told.reads),
      h(
        'section',
        { class: 'ctxk-graphnode' },
        h('p', null, h('b', null, `${statement} is ${textOf(told.state)}`), h('code', { class: 'ctxk-src' }, textOf(told.source))),
        because.length ? h('ul', null, because.map((one) => h('li', null, one))) : ''
      ),
      side('Read by', told.read_by)
    ],
    told.state === 'stale' && view.actions.allCells
      ? { confirm: 'Run affected…', onclick: () => returning.affected(), cancel: 'Close' }
      : { cancel: 'Close' }
  );
}

export { showDependencies };
