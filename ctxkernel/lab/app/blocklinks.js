/** Links from one place of the panel to another: to the row of a statement, and to a block of the projection. */

import { bringToMiddle, findAll, flash, h } from './elements.js';
import { makeNow } from './lazylist.js';
import { runOf } from './rownames.js';
import { clean } from './text.js';
import { list } from './values.js';

/** @import {View} from './view.js' */

/** A name that has the text that is seen in it, so that it can be spoken. @param {string} name @param {string} text */
const named = (name, text) => (name.includes(text) ? name : `${text}: ${name}`);

/**
 * A statement's id, as a button that goes to its row where it is one.
 * @param {View} view
 * @param {string | undefined} id
 * @param {string} [text]
 */
function statementLink(view, id, text = clean(id)) {
  const run = runOf(id);
  if (!/^s\d+/.test(run)) return h('code', null, id);
  return h(
    'button',
    {
      class: 'ctxk-link ctxk-where',
      type: 'button',
      'aria-label': named(`Show statement ${run} in the timeline`, clean(text)),
      title: 'Show its row in the timeline',
      onclick: () => view.showRun(run)
    },
    text
  );
}

/**
 * A block's id, as a button that goes to it where it is shown.
 * @param {View} view
 * @param {string | null | undefined} id
 * @param {string | null | undefined} [text]
 */
function blockLink(view, id, text = id) {
  const shown = list(view.blocks?.blocks).some((block) => block?.id === id);
  if (!id || !shown) return h('code', { class: 'ctxk-blockid' }, id);
  return h(
    'button',
    {
      class: 'ctxk-link ctxk-where',
      type: 'button',
      'aria-label': named(`Show block ${clean(id)}`, clean(text)),
      title: 'Show the block',
      onclick: () => view.showBlock(id)
    },
    text
  );
}

/** @param {View} view @param {string} id */
const blockOf = (view, id) =>
  findAll(view.sections.projection, '[data-block]').find((el) => el.dataset.block === id);

/** Bring a block into view, with the keyboard. @param {View} view @param {string} id */
function goToBlock(view, id) {
  const el = blockOf(view, id);
  if (!el) return;
  makeNow(el);
  bringToMiddle(view.sections.projection, el);
  el.focus({ preventScroll: true });
  flash(el);
  // Blocks that come into view get their real heights.
  requestAnimationFrame(() => bringToMiddle(view.sections.projection, el));
}

export { blockLink, blockOf, goToBlock, statementLink };
