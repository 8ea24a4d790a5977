/**
 * The gutter of a notebook: beside every code cell its statement and its state, and a line where its output is not of HEAD.
 *
 * Rule 1: it only looks: it adds elements beside JupyterLab's and never changes the notebook, its text or its layout.
 * Rule 2: a mark is drawn when a message or an edit changes it; scrolling draws nothing. JupyterLab attaches and detaches
 *         the nodes of cells as it likes; ours are their last children and come along.
 * Rule 3: one tab stop: the mark of the active cell. A key (`T S`) opens it from anywhere in the notebook.
 */

import { h } from './elements.js';
import { icon } from './icons.js';
import { MarkCard } from './markcard.js';
import { Marks, nameOf } from './marks.js';
import { AUTHORS } from './rownames.js';
import { dict } from './values.js';

/** @import {Cell, NotebookContent} from '../jupyterlab.js' */
/** @import {CellMark, CellTable, KernelMessage} from '../messages.js' */
/** @import {Look, Shown} from './marks.js' */

/** A cell's text is compared with what ran when its typist pauses this long. */
const PAUSE_MS = 250;
/** Cells that are drawn in one go: a large notebook must not hold up the page. */
const BATCH = 150;
/** Most pairs of cells that are told out of order: each makes the kernel order its cells anew. */
const MOST_TOLD = 20;
/** Most cells that one request names. */
const MOST_ASKED = 50;

/**
 * What the host does for the gutter.
 * @typedef {object} GutterHost
 * @property {(cell: Cell) => void} run run this cell alone
 * @property {(cell: Cell) => void} follow offer to show the cell as it was on the way to HEAD
 * @property {(cell: Cell) => void} rerun offer to re-run from the cell
 * @property {(cell: Cell) => void} dependencies show what the cell depends on, and what depends on it
 * @property {(cell: Cell) => void} affected offer to run the cells that edits affect
 * @property {(cell: Cell) => void} goBack offer to go back to after the cell
 * @property {(cell: Cell) => void} show the row of the execution that the cell shows, in the panel
 * @property {(cell: Cell) => void} kept compare the texts that are kept with the cell
 * @property {(cell: Cell) => number} keptTexts how many texts are kept with the cell
 * @property {(statement: string) => string | null} cellOf the cell of a statement
 * @property {(cellId: string) => Promise<boolean>} goto scroll to a cell
 * @property {(asked: MarksAsked) => Promise<Partial<CellTable> | null>} marks ask for the marks of some cells, or of all
 *
 * The cells whose marks are asked for, all where it is empty; or a cell that ran first, and one that stands below it.
 * @typedef {{names?: string[], cell?: string, before?: string}} MarksAsked
 *
 * What we add to a cell.
 * @typedef {{button: HTMLButtonElement, line: HTMLElement | null, look: Look | null, drawn: string, stop: () => void}} Beside
 */

class Gutter {
  /** @param {NotebookContent} content @param {GutterHost} host */
  constructor(content, host) {
    this.content = content;
    this.host = host;
    this.marks = new Marks();
    /** @type {Map<Cell, Beside>} */
    this.beside = new Map();
    this.card = new MarkCard(this);
    /** Settings: whether there are marks, and whether outputs of other branches are faded. */
    this.options = { marks: true, fade: true };
    /** The kernel is connected; else the marks are the last known ones. */
    this.live = false;
    /** @type {{disconnect(slot: () => void): unknown} | undefined} */
    this.list = undefined;
    /** Timers: for drawing all soon, and for drawing the rest. */
    this.pending = this.rest = 0;
    /** Cells whose reasons are to be asked for, and the timer for it. @type {Set<string>} */
    this.unexplained = new Set();
    this.asking = 0;
    /** The cell whose mark is the tab stop. @type {Cell | null} */
    this.stop = null;
    this.onCells = () => this.soon();
    this.onModel = () => {
      this.list?.disconnect(this.onCells);
      const changed = content.model?.cells?.changed;
      changed?.connect(this.onCells);
      this.list = changed;
      this.soon();
    };
    this.onActive = () => this.rove();
    content.modelChanged?.connect(this.onModel);
    content.activeCellChanged?.connect(this.onActive);
    this.onModel();
  }

  /** Draw all cells soon: JupyterLab adds many cells one by one. */
  soon() {
    if (this.pending) return;
    this.pending = setTimeout(() => {
      this.pending = 0;
      this.draw(null);
    }, 0);
  }

  /** @param {Partial<KernelMessage> | null | undefined} msg */
  take(msg) {
    if (msg?.type === 'snapshot') this.live = true;
    const id = msg?.type === 'turn' ? msg.statement?.cell_id : null;
    const first = id && this.live && !this.marks.cells.has(id);
    const changed = this.marks.take(msg);
    // In a task of its own: of a long session, the panel has enough to do with this one.
    if (changed === null) this.soon();
    else if (changed.size) this.draw(changed);
    if (this.marks.behind) return this.catchUp({});
    if (msg?.type === 'snapshot') return this.tellOrder();
    const before = first ? this.belowOf(id) : null;
    return first && before ? this.catchUp({ cell: id, before }) : null;
  }

  /** The next cell below a cell that has run: the kernel knows only in which order cells ran. @param {string} id */
  belowOf(id) {
    const { widgets } = this.content;
    const at = widgets.findIndex((cell) => cell.model.id === id);
    return at < 0 ? null : (widgets.slice(at + 1).find((cell) => this.marks.cells.has(cell.model.id))?.model.id ?? null);
  }

  /**
   * Tell which cells stand above cells that ran earlier: a kernel that has resumed a session does not know it. Null: none.
   * @returns {Promise<void> | null}
   */
  tellOrder() {
    const told = this.marks.aboveOlder(this.content.widgets.map((cell) => cell.model?.id)).slice(0, MOST_TOLD);
    if (!told.length) return null;
    return told.reduce((done, asked) => done.then(() => this.catchUp(asked)), Promise.resolve());
  }

  /** Ask for the marks of some cells, or of all, and draw what has changed. @param {MarksAsked} asked */
  async catchUp(asked) {
    const table = await this.host.marks(asked);
    if (table) this.draw(this.marks.takeTable(table));
  }

  /** The reasons of a cell's state were not told: ask for them, soon and together. @param {string} id */
  askReasons(id) {
    this.unexplained.add(id);
    this.asking ||= setTimeout(() => {
      this.asking = 0;
      const names = [...this.unexplained].slice(0, MOST_ASKED);
      for (const one of names) this.unexplained.delete(one);
      void this.catchUp({ names });
      const [next] = this.unexplained;
      if (next) this.askReasons(next);
    }, PAUSE_MS);
  }

  /** The kernel is not connected any more. */
  leave() {
    if (!this.live) return;
    this.live = false;
    this.marks.leave();
    this.draw(null);
  }

  /** The connection is lost, and the kernel may work on: the marks are the last known ones. */
  lose() {
    this.live = false;
    this.draw(null);
  }

  /** Another kernel, which tells nothing of cells. */
  reset() {
    this.live = false;
    this.marks = new Marks();
    this.draw(null);
  }

  /** Cells of a re-run that wait for their turn. @param {Iterable<string>} ids */
  queue(ids) {
    const before = this.marks.queued;
    this.marks.queued = new Set(ids);
    this.draw(new Set([...before, ...this.marks.queued]));
  }

  /** Whether there is anything to show: a kernel that tells of cells. */
  get on() {
    return this.options.marks && this.marks.known;
  }

  /** Draw some cells, or all. @param {Set<string> | null} ids */
  draw(ids) {
    if (ids === null) return this.drawFrom(0);
    for (const cell of this.content.widgets) if (ids.has(cell.model?.id)) this.drawCell(cell);
  }

  /** Draw all cells from one on, in batches. @param {number} start */
  drawFrom(start) {
    clearTimeout(this.rest);
    const end = start + BATCH;
    for (const cell of this.content.widgets.slice(start, end)) this.drawCell(cell);
    if (end < this.content.widgets.length) this.rest = setTimeout(() => this.drawFrom(end), 0);
    else this.rove();
  }

  /** @param {Cell} cell */
  drawCell(cell) {
    const { model } = cell;
    if (model?.type !== 'code') return;
    const look = this.on ? this.look(cell) : null;
    if (!look && !this.beside.has(cell)) return;
    const beside = this.beside.get(cell) ?? this.add(cell);
    beside.look = look;
    beside.button.hidden = !look;
    const foreign = Boolean(look?.foreign) && this.options.fade && model.outputs.length > 0;
    const mark = this.marks.cells.get(model.id);
    if (this.live && mark?.state && mark.because === undefined) this.askReasons(model.id);
    // The same as before: leave the page alone.
    const drawn = JSON.stringify([look, foreign, this.live, mark?.author, mark?.checkpoint, mark?.count, mark?.on_head]);
    if (drawn === beside.drawn) return;
    beside.drawn = drawn;
    cell.node.classList.toggle('ctxk-foreign', foreign);
    beside.line?.remove();
    beside.line = foreign && look ? this.foreignLine(cell, look) : null;
    if (beside.line) cell.node.append(beside.line);
    if (look) this.fill(beside.button, cell, look);
  }

  /** @param {Cell} cell */
  look(cell) {
    const { model } = cell;
    const ran = model.outputs.length > 0 || model.executionCount !== null;
    const said = dict(model.getMetadata('ctxkernel'));
    return this.marks.look(model.id, model.sharedModel.getSource(), shownOf(cell), ran, said);
  }

  /** The execution whose outputs a cell shows. @param {Cell} cell @param {Partial<CellMark>} mark */
  shownBy(cell, mark) {
    return this.marks.shownBy(mark, shownOf(cell));
  }

  /**
   * Whether a cell does not show the run that its mark names: its output was cleared, or lost by a reload of the page, or
   * the cell ran from another page.
   * @param {Cell} cell
   */
  misses(cell) {
    const { model } = cell;
    const ran = this.marks.cells.get(model.id)?.count;
    return Boolean(ran) && model.executionCount !== ran && model.executionState !== 'running' && !shownOf(cell).execution;
  }

  /** @param {Cell} cell @returns {Beside} */
  add(cell) {
    const button = h('button', {
      class: 'ctxk-nb ctxk-mark',
      type: 'button',
      'aria-haspopup': 'dialog',
      'data-lm-suppress-shortcuts': 'true',
      tabindex: cell === this.content.activeCell ? '0' : '-1',
      onclick: () => this.card.open(cell)
    });
    cell.node.append(button);
    /** @type {number | undefined} */
    let pause;
    const edited = () => {
      clearTimeout(pause);
      pause = setTimeout(() => !cell.isDisposed && this.drawCell(cell), PAUSE_MS);
    };
    cell.model.contentChanged?.connect(edited);
    cell.model.metadataChanged?.connect(edited);
    const stop = () => {
      clearTimeout(pause);
      cell.model?.contentChanged?.disconnect(edited);
      cell.model?.metadataChanged?.disconnect(edited);
    };
    /** @type {Beside} */
    const made = { button, line: null, look: null, drawn: '', stop };
    this.beside.set(cell, made);
    cell.disposed.connect(() => this.forget(cell));
    return made;
  }

  /** @param {HTMLButtonElement} button @param {Cell} cell @param {Look} look */
  fill(button, cell, look) {
    const mark = this.marks.cells.get(cell.model.id) ?? {};
    const lines = this.lines(cell, look);
    button.dataset.state = look.state;
    button.dataset.edited = String(look.edited);
    button.classList.toggle('ctxk-old', !this.live);
    button.title = lines.join('\n');
    button.setAttribute('aria-label', lines.join('. '));
    const word = look.edited && ['fresh', 'failed', 'asks', 'unknown'].includes(look.state) ? 'edited' : look.word;
    button.replaceChildren(
      h('span', { class: 'ctxk-marktop' },
        mark.author === 'model' && icon('model'),
        mark.author === 'panel' && icon('panel'),
        mark.author === 'agent' && icon('agent'),
        look.name && h('span', { class: 'ctxk-markname' }, look.name),
        mark.checkpoint && mark.checkpoint !== 'durable' && look.state !== 'running' && icon(mark.checkpoint)),
      h('span', { class: 'ctxk-markword' }, word, look.edited && word !== 'edited' ? '*' : '')
    );
  }

  /** What there is to say of a cell, line by line. @param {Cell} cell @param {Look} look */
  lines(cell, look) {
    const mark = this.marks.cells.get(cell.model.id);
    const author = mark?.author && mark.author !== 'human' ? `, by ${AUTHORS[mark.author] ?? mark.author}` : '';
    return [
      `${look.name ? `Statement ${look.name}${author}` : 'This cell'}: ${look.sentence}`,
      ...look.because,
      look.edited ? 'Edited since it ran' : '',
      mark?.checkpoint && mark.checkpoint !== 'durable' ? `Checkpoint: ${CHECKPOINTS[mark.checkpoint] ?? mark.checkpoint}` : '',
      this.live ? '' : 'The kernel is not connected: this is the last known state'
    ].filter(Boolean);
  }

  /** @param {Cell} cell @param {Look} look */
  foreignLine(cell, look) {
    const mark = this.marks.cells.get(cell.model.id);
    const here = mark?.on_head ? nameOf(mark.on_head) : null;
    const act = here
      ? { text: `Show it as it ran here (${here})…`, run: () => this.host.follow(cell) }
      : { text: 'Run it here', run: () => this.host.run(cell) };
    const tabindex = cell === this.content.activeCell ? '0' : '-1';
    const where = look.state === 'later' ? `which ran after ${this.marks.here}` : 'on another branch';
    const told = here ? `here the cell ran as ${here}` : 'the cell has not run here';
    // The notebook takes the keyboard only from what is outside of it, and without this button nothing would have it.
    const press = () => {
      button.blur();
      this.content.activate();
      act.run();
    };
    const button = h('button', { class: 'ctxk-linkbutton', type: 'button', tabindex, onclick: press }, act.text);
    return h(
      'div',
      { class: 'ctxk-nb ctxk-foreignline', 'data-lm-suppress-shortcuts': 'true' },
      h('span', null, `The output is of ${look.name}, ${where}; ${told}.`),
      button
    );
  }

  /** The tab stop follows the active cell. */
  rove() {
    const at = this.content.activeCell;
    for (const cell of new Set([this.stop, at])) {
      const beside = cell && this.beside.get(cell);
      if (!beside) continue;
      const tabindex = cell === at ? 0 : -1;
      if (beside.button.tabIndex !== tabindex) beside.button.tabIndex = tabindex;
      const act = beside.line?.querySelector('button');
      if (act) act.tabIndex = tabindex;
    }
    this.stop = at;
  }

  /** The cells whose outputs are not of the way to HEAD. */
  get foreign() {
    return this.content.widgets.filter((cell) => {
      const mark = cell.model?.type === 'code' && this.marks.cells.get(cell.model.id);
      return mark && this.shownBy(cell, mark) !== mark.on_head;
    });
  }

  /**
   * Select the next cell that is not fresh, from the active one on. Returns whether there is one.
   * @param {1 | -1} step
   */
  next(step) {
    const { widgets, activeCellIndex } = this.content;
    for (let i = 1; i <= widgets.length; i += 1) {
      const at = (activeCellIndex + step * i + widgets.length * i) % widgets.length;
      const look = this.beside.get(widgets[at])?.look;
      if (!look || (look.state === 'fresh' && !look.edited)) continue;
      return this.host.goto(widgets[at].model.id);
    }
    return Promise.resolve(false);
  }

  /** @param {Cell} cell */
  forget(cell) {
    const beside = this.beside.get(cell);
    if (!beside) return;
    this.beside.delete(cell);
    beside.stop();
    beside.button.remove();
    beside.line?.remove();
  }

  dispose() {
    clearTimeout(this.pending);
    clearTimeout(this.rest);
    clearTimeout(this.asking);
    this.card.close(false);
    this.list?.disconnect(this.onCells);
    this.content.modelChanged?.disconnect(this.onModel);
    this.content.activeCellChanged?.disconnect(this.onActive);
    for (const cell of [...this.beside.keys()]) this.forget(cell);
  }
}

/** What the metadata of a cell say of a state that it shows. @param {Cell} cell @returns {Partial<Shown>} */
const shownOf = (cell) => dict(cell.isDisposed ? {} : dict(cell.model.getMetadata('ctxkernel')).shows);

/** @type {Record<string, string>} */
const CHECKPOINTS = {
  durable: 'stored',
  writing: 'still being stored',
  skipped: 'its data could not be stored',
  thinned: 'its large data were deleted to save space',
  damaged: 'its data are damaged'
};

export { CHECKPOINTS, Gutter };
