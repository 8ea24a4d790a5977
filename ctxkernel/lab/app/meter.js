/** The meter of the projection: its tokens by part, its cost, what a provider's cache serves, and why that breaks. */

import { h } from './elements.js';
import { clean } from './text.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {Parts, Projection} from '../messages.js' */
/** @import {Child} from '../types.js' */

/** @type {Record<keyof Parts, string>} */
const PARTS = {
  system: 'the kernel’s instructions and the tools',
  history: 'statements, questions, answers, calls and results',
  groups: 'summaries of groups, and notes',
  handles: 'the table of handles, and contents that are pinned or shown',
  variables: 'the table of variables',
  deltas: 'what changed since the last request, and the status'
};
const COSTS =
  'What sending it would cost, no answer counted, where the one before was sent some minutes ago at most';

/**
 * @param {Partial<Projection>} p
 * @param {Child} breakLink a button that goes to where the cached prefix breaks
 * @param {...Child} buttons
 */
function drawMeter(p, breakLink, ...buttons) {
  const total = number(p.tokens) ?? 0;
  const budget = number(p.budget) ?? 0;
  const [cost, images, parts] = [dict(p.cost), dict(p.images), dict(p.parts)];
  const names = /** @type {(keyof Parts)[]} */ (Object.keys(PARTS));
  const shares = names
    .map((name) => /** @type {const} */ ([name, number(parts[name]) ?? 0]))
    .filter(([, tokens]) => tokens > 0);
  const cached = number(p.cached) ?? 0;
  const free = Math.max(0, budget - total);
  return h(
    'div',
    { class: 'ctxk-meter' },
    h(
      'p',
      { class: 'ctxk-meterline' },
      h('span', null, h('b', null, `~${count(total)}`), budget ? ` of ${count(budget)} tokens` : ' tokens'),
      cost.told
        ? h(
            'span',
            { class: 'ctxk-cost', title: `${COSTS}; prices of ${cost.as_of ?? 'an unknown date'}` },
            cost.told
          )
        : null
    ),
    budget ? stack(shares, budget, total > budget) : null,
    h(
      'ul',
      { class: 'ctxk-legend', 'aria-label': 'Tokens by part' },
      shares.map(([name, tokens]) =>
        h('li', { title: PARTS[name] }, h('span', { class: `ctxk-key ctxk-of-${name}` }), `${name} ~${count(tokens)}`)
      ),
      budget
        ? h('li', null, h('span', { class: 'ctxk-key ctxk-of-free' }), `free ~${count(free)} (${Math.round((100 * free) / budget)} %)`)
        : null,
      images.count
        ? h(
            'li',
            { title: 'The images among them, and their cost where they are not in the cache' },
            `${plural(images.count, 'image')} ~${count(images.tokens ?? 0)}${images.told ? `, ${clean(images.told)}` : ''}`
          )
        : null
    ),
    h(
      'p',
      { class: 'ctxk-hint' },
      [clean(p.model), plural(number(p.messages) ?? 0, 'message'), `~${count(cached)} cached`, `~${count(total - cached)} fresh`]
        .filter(Boolean)
        .join(' · ')
    ),
    p.broke
      ? h('p', { class: 'ctxk-broke', role: 'note' }, h('b', null, 'Cache: '), clean(p.broke), breakLink && [' ', breakLink])
      : null,
    list(buttons).some(Boolean) && h('div', { class: 'ctxk-buttons' }, ...buttons)
  );
}

/**
 * The budget as a bar, and how much of it each part takes.
 * @param {(readonly [keyof Parts, number])[]} shares
 * @param {number} budget
 * @param {boolean} isOver
 */
function stack(shares, budget, isOver) {
  const of = Math.max(budget, shares.reduce((sum, [, tokens]) => sum + tokens, 0));
  const el = h('span', { class: `ctxk-bar ctxk-stack${isOver ? ' ctxk-over' : ''}`, 'aria-hidden': 'true' });
  for (const [name, tokens] of shares) {
    const part = h('span', { class: `ctxk-of-${name}` });
    part.style.width = `${((100 * tokens) / of).toFixed(2)}%`;
    el.append(part);
  }
  return el;
}

export { drawMeter };
