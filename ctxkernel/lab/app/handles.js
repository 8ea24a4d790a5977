/**
 * The section Handles: what is looked at, how much of it the model sees, and what that costs; level, budget and mode are
 * set in place. Every change is a gesture, so it is a statement.
 */

import { askKernel } from './askkernel.js';
import { handleActions } from './blockactions.js';
import { bar, emptyState, facts } from './components.js';
import { h, put } from './elements.js';
import { icon } from './icons.js';
import { priced } from './pricing.js';
import { drawBlocks } from './rendering.js';
import { clean } from './text.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {Handle} from '../messages.js' */
/** @import {PricedItem} from './pricing.js' */
/** @import {View} from './view.js' */

/** @type {Record<string, string>} */
const LODS = { 0: 'raw', 1: 'structure', 2: 'summary', 3: 'diff' };
/** What a dragged handle is called in the data of the drag. */
const DRAGGED = 'application/x-ctxkernel-handle';

/** A table with a row for each handle. @param {View} view */
function drawHandles(view) {
  if (!view.handles.length) {
    return emptyState(
      'No handles yet',
      'A handle shows a file, a folder or an object to the model, as coarse or fine as you choose, within a budget of tokens. Make one in a cell:',
      'v = view("data.csv")'
    );
  }
  const handles = view.handles.map(dict);
  const used = handles.reduce((sum, one) => sum + (number(one.rendered_tokens) ?? 0), 0);
  return [
    h('p', { class: 'ctxk-hint ctxk-handlesum' }, `${plural(handles.length, 'handle')}, ~${count(used)} tokens rendered`),
    h(
      'table',
      { class: 'ctxk-handles-table', 'aria-label': 'Handles' },
      h(
        'thead',
        null,
        h('tr', null, ['handle', 'level', 'budget', 'used', ''].map((name) => h('th', { scope: 'col' }, name || h('span', { class: 'ctxk-sr' }, 'actions'))))
      ),
      handles.map((one) => drawHandle(view, one, handles))
    )
  ];
}

/** @param {View} view @param {Partial<Handle>} x @param {Partial<Handle>[]} all */
function drawHandle(view, x, all) {
  const id = String(x.obj_id ?? x.name);
  const name = clean(x.name);
  const isOpen = view.openHandles.has(id);
  const used = number(x.rendered_tokens) ?? 0;
  const budget = number(x.tokens);
  const members = list(x.members);
  const body = h('div', { class: 'ctxk-details' });
  const details = h('tr', { class: 'ctxk-handledetails', hidden: !isOpen }, h('td', { colspan: '5' }, body));
  const toggle = h(
    'button',
    {
      class: 'ctxk-toggle',
      type: 'button',
      'aria-expanded': String(isOpen),
      'aria-label': `Rendering of ${name}`,
      'data-keep': `${id}\0toggle`
    },
    icon('chevron')
  );
  toggle.addEventListener('click', () => {
    const now = !view.openHandles.has(id);
    view.openHandles[now ? 'add' : 'delete'](id);
    if (now) fill(view, x, body);
    details.hidden = !now;
    toggle.setAttribute('aria-expanded', String(now));
  });
  if (isOpen) fill(view, x, body);
  const group = h(
    'tbody',
    { class: 'ctxk-card', 'data-handle': name },
    h(
      'tr',
      null,
      h(
        'th',
        { scope: 'row' },
        h(
          'div',
          { class: 'ctxk-handlename' },
          toggle,
          h('b', { class: 'ctxk-mono', title: name }, name),
          x.obj_type !== 'view' && h('span', { class: 'ctxk-tag' }, x.obj_type),
          x.pinned && h('span', { class: 'ctxk-tag ctxk-pinned', title: x.pin_reason || 'pinned' }, icon('pin', 'pinned')),
          x.changed && h('span', { class: 'ctxk-tag ctxk-changedtag', title: 'It changed in the last turn' }, '●', h('span', { class: 'ctxk-sr' }, ' changed'))
        )
      ),
      h('td', null, levelField(view, x, name, id)),
      h('td', null, budgetField(view, x, name, id)),
      h('td', { class: 'ctxk-tokens', title: `its rendering has ~${count(used)} tokens` }, `~${count(used)}`),
      h('td', { class: 'ctxk-handleacts' }, h('div', null, modeButton(view, x, name, id), moreButton(view, x, name, id, all)))
    ),
    h(
      'tr',
      { class: 'ctxk-handletarget' },
      h(
        'td',
        { colspan: '5' },
        budget ? bar(used / budget, used > budget ? 'error' : 'plain') : null,
        members.length
          ? h('p', { class: 'ctxk-target' }, sharesTold(x))
          : x.target && h('p', { class: 'ctxk-target ctxk-tail', title: x.target }, h('bdi', null, x.target))
      )
    ),
    details
  );
  makeDraggable(view, group, x, all);
  return group;
}

/** Members with their shares of the budget. @param {Partial<Handle>} x */
function sharesTold(x) {
  const shares = new Map(list(x.shares).map((one) => [clean(one?.name), number(one?.tokens) ?? 0]));
  const names = list(x.members).map(clean);
  return `${plural(names.length, 'member')}: ${names.map((one) => (shares.has(one) ? `${one} ~${count(shares.get(one))}` : one)).join(', ')}`;
}

/** @param {View} view @param {Partial<Handle>} x @param {HTMLElement} body */
function fill(view, x, body) {
  const box = h('div', null, h('p', { class: 'ctxk-hint' }, 'Reading its text…'));
  body.replaceChildren();
  put(
    body,
    facts([
      ['id', x.obj_id],
      ['target', x.target],
      ['position', x.pos],
      ['updates', x.obj_type === 'note' ? null : freqText(x.freq)],
      ['revision', x.revision]
    ]),
    list(x.notes).map((note) => h('p', { class: 'ctxk-note' }, note)),
    box
  );
  void askKernel(view.actions.ask, 'handle', { of: clean(x.obj_id) }).then((answer) => {
    box.replaceChildren();
    const found = 'handle' in answer ? answer.handle : null;
    if (!found) put(box, h('p', { class: 'ctxk-hint' }, answer.error || 'The kernel gave no answer.'));
    else if (!list(found.blocks).length) put(box, h('p', { class: 'ctxk-hint' }, 'Nothing is rendered for it.'));
    else put(box, h('div', { class: 'ctxk-r', tabindex: '0', role: 'region', 'aria-label': `what ${clean(x.name)} shows` }, drawBlocks(found.blocks, (number(x.lod) ?? 0) > 1)), found.more ? h('p', { class: 'ctxk-hint' }, `… ${count(found.more)} more characters`) : null);
  });
}

/* ------------------------------------------------------------ policies, in place */

/** Run a line; where that fails, the section shows again what holds. @param {View} view @param {string} line @param {string} [back] */
async function change(view, line, back = '') {
  const next = back ? { text: 'Undo', run: () => void change(view, back) } : null;
  const done = await view.returning.perform(line, 'Done.', next);
  if (!done) view.refresh('handles');
}

/** @param {View} view @param {Partial<Handle>} x @param {string} name @param {string} id */
function levelField(view, x, name, id) {
  const select = h(
    'select',
    { class: 'ctxk-input ctxk-lod', 'aria-label': `Level of detail of ${name}`, 'data-keep': `${id}\0lod` },
    Object.keys(LODS).map((lod) => h('option', { value: lod }, `${lod} ${LODS[lod]}`))
  );
  select.value = String(x.lod);
  select.addEventListener('change', () =>
    void change(view, `%ctx set ${name}.lod=${select.value}`, `%ctx set ${name}.lod=${x.lod}`)
  );
  return select;
}

/** @param {View} view @param {Partial<Handle>} x @param {string} name @param {string} id */
function budgetField(view, x, name, id) {
  const before = number(x.tokens) === null ? 'All' : String(x.tokens);
  const input = h('input', {
    class: 'ctxk-input ctxk-budget',
    type: 'text',
    inputmode: 'numeric',
    'aria-label': `Budget of ${name} in tokens, or All`,
    title: 'Tokens, or All for no limit; Enter sets it',
    spellcheck: 'false',
    'data-keep': `${id}\0budget`
  });
  input.value = view.drafts.get(`${id}\0budget`) ?? before;
  input.addEventListener('input', () => view.drafts.set(`${id}\0budget`, input.value));
  const leave = () => {
    view.drafts.delete(`${id}\0budget`);
    input.value = before;
    input.removeAttribute('aria-invalid');
  };
  const set = () => {
    const value = input.value.trim().replace(/[,_ ]/g, '');
    const wanted = /^all$/i.test(value) ? 'All' : /^[1-9]\d{0,8}$/.test(value) ? value : '';
    if (!wanted) return void input.setAttribute('aria-invalid', 'true');
    view.drafts.delete(`${id}\0budget`);
    if (wanted !== before) void change(view, `%ctx set ${name}.tokens=${wanted}`, `%ctx set ${name}.tokens=${before}`);
  };
  input.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    leave();
  });
  // The browser tells this for Enter, too.
  input.addEventListener('change', set);
  return input;
}

/** A note changes by calls only: it neither runs nor waits to. @param {View} view @param {Partial<Handle>} x @param {string} name @param {string} id */
function modeButton(view, x, name, id) {
  if (x.obj_type === 'note') return null;
  const paused = String(x.mode ?? '').toLowerCase() === 'paused';
  const [now, then] = paused ? ['paused', 'running'] : ['running', 'paused'];
  return h(
    'button',
    {
      class: `ctxk-button ctxk-mode${paused ? ' ctxk-paused' : ''}`,
      type: 'button',
      'aria-label': `${paused ? 'Run' : 'Pause'} ${name}`,
      title: paused ? 'Run: paused now, so it changes by calls only' : `Pause: it is updated now (${freqText(x.freq)})`,
      'data-keep': `${id}\0mode`,
      onclick: () => void change(view, `%ctx set ${name}.mode=${then}`, `%ctx set ${name}.mode=${now}`)
    },
    paused ? '▶' : '❚❚'
  );
}

/** @param {View} view @param {Partial<Handle>} x @param {string} name @param {string} id @param {Partial<Handle>[]} all */
function moreButton(view, x, name, id, all) {
  const button = h(
    'button',
    {
      class: 'ctxk-more',
      type: 'button',
      'aria-haspopup': 'menu',
      'aria-expanded': 'false',
      'aria-label': `What can be done with ${name}`,
      title: 'What can be done with it',
      'data-keep': `${id}\0more`
    },
    icon('more')
  );
  button.addEventListener('click', () => {
    const items = [...handleActions(view, x), ...groupActions(view, x, all)];
    view.menu.open(button, `Handle ${name}`, priced(view, items));
  });
  return button;
}

/* ------------------------------------------------------------ groups */

/** A name that Python code can use: a handle without one has only an id. @param {Partial<Handle>} x */
const nameOf = (x) => (/^[\p{L}_][\p{L}\p{N}_]*$/u.test(clean(x.name)) && x.name !== x.obj_id ? clean(x.name) : '');

/** Whether a handle may be put into a group. @param {Partial<Handle>} x @param {Partial<Handle>} group */
const fits = (x, group) =>
  group.obj_type === 'group' &&
  group.obj_id !== x.obj_id &&
  Boolean(nameOf(x) && nameOf(group)) &&
  !list(group.members).includes(clean(x.name)) &&
  !list(x.members).includes(clean(group.name));

/** @param {View} view @param {Partial<Handle>} x @param {Partial<Handle>} group */
const addTo = (view, x, group) =>
  void change(view, `${nameOf(group)}.add(${nameOf(x)});`, `${nameOf(group)}.remove(${nameOf(x)});`);

/**
 * What a drag does, by menu.
 * @param {View} view
 * @param {Partial<Handle>} x
 * @param {Partial<Handle>[]} all
 * @returns {PricedItem[]}
 */
function groupActions(view, x, all) {
  /** @type {PricedItem[]} */
  const items = [];
  for (const group of all) {
    if (fits(x, group)) items.push({ text: `Add to ${clean(group.name)}`, icon: 'fork', run: () => addTo(view, x, group) });
    const members = group.obj_type === 'group' ? list(group.members) : [];
    if (members.length < 2 || !members.includes(clean(x.name)) || !nameOf(x) || !nameOf(group)) continue;
    const [remove, add] = ['remove', 'add'].map((verb) => `${nameOf(group)}.${verb}(${nameOf(x)});`);
    items.push({ text: `Remove from ${clean(group.name)}`, icon: 'close', run: () => void change(view, remove, add) });
  }
  return items;
}

/** @param {View} view @param {HTMLElement} row @param {Partial<Handle>} x @param {Partial<Handle>[]} all */
function makeDraggable(view, row, x, all) {
  if (all.some((group) => fits(x, group))) {
    const grip = row.querySelector('.ctxk-handlename b');
    if (grip instanceof HTMLElement) {
      grip.draggable = true;
      grip.title = 'Drag it onto a group, or use its menu';
      grip.addEventListener('dragstart', (event) => event.dataTransfer?.setData(DRAGGED, clean(x.obj_id)));
    }
  }
  if (x.obj_type !== 'group') return;
  row.addEventListener('dragover', (event) => {
    if (!event.dataTransfer?.types.includes(DRAGGED)) return;
    event.preventDefault();
    row.classList.add('ctxk-drop');
  });
  row.addEventListener('dragleave', () => row.classList.remove('ctxk-drop'));
  row.addEventListener('drop', (event) => {
    row.classList.remove('ctxk-drop');
    const id = event.dataTransfer?.getData(DRAGGED);
    const dragged = all.find((one) => one.obj_id === id);
    if (!dragged) return;
    event.preventDefault();
    if (fits(dragged, x)) addTo(view, dragged, x);
  });
}

/** @param {any} freq */
function freqText(freq) {
  if (typeof freq === 'string') return freq.toLowerCase();
  const x = dict(freq);
  return clean(x.kind ?? x.name ?? JSON.stringify(freq));
}

export { drawHandles };
