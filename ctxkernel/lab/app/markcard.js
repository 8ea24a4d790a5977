/** What a mark stands for, and what can be done with its cell: a dialog beside the mark. One for each notebook. */

import { find, h } from './elements.js';
import { nameOf } from './marks.js';
import { AUTHORS } from './rownames.js';
import { list } from './values.js';

/** @import {Cell} from '../jupyterlab.js' */
/** @import {Gutter} from './gutter.js' */

class MarkCard {
  /** @param {Gutter} gutter */
  constructor(gutter) {
    this.gutter = gutter;
    /** @type {HTMLElement | null} */
    this.box = null;
    /** @type {HTMLElement | null} the mark beside which it is open */
    this.from = null;
    /** @param {PointerEvent} event */
    this.outside = ({ target }) => {
      if (target instanceof Node && !this.box?.contains(target) && !this.from?.contains(target)) this.close(false);
    };
  }

  /** Open for a cell, or close where it is open for it. @param {Cell} cell */
  open(cell) {
    const { gutter } = this;
    const beside = gutter.beside.get(cell);
    const again = this.box !== null && this.from === beside?.button;
    this.close(again);
    if (again || !beside?.look) return;
    const { look, button } = beside;
    const [first, ...rest] = gutter.lines(cell, look);
    this.from = button;
    this.box = h(
      'div',
      {
        class: 'ctxk-nb ctxk-markcard',
        role: 'dialog',
        'aria-label': look.name ? `Statement ${look.name}` : 'This cell',
        'data-lm-suppress-shortcuts': 'true',
        tabindex: '-1',
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event)
      },
      h('p', { class: 'ctxk-cardfirst' }, first),
      rest.length ? h('ul', null, rest.map((line) => h('li', null, line))) : '',
      this.factLine(cell),
      h('div', { class: 'ctxk-cardbuttons' }, this.buttons(cell))
    );
    document.body.append(this.box);
    this.place(button);
    (find(this.box, 'button') ?? this.box).focus();
    document.addEventListener('pointerdown', this.outside, true);
  }

  /** @param {Cell} cell */
  factLine(cell) {
    const mark = this.gutter.marks.cells.get(cell.model.id);
    if (!mark) return null;
    const told = [
      cell.model.executionCount && `In [${cell.model.executionCount}] of Jupyter`,
      mark.author && `by ${AUTHORS[mark.author] ?? mark.author}`,
      mark.checkpoint && `checkpoint ${mark.checkpoint}`
    ].filter(Boolean);
    return h('p', { class: 'ctxk-cardfacts' }, told.join(' · '));
  }

  /** @param {Cell} cell */
  buttons(cell) {
    const { host, live, beside } = this.gutter;
    const mark = this.gutter.marks.cells.get(cell.model.id);
    const look = beside.get(cell)?.look;
    const kept = host.keptTexts(cell);
    /** @param {string} text @param {() => void} run */
    const act = (text, run) =>
      h(
        'button',
        {
          class: 'ctxk-linkbutton',
          type: 'button',
          onclick: () => {
            this.close(true);
            run();
          }
        },
        text
      );
    const upstream = list(mark?.upstream).map((id) => {
      const at = host.cellOf(id);
      return at !== null && act(`Go to ${id}`, () => void host.goto(at));
    });
    return [
      live && (look?.foreign || this.gutter.misses(cell)) && mark?.on_head && act(`Show it as it ran here (${nameOf(mark.on_head)})…`, () => host.follow(cell)),
      live && act('Run this cell', () => host.run(cell)),
      live && look?.name && mark?.state === 'stale' && act('Run affected cells…', () => host.affected(cell)),
      live && mark?.on_head && act('What it depends on…', () => host.dependencies(cell)),
      live && mark?.on_head && act('Re-run from here…', () => host.rerun(cell)),
      live && mark?.on_head && act('Go back to after it', () => host.goBack(cell)),
      ...upstream,
      kept > 0 && act(kept === 1 ? 'Compare the kept text…' : `Compare the ${kept} kept texts…`, () => host.kept(cell)),
      mark?.execution_id && act('Show in the timeline', () => host.show(cell))
    ].filter(Boolean);
  }

  /** Beside the mark, within the window. @param {HTMLElement} button */
  place(button) {
    const box = this.box;
    if (!box) return;
    const at = button.getBoundingClientRect();
    const { offsetHeight: height, offsetWidth: width } = box;
    box.style.left = `${Math.max(4, Math.min(at.left, innerWidth - width - 4))}px`;
    box.style.top = `${Math.max(4, at.bottom + 4 + height <= innerHeight ? at.bottom + 4 : at.top - height - 4)}px`;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const all = /** @type {HTMLElement[]} */ ([...(this.box?.querySelectorAll('button') ?? [])]);
    const at = all.findIndex((one) => one === document.activeElement);
    /** @type {Record<string, number>} */
    const places = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 };
    const to = places[event.key];
    if (event.key === 'Escape') this.close(true);
    // The keyboard stays in it until it is closed.
    else if (event.key === 'Tab') all[(at + (event.shiftKey ? all.length - 1 : 1)) % all.length]?.focus();
    else if (to !== undefined) all[to % all.length]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {boolean} focus whether the notebook gets the keyboard: its keys do nothing on a mark */
  close(focus) {
    document.removeEventListener('pointerdown', this.outside, true);
    this.box?.remove();
    this.box = null;
    if (focus) this.gutter.content.activate();
    this.from = null;
  }
}

export { MarkCard };
