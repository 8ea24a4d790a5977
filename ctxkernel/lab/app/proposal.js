/**
 * A cell of the model: what it wants to run, with the buttons that decide on it, or what became of it. One card for the
 * panel, the inline panel and the output of the cell that asked.
 *
 * Rule 1: only what the kernel says waits has buttons; a saved or an older card has none.
 * Rule 2: a card decides once: its buttons rest from the click to the answer, and while a cell runs.
 * Rule 3: a key that was on its way when the card took the keyboard decides nothing.
 * Rule 4: the code is shown as it runs: all of it, with marks for characters that are not seen. A card whose code is not
 *         that of what waits has no buttons, whatever its id is.
 */

import { codeLine } from './components.js';
import { find, findAll, h } from './elements.js';
import { icon } from './icons.js';
import { clean, escaped, marked, quoted } from './text.js';
import { dict, number, plural, textOf } from './values.js';

/** @import {Proposal} from '../messages.js' */

/** Lines and characters above which a card says how long its code is: it scrolls. */
const LONG_LINES = 12;
const LONG_CHARS = 1200;

/** How long after it took the keyboard by itself a card runs nothing by Enter. */
const UNASKED_MS = 700;

/** What a cell is called, and the word for what became of it. @type {Record<string, [string, string]>} */
const FATES = {
  waits: ['The model proposes a cell', ''],
  approved: ['The model’s cell', ''],
  edited: ['The model’s cell', 'edited by you'],
  rejected: ['The model proposed a cell', 'rejected'],
  stopped: ['The model proposed a cell', 'not run'],
  held: ['The model’s cell', 'held: what it had seen changed']
};

const UNSEEN = 'It has characters that are not seen, shown as ⟨U+…⟩. Edit writes them as escapes.';

/** @type {Record<string, string>} */
const SENT = { waits: 'It waits', approved: 'You let it be sent', stopped: 'Not sent' };

/**
 * @typedef {'look' | 'edit' | 'reject'} Mode
 * @typedef {{live: boolean | null, busy: boolean, told: string}} Stand `live`: whether it waits; null: not known
 */

/**
 * What a card needs of where it stands.
 * @typedef {object} CardHost
 * @property {((code: string) => void) | null} decide run a `%ctx` line; null where only the user can
 * @property {() => void} [leave] put the keyboard back to where it belongs
 * @property {(code: string, el: HTMLElement) => void} [highlight] add code to an element, in colours
 */

class Card {
  /** @param {Partial<Proposal> | null | undefined} proposal @param {CardHost} host */
  constructor(proposal, host) {
    this.proposal = dict(proposal);
    this.host = host;
    /** What is open in it: the code as it is, its editor, or the reason of a rejection. @type {Mode} */
    this.mode = 'look';
    /** @type {Stand} */
    this.now = { live: false, busy: false, told: '' };
    this.foot = h('div', null);
    this.error = h('p', null);
    /** The field of the cell, or of the reason. @type {HTMLTextAreaElement | HTMLInputElement | null} */
    this.field = null;
    /** What the user typed: the cell … @type {string | undefined} */
    this.draft = undefined;
    /** … and the reason. */
    this.why = '';
    /** The time from which on the card takes a key. */
    this.settled = 0;
    /**
     * Keys in the card, on the window: Notebook 7 looks for shortcuts on the document, in the capturing phase.
     * @param {KeyboardEvent} event
     */
    this.onKey = (event) => {
      if (event.target instanceof Node && this.el.contains(event.target)) this.key(event);
      else window.removeEventListener('keydown', this.onKey, true);
    };
    this.el = h('div', {
      class: 'ctxk-card-of-model',
      role: 'group',
      tabindex: '0',
      'aria-label': 'The model’s proposal',
      onfocusin: () => window.addEventListener('keydown', this.onKey, true)
    });
    this.draw();
  }

  get isCell() {
    return this.proposal.kind !== 'send';
  }

  /** @param {Stand} now */
  update(now) {
    const was = this.now;
    if (was.live === now.live && was.busy === now.busy && was.told === now.told) return;
    this.now = now;
    if (was.live !== now.live) {
      this.mode = 'look';
      this.draw();
    } else this.tell();
  }

  draw() {
    const { proposal, now } = this;
    const state = typeof proposal.state === 'string' && Object.hasOwn(FATES, proposal.state) ? proposal.state : 'waits';
    const waits = state === 'waits';
    this.el.dataset.state = now.live ? 'waits' : state;
    this.el.tabIndex = now.live ? 0 : -1;
    const [named, word] = FATES[state];
    const by = proposal.ask ? 'model' : 'agent';
    const title = by === 'agent' ? named.replace('The model', 'An agent') : named;
    const gone = waits && now.live === false ? (this.isCell ? 'no longer waits' : 'decided') : word;
    const more = number(proposal.more) ?? 0;
    this.foot = h('div', { class: 'ctxk-decide' });
    this.error = h('p', { class: 'ctxk-cardtold', role: 'status', hidden: true });
    this.el.title = '';
    if (!this.isCell && !now.live) {
      this.el.title = clean(proposal.told);
      const line = gone === 'decided' ? clean(proposal.told) : `${SENT[state]}: ${clean(proposal.told)}`;
      return this.el.replaceChildren(icon('model'), h('span', { class: 'ctxk-senttold' }, line));
    }
    this.el.replaceChildren(
      h(
        'div',
        { class: 'ctxk-cardhead' },
        icon(by),
        h('strong', null, this.isCell ? title : 'Send to the model?'),
        this.isCell && this.sizes(),
        now.live && more > 0 && h('span', { class: 'ctxk-muted' }, `and ${plural(more, 'more cell')} after it`),
        gone && h('span', { class: 'ctxk-tag' }, gone)
      )
    );
    if (this.isCell) this.el.append(this.mode === 'edit' && now.live ? this.editor() : this.code());
    const unseen = this.isCell && marked(proposal.code) !== textOf(proposal.code).replace(/\r\n/g, '\n');
    if (unseen) this.el.append(h('p', { class: 'ctxk-cardtext ctxk-unseen' }, UNSEEN));
    else if (proposal.told && gone !== 'no longer waits') this.el.append(h('p', { class: 'ctxk-cardtext' }, clean(proposal.told)));
    if (proposal.reason) this.el.append(h('p', { class: 'ctxk-cardtext ctxk-muted' }, clean(proposal.reason)));
    this.el.append(this.foot, this.error);
    this.foot.hidden = !now.live;
    if (now.live) this.foot.append(...this.buttons());
    this.tell();
  }

  /** What may change while the card stays as it is. */
  tell() {
    for (const button of findAll(this.foot, 'button[data-decides]'))
      if (button instanceof HTMLButtonElement) button.disabled = this.now.busy;
    this.error.textContent = clean(this.now.told);
    this.error.hidden = !this.now.live || !this.now.told;
  }

  /** How long the code is, where it is longer than what is seen of it. */
  sizes() {
    const text = marked(this.proposal.code).trimEnd();
    const lines = text.split('\n').length;
    const told = `${plural(lines, 'line')}, ${plural(text.length, 'character')}`;
    return (lines > LONG_LINES || text.length > LONG_CHARS) && h('span', { class: 'ctxk-muted ctxk-sizes' }, told);
  }

  code() {
    const text = marked(this.proposal.code).trimEnd();
    const el = h('pre', { class: 'ctxk-pre ctxk-cardcode' });
    if (this.host.highlight) this.host.highlight(text, el);
    else el.textContent = text;
    return el;
  }

  editor() {
    const text = this.draft ?? escaped(this.proposal.code);
    const field = h('textarea', {
      class: 'ctxk-cardcode ctxk-edit',
      spellcheck: 'false',
      'aria-label': 'The cell, to be edited',
      rows: Math.min(16, Math.max(3, text.split('\n').length + 1)),
      oninput: () => (this.draft = field.value)
    });
    field.value = text;
    this.field = field;
    return field;
  }

  /** @returns {Node[]} */
  buttons() {
    const { decide } = this.host;
    if (!decide) return [this.lines()];
    /**
     * @param {string} text
     * @param {string} title
     * @param {() => void} run
     * @param {{class?: string, 'data-decides'?: string, 'data-first'?: string}} [parts]
     */
    const make = (text, title, run, parts = {}) =>
      h('button', { class: 'ctxk-button', type: 'button', title, onclick: run, ...parts }, text);
    const primary = { class: 'ctxk-button ctxk-primary', 'data-decides': '', 'data-first': '' };
    const plain = { 'data-decides': '' };
    const stop = make('Stop', 'End the ask: nothing of this runs, and the model is not asked again', () => decide('%ctx stop'), {
      class: 'ctxk-button ctxk-quiet',
      'data-decides': ''
    });
    if (!this.isCell)
      return [
        make('Send', 'Send it, and all that this session asks from now on (Enter)', () => this.run(), primary),
        make('Don’t send', 'End the ask: nothing is sent', () => decide('%ctx stop'), plain)
      ];
    if (this.mode === 'edit')
      return [
        make('Run edited', 'Run the cell as it stands here (Shift+Enter)', () => this.runEdited(), primary),
        make('Cancel', 'Back to the cell as the model wrote it (Escape)', () => this.open('look'))
      ];
    if (this.mode === 'reject') {
      const field = h('input', {
        class: 'ctxk-input',
        type: 'text',
        placeholder: 'Why not? The model is told',
        'aria-label': 'Why not: the model is told',
        oninput: () => (this.why = field.value)
      });
      field.value = this.why;
      this.field = field;
      return [
        field,
        make('Reject', 'Do not run it, and tell the model why (Enter)', () => this.reject(), primary),
        make('Cancel', 'Back (Escape)', () => this.open('look'))
      ];
    }
    return [
      make('Run', 'Run this cell (Enter)', () => this.run(), primary),
      make('Run all', 'Run this cell and all that follow in this ask', () => decide('%ctx approve --all'), plain),
      make('Edit', 'Change the cell, then run it (E)', () => this.open('edit'), plain),
      make('Reject', 'Do not run it; tell the model why (R)', () => this.open('reject'), plain),
      stop
    ];
  }

  /** Where no button can act: what the user can run. */
  lines() {
    return h(
      'div',
      { class: 'ctxk-cardlines' },
      h('p', { class: 'ctxk-hint' }, 'Run one of these in a cell:'),
      (this.isCell ? ['%ctx approve', '%ctx reject "why not"', '%ctx stop'] : ['%ctx approve', '%ctx stop']).map(codeLine)
    );
  }

  /** @param {Mode} mode */
  open(mode) {
    if (!this.now.live || (mode !== 'look' && (this.now.busy || !this.isCell))) return;
    this.mode = mode;
    this.draw();
    if (mode === 'look') this.focus();
    else this.field?.focus();
  }

  run() {
    this.decide('%ctx approve');
  }

  runEdited() {
    const text = this.field?.value ?? '';
    if (text.trim()) this.decide(text === textOf(this.proposal.code).replace(/\r\n/g, '\n') ? '%ctx approve' : `%%ctx edit\n${text}`);
  }

  reject() {
    const why = this.field?.value.trim() ?? '';
    this.decide(why ? `%ctx reject ${quoted(why)}` : '%ctx reject');
  }

  /** Do not run it, or do not send it: the reason is asked for where the model is told one. */
  refuse() {
    if (this.isCell) this.open('reject');
    else this.decide('%ctx stop');
  }

  /** @param {string} code */
  decide(code) {
    if (this.now.live && !this.now.busy) this.host.decide?.(code);
  }

  /** Take the keyboard; `unasked` where nobody did anything for it. */
  focus(unasked = false) {
    this.settled = performance.now() + (unasked ? UNASKED_MS : 0);
    (find(this.el, '[data-first]:not(:disabled)') ?? this.el).focus({ preventScroll: unasked });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { target, key } = event;
    if (!this.now.live || event.isComposing) return;
    const plainKey = !event.ctrlKey && !event.metaKey && !event.altKey;
    const typing = target === this.field;
    const act = () => {
      event.preventDefault();
      event.stopPropagation();
    };
    if (key === 'Escape') {
      act();
      if (this.mode !== 'look') this.open('look');
      else if (this.host.leave) this.host.leave();
      else if (target instanceof HTMLElement) target.blur();
    } else if (typing && this.mode === 'edit') {
      event.stopPropagation();
      if (key !== 'Enter' || !(event.shiftKey || event.ctrlKey || event.metaKey)) return;
      act();
      this.runEdited();
    } else if (typing) {
      event.stopPropagation();
      if (key !== 'Enter') return;
      act();
      this.reject();
    } else if (plainKey && (key === 'Enter' || key === ' ')) {
      // A button is pressed by it, as everywhere; the card itself, and Run, run.
      event.stopPropagation();
      if (performance.now() < this.settled) event.preventDefault();
      else if (target === this.el && key === 'Enter' && !event.shiftKey && this.mode === 'look') {
        act();
        this.run();
      }
    } else if (this.mode === 'look' && plainKey && this.isCell && (key === 'e' || key === 'r') && this.host.decide) {
      act();
      this.open(key === 'e' ? 'edit' : 'reject');
    }
  }
}

export { Card };
