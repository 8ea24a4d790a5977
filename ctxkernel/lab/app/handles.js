/** The section Handles: what is looked at, how much of it the model sees, and what that costs. */

import { bar, clean, count, dict, emptyState, facts, h, icon, list, number, plural, pre, put } from './base.js';

/** @import {Handle} from '../messages.js' */
/** @import {View} from './render.js' */

/** @type {Record<string, string>} */
const LODS = { 0: 'raw', 1: 'structure', 2: 'summary', 3: 'diff' };

/** One card a handle. @param {View} view */
function drawHandles(view) {
  if (!view.handles.length) {
    return emptyState(
      'No handles yet',
      'A handle is a live look at something, and decides what the model sees of it. Make one in a cell:',
      'v = view("data.csv")'
    );
  }
  return h(
    'ul',
    { class: 'ctxk-cards' },
    view.handles.map((raw) => drawHandle(view, dict(raw)))
  );
}

/** @param {View} view @param {Partial<Handle>} x */
function drawHandle(view, x) {
  const id = String(x.obj_id ?? x.name);
  const isOpen = view.openHandles.has(id);
  const used = number(x.rendered_tokens) ?? 0;
  const budget = number(x.tokens);
  const members = list(x.members);
  const paused = String(x.mode ?? '').toLowerCase() === 'paused';
  const body = h('div', { class: 'ctxk-details', hidden: !isOpen });
  const fill = () => {
    if (body.childElementCount) return;
    put(
      body,
      facts([
        ['id', x.obj_id],
        ['target', x.target],
        ['position', x.pos],
        ['revision', x.revision]
      ]),
      list(x.notes).map((note) => h('p', { class: 'ctxk-note' }, note)),
      x.text ? pre(x.text) : h('p', { class: 'ctxk-hint' }, 'Nothing is rendered for it.')
    );
  };
  const toggle = h(
    'button',
    {
      class: 'ctxk-toggle',
      type: 'button',
      'aria-expanded': String(isOpen),
      'aria-label': `Rendering of ${clean(x.name)}`
    },
    icon('chevron')
  );
  const flip = () => {
    const now = !view.openHandles.has(id);
    view.openHandles[now ? 'add' : 'delete'](id);
    if (now) fill();
    body.hidden = !now;
    toggle.setAttribute('aria-expanded', String(now));
  };
  toggle.addEventListener('click', flip);
  if (isOpen) fill();
  return h(
    'li',
    { class: 'ctxk-card', 'data-handle': x.name },
    h(
      'div',
      { class: 'ctxk-cardline' },
      toggle,
      h(
        'button',
        { class: 'ctxk-open', type: 'button', onclick: flip, tabindex: '-1' },
        h('b', { class: 'ctxk-mono' }, x.name),
        h('span', { class: 'ctxk-tag' }, x.obj_type),
        x.pinned && h('span', { class: 'ctxk-tag ctxk-pinned' }, icon('pin'), 'pinned'),
        x.changed && h('span', { class: 'ctxk-tag ctxk-mark' }, '● changed')
      ),
      h(
        'span',
        {
          class: 'ctxk-tokens',
          title: `its rendering has ~${count(used)} tokens${budget ? `, its budget is ${count(budget)}` : ''}`
        },
        `~${count(used)}`,
        budget ? ` / ${count(budget)}` : '',
        h('span', { class: 'ctxk-wide' }, ' tokens')
      )
    ),
    budget ? bar(used / budget, used > budget ? 'error' : 'plain') : null,
    x.target &&
      !members.length &&
      h('p', { class: 'ctxk-target ctxk-tail', title: x.target }, h('bdi', null, x.target)),
    members.length > 0 &&
      h('p', { class: 'ctxk-target' }, `${plural(members.length, 'member')}: ${members.join(', ')}`),
    h(
      'p',
      { class: 'ctxk-policy' },
      h(
        'span',
        { title: LODS[x.lod] ? `level of detail ${x.lod}: ${LODS[x.lod]}` : 'level of detail' },
        `LOD ${x.lod ?? '?'}${LODS[x.lod] ? ` ${LODS[x.lod]}` : ''}`
      ),
      // A note changes by calls only: it neither runs nor waits to.
      x.obj_type !== 'note' && x.freq !== undefined && x.freq !== null && h('span', null, freqText(x.freq)),
      x.obj_type !== 'note' &&
        h('span', { class: paused ? 'ctxk-paused' : null }, paused ? '❚❚ paused' : '▶ running')
    ),
    body
  );
}

/** @param {any} freq */
function freqText(freq) {
  if (typeof freq === 'string') return freq.toLowerCase();
  const x = dict(freq);
  return clean(x.kind ?? x.name ?? JSON.stringify(freq));
}

export { drawHandles };
