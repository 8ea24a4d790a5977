/**
 * A handle in the output of a cell: what it shows, and what decides how much of it the model sees. An anywidget.
 *
 * Rule 1: every text is untrusted, and enters the page as a text node (elements.js).
 * Rule 2: nothing changes here. What a person does goes to the kernel as a gesture; what the kernel then says is drawn.
 * Rule 3: one gesture is under way at a time. What is wanted meanwhile goes together, as the next one.
 */

import { pictureOf } from '../app/components.js';
import { h } from '../app/elements.js';
import { clean } from '../app/text.js';
import { count } from '../app/values.js';
import { drawBlocks } from '../app/rendering.js';

/** @import {GestureChange, GestureDone, HandleFacts, RenderingBlock} from '../messages.js' */
/** @import {WidgetModel} from '../jupyterlab.js' */

/** @typedef {WidgetModel<{facts: HandleFacts, rendered: string, blocks: RenderingBlock[], own_id: string}>} Model */

/** The budgets that the slider stops at, in tokens; the last stop is no budget. */
const STOPS = [
  50, 100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 24000, 32000
];
const LEVELS = ['raw excerpt', 'structure', 'summary', 'diff'];
/** On each control: JupyterLab would else take its arrow keys, Enter and Space for the notebook. */
const OWN = 'data-lm-suppress-shortcuts';
const OWN_KEYS = { [OWN]: true };
const WIDGET = 'application/vnd.jupyter.widget-view+json';
/** So long no further step of a slider comes before what it stands at is sent. */
const REST_MS = 300;
/** A gesture that takes longer than this says that it waits. */
const WAIT_MS = 500;

let made = 0;
/**
 * The control that has the keyboard. A front end may draw an output anew while somebody is at it.
 * @type {{label: string, control: HTMLElement} | null}
 */
let held = null;

/** @param {{model: Model, el: HTMLElement}} shown */
function render({ model, el }) {
  /** What a person wants and has not been sent … @type {GestureChange | null} */
  let wanted = null;
  /** … and what is under way. @type {{id: string, change: GestureChange} | null} */
  let sent = null;
  let waits = false;
  let drawn = '';
  let failed = '';
  let dead = false;
  /** Where a slider stands that somebody has in hand. @type {GestureChange | null} */
  let moving = null;
  let rest = 0;
  let patience = 0;
  const calm = () => {
    clearTimeout(rest);
    clearTimeout(patience);
  };

  const id = `ctxk-live-${(made += 1)}-${Math.random().toString(36).slice(2, 8)}`;
  const name = h('b', { class: 'ctxk-live-name', id: `${id}-name` });
  const target = h('span', { class: 'ctxk-live-target' });
  const changed = h('span', { class: 'ctxk-live-changed' }, '● changed');
  const size = h('span', { class: 'ctxk-live-size' });
  const level = slider('Detail', 0, LEVELS.length - 1, (at) => ({ lod: at }));
  const budget = slider('Budget', 0, STOPS.length, (at) => ({ tokens: stops()[at] ?? null }));
  const mode = h('button', { type: 'button', 'data-control': 'mode', class: 'ctxk-live-button', ...OWN_KEYS });
  const again = h(
    'button',
    { type: 'button', 'data-control': 'again', class: 'ctxk-live-button', title: 'Look again, now', ...OWN_KEYS },
    '↻ Refresh'
  );
  const controls = h(
    'div',
    { class: 'ctxk-live-controls', role: 'group', 'aria-labelledby': `${id}-name` },
    level.el,
    budget.el,
    h('span', { class: 'ctxk-live-buttons' }, mode, again)
  );
  const notes = h('div', { class: 'ctxk-live-notes' });
  const text = h('div', { class: 'ctxk-r', tabindex: '0', role: 'region', 'aria-live': 'off' });
  const picture = h('div', { class: 'ctxk-live-picture' });
  const change = h('pre', { class: 'ctxk-live-text' });
  const last = h('details', { class: 'ctxk-live-change' }, h('summary', OWN_KEYS, 'last change'), change);
  const told = h('div', { class: 'ctxk-live-told', role: 'status' });
  const box = h(
    'section',
    { class: 'ctxk-live', 'aria-labelledby': `${id}-name` },
    h('div', { class: 'ctxk-live-head' }, name, target, changed, size),
    controls,
    notes,
    text,
    picture,
    last,
    told
  );
  mode.addEventListener('click', () => want({ mode: now().mode === 'running' ? 'paused' : 'running' }, 0));
  again.addEventListener('click', () => want({ refresh: true }, 0));

  /**
   * A labelled slider. What it asks for is sent where it is left: a drag that goes on sends nothing.
   * @param {string} label
   * @param {number} from
   * @param {number} to
   * @param {(at: number) => GestureChange} asks
   */
  function slider(label, from, to, asks) {
    const range = { type: 'range', min: from, max: to, step: 1 };
    const input = h('input', { ...range, 'aria-label': label, 'data-control': label, ...OWN_KEYS });
    const value = h('span', { class: 'ctxk-live-value' });
    input.addEventListener('input', () => {
      moving = asks(+input.value);
      draw();
    });
    input.addEventListener('change', () => {
      moving = null;
      want(asks(+input.value));
    });
    return { el: h('label', { class: 'ctxk-live-slider' }, h('span', null, label), input, value), input, value };
  }

  /** @param {HTMLElement} input @param {HTMLElement} value @param {string} words */
  function say(input, value, words) {
    value.textContent = words;
    input.setAttribute('aria-valuetext', words);
  }

  /** @param {number} at */
  const levelText = (at) => `${at} ${LEVELS[at] ?? ''}`;
  /** @param {unknown} tokens */
  const budgetText = (tokens) => (typeof tokens === 'number' ? `${count(tokens)} tokens` : 'no limit');
  /** What is so, with what is wanted on top of it. */
  const now = () => ({ ...model.get('facts'), ...sent?.change, ...wanted, ...moving });

  /** The stops of the budget's slider, the handle's own budget among them. */
  function stops() {
    const own = model.get('facts').tokens;
    return typeof own === 'number' && !STOPS.includes(own) ? [...STOPS, own].sort((a, b) => a - b) : STOPS;
  }

  /** @param {GestureChange} asked @param {number} [ms] */
  function want(asked, ms = REST_MS) {
    wanted = { ...wanted, ...asked };
    failed = '';
    clearTimeout(rest);
    rest = setTimeout(send, ms);
    draw();
  }

  function send() {
    if (sent || !wanted || dead) return;
    sent = { id: `${id}-${(made += 1)}`, change: wanted };
    wanted = null;
    waits = false;
    model.send({ type: 'gesture', id: sent.id, change: sent.change });
    patience = setTimeout(() => {
      waits = Boolean(sent);
      draw();
    }, WAIT_MS);
    draw();
  }

  /** @param {GestureDone | null | undefined} message */
  function answered(message) {
    if (message?.type !== 'done' || !sent || message.id !== sent.id) return;
    clearTimeout(patience);
    sent = null;
    waits = false;
    failed = clean(message.error);
    draw();
    if (wanted) want({}, 0);
  }

  function draw() {
    const facts = model.get('facts');
    if (!facts.obj_id) return;
    const is = now();
    const budgets = stops();
    const at = typeof is.tokens === 'number' ? budgets.indexOf(is.tokens) : budgets.length;
    const runs = is.mode === 'running';
    set(name, clean(facts.name));
    // A note looks at nothing: nothing of it runs.
    mode.hidden = again.hidden = facts.type === 'note';
    const goes = mode.hidden ? '' : runs ? `running ${clean(facts.freq)}` : 'paused';
    set(target, [facts.type, goes, facts.pinned && 'pinned', clean(facts.target)].filter(Boolean).join(' · '));
    target.title = clean(facts.target);
    changed.hidden = !facts.changed;
    const before = typeof facts.before === 'number' ? `~${count(facts.before)} → ` : '';
    set(size, `${before}~${count(facts.used)} tokens`);
    size.title = before ? 'tokens of the rendering, before its last change and now' : 'tokens of the rendering';
    level.input.value = String(is.lod);
    say(level.input, level.value, levelText(is.lod));
    budget.input.max = String(budgets.length);
    budget.input.value = String(at);
    say(budget.input, budget.value, budgetText(is.tokens));
    set(mode, runs ? '❚❚ Pause' : '▶ Run');
    mode.title = runs ? `It is updated after cells (${clean(facts.freq)}); pause it` : 'Have it updated after cells';
    controls.hidden = dead || facts.aside;
    set(notes, facts.notes.map(clean).join(' · '));
    notes.hidden = !notes.textContent;
    const more = `… ${count(facts.more)} more characters: show(${clean(facts.name)}).text has them`;
    const latest = JSON.stringify([model.get('blocks'), facts.lod > 1, facts.more]);
    if (latest !== drawn) {
      drawn = latest; // drawn anew, what a person has selected would be lost
      text.replaceChildren(...drawBlocks(model.get('blocks'), facts.lod > 1));
      if (facts.more) text.append(h('pre', { class: 'ctxk-r-text ctxk-r-wrap' }, more));
    }
    text.setAttribute('aria-label', `what ${clean(facts.name)} shows`);
    const seen = pictureOf(facts.picture);
    const old = picture.firstElementChild;
    const shown = old instanceof HTMLImageElement ? old.src : undefined;
    if (shown !== seen?.src) picture.replaceChildren(...(seen ? [seen] : []));
    picture.hidden = !seen;
    last.hidden = !facts.change;
    set(change, clean(facts.change));
    set(told, state(facts));
    told.hidden = !told.textContent;
    told.classList.toggle('ctxk-live-failed', Boolean(failed) && !dead);
  }

  /** What there is to say of the widget itself. @param {HandleFacts} facts */
  function state(facts) {
    if (dead)
      return 'The kernel that had this handle is gone; this is what it showed last. Resume the session, or run the cell again, for a live one.';
    if (facts.aside) return 'Made on another branch of the timeline: it stands as it was there.';
    if (failed) return `Not done: ${failed}`;
    return waits ? 'Waits until the running cell has ended.' : '';
  }

  /**
   * Set a text, where it is another one: what a person has selected stays selected.
   * @param {HTMLElement} one
   * @param {string} words
   */
  function set(one, words) {
    if (one.textContent !== words) one.textContent = words;
  }

  /** The kernel came or went: the manager knows, and a widget is told that something happened, not what. */
  async function lives() {
    const own = await model.widget_manager?.get_model?.(model.get('own_id')).catch(() => null);
    if (typeof own?.comm_live !== 'boolean') return;
    dead = !own.comm_live;
    if (dead) {
      calm();
      wanted = sent = moving = null;
    }
    draw();
  }

  model.on('change:facts', draw);
  model.on('change:blocks', draw);
  model.on('msg:custom', answered);
  model.on('comm_live_update', lives);
  box.addEventListener('focusin', ({ target: control }) => {
    if (control instanceof HTMLElement) held = { label: labelOf(control), control };
  });
  box.addEventListener('focusout', ({ target: control }) => {
    // Not where it was taken out of the page: then the one in its place gets the keyboard.
    setTimeout(() => {
      if (held?.control === control && held?.control.isConnected && document.hasFocus()) held = null;
    }, 0);
  });
  // Save, and run the cell, are the notebook's also from here. The window hears of a key before JupyterLab does.
  /** @param {KeyboardEvent} event */
  const keys = ({ target: control, ctrlKey, metaKey }) => {
    if (control instanceof Element && box.contains(control) && control.matches('[data-control]'))
      control.toggleAttribute(OWN, !ctrlKey && !metaKey);
  };
  window.addEventListener('keydown', keys, true);
  el.append(box);
  draw();
  setTimeout(() => {
    leaveTheText(model.get('own_id'));
    if (!held || held.control.isConnected || document.activeElement !== document.body) return;
    const { label } = held;
    [level.input, budget.input, mode, again].find((one) => labelOf(one) === label)?.focus({ preventScroll: true });
  }, 0);
  void lives();
  return () => {
    calm();
    window.removeEventListener('keydown', keys, true);
    model.off('change:facts', draw);
    model.off('change:blocks', draw);
    model.off('msg:custom', answered);
    model.off('comm_live_update', lives);
  };
}

/**
 * The classic notebook, opened again, would say of each widget that it is not found, where the text beside it could be
 * read. So there the widget goes as soon as it is drawn from what will be saved.
 * @param {string} id
 */
function leaveTheText(id) {
  for (const cell of window.Jupyter?.notebook?.get_cells?.() ?? [])
    for (const { data } of cell.output_area?.outputs ?? []) if (data?.[WIDGET]?.model_id === id) delete data[WIDGET];
}

/** What tells a control from the others of its widget. @param {HTMLElement} control */
const labelOf = (control) => control.dataset.control ?? '';

const widget = { render };

export { widget as default };
