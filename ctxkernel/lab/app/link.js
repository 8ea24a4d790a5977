/**
 * One notebook: its connection to its kernel's panel comm, the view that draws it, and the marks beside its cells.
 *
 * Rule: nothing is sent from here but by the connection; gestures are execute requests (notebook.js).
 */

import { AskCells } from './askcells.js';
import { CellVersions } from './cellversions.js';
import { Connection } from './connection.js';
import { h } from './elements.js';
import { Gutter } from './gutter.js';
import { KeptTexts } from './kepttexts.js';
import { NotebookHands } from './notebook.js';
import { mount } from './render.js';
import { ReturnedWidgets } from './returnedwidgets.js';

/** @import {Cell, NotebookPanel, Widget as LabWidget} from '../jupyterlab.js' */
/** @import {Parts} from './labparts.js' */
/** @import {Panel} from './panel.js' */
/** @import {Phase} from './phases.js' */

class Link {
  /** @param {Parts} lab @param {NotebookPanel} notebook @param {Panel} owner */
  constructor(lab, notebook, owner) {
    this.lab = lab;
    this.notebook = notebook;
    this.owner = owner;
    this.host = document.createElement('div');
    this.host.className = 'ctxk-host';
    this.host.hidden = true;
    /**
     * The kernel that the panel has opened itself for, so that it does so once a kernel.
     * @type {string | null | undefined}
     */
    this.openedFor = null;
    this.disposed = false;
    /** The name of what the panel says where it is not live. */
    this.phase = '';
    /** The proposal that the keyboard was given to. @type {string | null} */
    this.offered = null;
    /** The timeline in a tab of its own. @type {LabWidget | null} */
    this.tab = null;
    this.widgets = new ReturnedWidgets(() => notebook.content.widgets.map((cell) => cell.model));
    this.connection = new Connection(lab, notebook, this.listener());
    this.hands = new NotebookHands(this, lab.CodeCell);
    this.asks = new AskCells(notebook.content);
    this.gutter = new Gutter(notebook.content, this.gutterHost());
    owner.styles();
    this.kept = new KeptTexts(() => notebook.context.path);
    this.versions = new CellVersions(notebook.content, this.gutter, this.kept, {
      ask: (type, request) => this.hands.ask(type, request),
      offer: (offer) => this.offer(offer)
    });
    /** The bar above the notebook. @type {LabWidget | null} */
    this.bar = null;
    /** @param {unknown} _ @param {string} state */
    this.onSave = (_, state) => state === 'completed' && this.kept.saved();
    notebook.context.saveState?.connect(this.onSave);
    this.view = mount(this.host, {
      ...this.hands.actions,
      hint: owner.hint,
      rerunCells: (ids, told, stop, said) => this.rerunCells(ids, told, stop, said),
      version: lab.version,
      tab: owner.tab,
      onTab: (tab) => owner.setTab(tab),
      goto: (cellId) => this.goto(cellId),
      reconnect: () => this.connection.reconnect(),
      close: () => owner.close(),
      decides: () => owner.decides(this),
      highlight: lab.highlight,
      render: lab.render,
      painted: (mark) => this.painted(mark)
    });
    this.retitle = () => this.view.title(notebook.context.localPath?.split('/').pop() ?? notebook.title.label);
    this.retitle();

    notebook.context.pathChanged.connect(this.retitle);
    notebook.disposed.connect(() => this.dispose());
    this.connection.start();
  }

  /** What is done with what the connection tells. @returns {import('./connection.js').Listener} */
  listener() {
    return {
      say: (phase) => this.say(phase),
      lost: () => this.gutter.lose(),
      back: () => this.view.phase(null),
      kernelStatus: (status) => this.view.kernelStatus(status),
      wanted: () => this.owner.wants(this),
      snapshot: (data) => {
        this.view.snapshot(data);
        if (this.live) this.asks.lookAtAll();
        this.tellNotebook(data);
        this.owner.mark(this);
      },
      message: (data) => {
        if (this.hands.answered(data)) return;
        this.view.message(data);
        this.tellNotebook(data);
        if (data?.insert) this.hands.insert(data.insert);
      },
      dropped: () => {
        this.gutter.leave();
        this.widgets.forget();
      },
      opened: (content) => this.widgets.opened(content),
      redrawn: (data) => this.hands.settle(data),
      hole: () => this.view.hole(),
      isRunning: () => this.view.isRunning()
    };
  }

  get kernel() {
    return this.connection.kernel;
  }

  /** Whether its kernel answers, and what the view shows is of now. */
  get live() {
    return this.connection.live;
  }

  /** The settings have changed. */
  follow() {
    const { gutter, fadeOutputs, offerCells } = this.owner.options;
    this.gutter.options = { marks: gutter, fade: fadeOutputs };
    this.versions.enabled = offerCells;
    this.gutter.draw(null);
  }

  /** What the marks in the notebook can have done. @returns {import('./gutter.js').GutterHost} */
  gutterHost() {
    /** @param {Cell} cell @param {() => unknown} job */
    const onCell = (cell, job) => {
      this.notebook.content.activeCellIndex = this.notebook.content.widgets.indexOf(cell);
      this.owner.show();
      job();
    };
    return {
      run: (cell) => void this.hands.runCell(cell),
      follow: (cell) => void this.versions.preview(cell),
      dependencies: (cell) => onCell(cell, () => this.view.dependencies(cell.model.id)),
      affected: (cell) => onCell(cell, () => this.view.runAffected()),
      rerun: (cell) => onCell(cell, () => this.view.rerunFromCell(cell.model.id, this.hands.codeCells)),
      goBack: (cell) => onCell(cell, () => this.view.goBackToCell(cell.model.id)),
      show: (cell) => this.showCell(cell),
      kept: (cell) => this.versions.compareKept(cell),
      keptTexts: (cell) => this.kept.of(cell.model).length,
      cellOf: (statement) => this.view.cellOf(statement),
      goto: (cellId) => this.goto(cellId),
      marks: async (asked) => {
        const answer = await this.hands.ask('marks', asked);
        return 'marks' in answer ? answer.marks : null;
      }
    };
  }

  get front() {
    return this.lab.tracker.currentWidget === this.notebook;
  }

  /**
   * Offer something above the notebook and in the panel; null takes the offer away.
   * @param {import('./cellversions.js').Offer | null} offer
   */
  offer(offer) {
    const had = this.bar?.node.contains(document.activeElement);
    this.bar?.dispose();
    this.bar = null;
    this.view.offer(offer);
    const { contentHeader } = this.notebook;
    if (had) this.notebook.content.activate();
    if (!offer || !contentHeader) return;
    const bar = new this.lab.Widget();
    bar.addClass('ctxk-nb');
    bar.addClass('ctxk-bar-offer');
    bar.node.append(
      h(
        'div',
        { class: 'ctxk-offer', role: 'status', 'data-lm-suppress-shortcuts': 'true' },
        h('span', { title: offer.text }, offer.text),
        h('button', { class: 'ctxk-linkbutton', type: 'button', onclick: offer.run }, offer.button),
        h('button', { class: 'ctxk-linkbutton', type: 'button', onclick: () => this.offer(null) }, 'Dismiss')
      )
    );
    contentHeader.addWidget(bar);
    this.bar = bar;
  }

  /** @param {any} data a message of the kernel */
  tellNotebook(data) {
    // Where one message could not tell all, the rest is asked for; then the offer to follow a move is right, too.
    void this.gutter.take(data)?.then(() => this.versions.take(data));
    this.versions.take(data);
    this.owner.drawStatus();
  }

  /** Run cells one after the other; the marks say which of them wait. @type {NotebookHands['rerunCells']} */
  async rerunCells(ids, told, stop, said) {
    this.gutter.queue(ids);
    try {
      return await this.hands.rerunCells(
        ids,
        (done, reply) => {
          this.gutter.queue(ids.slice(done));
          return told(done, reply);
        },
        stop,
        said
      );
    } finally {
      this.gutter.queue([]);
    }
  }

  /** The row of the execution that a cell shows. @param {Cell} cell */
  showCell(cell) {
    const mark = this.gutter.marks.cells.get(cell.model.id);
    if (!mark) return;
    this.owner.show();
    this.view.showRun(this.gutter.shownBy(cell, mark));
  }

  /** @param {{statement_id: string, ended_at: number | null}} mark */
  painted({ statement_id, ended_at }) {
    this.owner.painted(this, statement_id, ended_at);
  }

  /** @param {Phase} phase */
  say(phase) {
    if (this.disposed) return;
    if (phase.name === 'other') this.forget();
    this.view.phase(phase);
    this.owner.mark(this);
    this.phase = phase.name;
    this.owner.drawStatus();
  }

  /** The kernel is no ctxkernel, or not any more: it has no session to show. */
  forget() {
    this.view.snapshot({});
    this.gutter.reset();
    this.offer(null);
  }

  /**
   * Scroll to the cell of that id and select it. Works with windowed notebooks, where most cells have no DOM.
   * @param {string} cellId
   */
  async goto(cellId) {
    const content = this.notebook.content;
    const index = content.widgets.findIndex((cell) => cell.model.id === cellId);
    if (index < 0) return false;
    const cell = content.widgets[index];
    // A cell under a collapsed heading has no place to scroll to.
    if (cell.isHidden) this.lab.NotebookActions.expandParent?.(cell, content);
    content.deselectAll();
    content.activeCellIndex = index;
    content.mode = 'command';
    if (content.scrollToItem) await content.scrollToItem(index, 'smart');
    else content.scrollToCell?.(cell, 'auto');
    return true;
  }

  dispose() {
    if (this.disposed) return;
    this.connection.dispose();
    this.disposed = true;
    this.asks.dispose();
    this.widgets.dispose();
    this.tab?.dispose();
    this.notebook.context.saveState?.disconnect(this.onSave);
    this.gutter.dispose();
    this.view.dispose();
    this.host.remove();
    this.owner.links.delete(this.notebook);
  }
}

export { Link };
