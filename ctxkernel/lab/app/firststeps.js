/** The first-run hint of the panel. */

import { h } from './elements.js';
import { icon } from './icons.js';

/**
 * What the host remembers of the hint.
 * @typedef {object} Hint
 * @property {() => boolean} wanted whether it was not dismissed yet
 * @property {() => void} dismiss for good
 */

/** @type {readonly (readonly [string, string])[]} */
const STEPS = [
  ['See what a cell did', 'Run cells. Each has a row here with the names that it changed; open a row for its output and its files.'],
  ['Go back', 'The menu of a row restores the state after it, in milliseconds and without running anything. Nothing is lost.'],
  ['Ask', 'Begin a cell with %%ask to ask a model. The section Projection shows all that it would be sent, before anything is.']
];

/** Three things that a newcomer can do. @param {Hint} hint @param {() => void} redraw */
function firstHint(hint, redraw) {
  return h(
    'section',
    { class: 'ctxk-banner ctxk-tone-info ctxk-first', 'data-banner': 'hint', 'aria-label': 'First steps' },
    h(
      'ul',
      null,
      STEPS.map(([name, text]) => h('li', null, h('b', null, name), ' ', text))
    ),
    h(
      'button',
      {
        class: 'ctxk-close',
        type: 'button',
        title: 'Do not show this again',
        'aria-label': 'Do not show the first steps again',
        onclick: () => {
          hint.dismiss();
          redraw();
        }
      },
      icon('close')
    )
  );
}

export { firstHint };
