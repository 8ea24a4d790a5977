/**
 * The JupyterLab side of the panel: one comm per notebook, one widget in the right area, its commands.
 *
 * Rule 1: the front end opens the comm. One that a kernel opens before this page knows its target is closed by Lab.
 * Rule 2: it opens by itself for kernels whose kernel_info says `ctxkernel`, and never for another.
 * Rule 3: every part of Lab that this needs is optional: where one is missing (Notebook 7's file list has no
 *         notebooks), the plugin does less and nothing breaks.
 * Rule 4: nothing is sent from here but the comm's messages; gestures are execute requests (notebook.js).
 */

import { AskCells } from './askcells.js';
import { find, h } from './base.js';
import { CellVersions } from './cellversions.js';
import { addCommands } from './commands.js';
import { Gutter } from './gutter.js';
import { HANDLE_MIME, handleOutput } from './handleoutput.js';
import { followCellLinks } from './celllinks.js';
import { KeptTexts } from './kepttexts.js';
import { NotebookHands, PROPOSAL_MIME } from './notebook.js';
import { PROTOCOL, makeCard, mount } from './render.js';
import { drawStatus, statusButton } from './statusline.js';

/** @import {Application, Cell, CodeCell, Comm, Editors, Executed, Kernel, KernelMessages, LabIcon} from '../jupyterlab.js' */
/** @import {Message, MimeModel, NotebookActions, NotebookPanel, NotebookTracker, Palette} from '../jupyterlab.js' */
/** @import {StatusBar} from '../jupyterlab.js' */
/** @import {RenderMime, SettingRegistry, Settings, StateDB, Widget as LabWidget} from '../jupyterlab.js' */
/** @import {Proposal} from '../messages.js' */
/** @import {Card} from './proposal.js' */
/** @import {Phase, Tab} from './render.js' */

/**
 * The parts of JupyterLab that we have.
 * @typedef {object} Parts
 * @property {Application} app
 * @property {NotebookTracker} tracker
 * @property {Palette | null} palette
 * @property {SettingRegistry | null} settings
 * @property {StateDB | null} state
 * @property {string} version
 * @property {typeof import('../jupyterlab.js').Widget} Widget
 * @property {typeof import('../jupyterlab.js').BoxOfWidgets} Panel
 * @property {typeof import('../jupyterlab.js').Menu} Menu
 * @property {StatusBar | null} statusBar
 * @property {LabIcon} LabIcon
 * @property {KernelMessages} KernelMessage
 * @property {CodeCell} CodeCell
 * @property {NotebookActions} NotebookActions
 * @property {((code: string, el: HTMLElement) => void) | undefined} highlight
 * @property {((data: Record<string, unknown>, el: HTMLElement) => boolean) | undefined} render
 *
 * An output that is a proposal; `card` is drawn by the panel of the notebook that it stands in.
 * @typedef {LabWidget & {proposal: Partial<Proposal> | undefined, card: Card | null, draw(): void}} ProposalOutput
 */

const ID = 'jupyter-ctxkernel:plugin';
const PANEL_ID = 'ctxkernel-panel';
const TARGET = 'ctxkernel.panel';
const CONTROL = 'ctxkernel_snapshot_request';
const IMPLEMENTATION = 'ctxkernel';
/** How long an idle kernel may take to answer the comm. */
const ANSWER_MS = 5000;
/** A state that comes and goes within this time is not shown. */
const SETTLE_MS = 1000;
/** Outputs that JupyterLab draws in the details of a statement, the best first. */
const RENDERED = ['text/html', 'text/markdown', 'text/latex'];
/** Width of the panel at its first opening, in pixels. */
const WIDTH = 370;

const STYLES = ['style.css', 'projection.css', 'returning.css', 'proposal.css', 'notebook.css', 'differences.css'];
const RERUN = 'ctxkernel:rerun-from-here';
const GO_BACK = 'ctxkernel:go-back-to-cell';
const UNDO = 'ctxkernel:undo';
const APPROVE = 'ctxkernel:approve';
const REJECT = 'ctxkernel:reject';
/** A MIME type of lower rank is preferred; Markdown, which a proposal has too, has 60. */
const RANK = 10;
/** … and that of widgets has -10; the output of a handle, which is one too, draws it itself where it can. */
const HANDLE_RANK = -20;

const RERUN_ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3" fill="#616161">
    <path d="M5.2 4.5 2 7.7l3.2 3.2 1.2-1.2-1.2-1.1H9V7H5.2l1.2-1.2zM10.5 5v14l11-7z"/>
  </g></svg>`;

const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3" fill="#616161">
    <path d="M5 3h2v18H5z"/>
    <circle cx="6" cy="6" r="3"/><circle cx="6" cy="12.5" r="2.2"/><circle cx="6" cy="19" r="2.2"/>
    <path d="M11 5h10v2H11zM11 11.5h7v2h-7zM11 18h9v2h-9z"/>
  </g></svg>`;

/**
 * Make the plugin of the packages that Lab shares.
 * @param {(name: string) => Promise<any>} shared
 * @param {string} version
 */
async function createPlugin(shared, version) {
  const [
    { INotebookTracker, NotebookActions },
    { ICommandPalette },
    { ISettingRegistry },
    { IStateDB },
    { Menu, Panel: BoxOfWidgets, Widget },
    { LabIcon },
    { KernelMessage },
    { CodeCell },
    { IRenderMimeRegistry },
    languages,
    bars
  ] = await Promise.all(
    [
      '@jupyterlab/notebook',
      '@jupyterlab/apputils',
      '@jupyterlab/settingregistry',
      '@jupyterlab/statedb',
      '@lumino/widgets',
      '@jupyterlab/ui-components',
      '@jupyterlab/services',
      '@jupyterlab/cells',
      '@jupyterlab/rendermime'
    ]
      .map(shared)
      // Only for colours.
      .concat(shared('@jupyterlab/codemirror').catch(() => ({})))
      // Notebook 7 has no status bar.
      .concat(shared('@jupyterlab/statusbar').catch(() => ({})))
  );
  return {
    id: ID,
    description: 'The side panel of ctxkernel: timeline, handles, projection, changes.',
    autoStart: true,
    requires: [],
    optional: [
      INotebookTracker,
      ICommandPalette,
      ISettingRegistry,
      IStateDB,
      IRenderMimeRegistry,
      ...[languages.IEditorLanguageRegistry, bars.IStatusBar].filter(Boolean)
    ],
    /**
     * @param {Application} app
     * @param {NotebookTracker | null} tracker
     * @param {Palette | null} palette
     * @param {SettingRegistry | null} settings
     * @param {StateDB | null} state
     * @param {RenderMime | null} rendermime
     * @param {...any} others the languages of editors and the status bar, as far as Lab has them
     */
    activate(app, tracker, palette, settings, state, rendermime, ...others) {
      if (!tracker) return;
      const editors = /** @type {Editors | undefined} */ (others.find((one) => one?.findByName));
      const statusBar = /** @type {StatusBar | undefined} */ (others.find((one) => one?.registerStatusItem));
      /** @type {Parts} */
      const lab = {
        app,
        tracker,
        palette,
        settings,
        state,
        version,
        Widget,
        Panel: BoxOfWidgets,
        Menu,
        statusBar: statusBar ?? null,
        LabIcon,
        KernelMessage,
        CodeCell,
        NotebookActions,
        highlight: highlighter(editors),
        render: outputRenderer(rendermime)
      };
      const panel = new Panel(lab);
      // Now: a notebook takes a copy of what is registered when it is opened.
      rendermime?.addFactory(
        { safe: true, mimeTypes: [PROPOSAL_MIME], createRenderer: () => proposalWidget(lab, panel) },
        RANK
      );
      rendermime?.addFactory(
        { safe: true, mimeTypes: [HANDLE_MIME], createRenderer: () => handleOutput(lab, (node) => panel.linkOf(node)) },
        HANDLE_RANK
      );
      void panel.start();
    }
  };
}

/**
 * What adds Python code to an element in JupyterLab's colours, as text; undefined where Lab has none to give.
 * @param {Editors | undefined} editors
 */
function highlighter(editors) {
  if (!editors?.highlight) return undefined;
  const highlight = editors.highlight.bind(editors);
  /** @param {string} code @param {HTMLElement} el */
  return (code, el) => {
    const whole = document.createTextNode(code);
    el.append(whole);
    const box = document.createElement('code');
    void Promise.resolve(highlight(code, editors.findByName('python'), box))
      .then(() => box.textContent === code && whole.replaceWith(box))
      .catch(() => {});
  };
}

/**
 * What shows an output of a session in an element, as JupyterLab shows outputs of a notebook that is not trusted: HTML
 * without scripts, and nothing that could run.
 * @param {RenderMime | null} rendermime
 */
function outputRenderer(rendermime) {
  if (!rendermime?.createRenderer) return undefined;
  /** @param {Record<string, unknown>} data @param {HTMLElement} el */
  return (data, el) => {
    const mime = RENDERED.find((one) => typeof data[one] === 'string');
    if (!mime) return false;
    const model = rendermime.createModel({ data, trusted: false });
    const renderer = rendermime.createRenderer(mime);
    void renderer.renderModel(model).catch(() => {});
    el.append(renderer.node);
    return true;
  };
}

/** An output that is a proposal, or what became of one. @param {Parts} lab @param {Panel} panel */
function proposalWidget(lab, panel) {
  class ProposalWidget extends lab.Widget {
    /** @type {Partial<Proposal> | undefined} */
    proposal = undefined;
    /** @type {Card | null} */
    card = null;
    /** The notebook's link that the card is for. @type {Link | null} */
    link = null;

    /** @param {MimeModel} model */
    renderModel(model) {
      this.proposal = model.data[PROPOSAL_MIME];
      this.card = null;
      this.draw();
      return Promise.resolve();
    }

    /** The notebook that it stands in may be another one, or not known yet. */
    draw() {
      const link = panel.linkOf(this.node);
      if (!this.card || this.link !== link) {
        this.link = link;
        this.card = makeCard(this.proposal, {
          decide: (code) => void link?.view.decide(code),
          leave: () => link?.notebook.content.activate(),
          highlight: lab.highlight
        });
        this.node.replaceChildren(this.card.el);
      }
      this.card.update(link ? link.view.stands(this.proposal) : { live: null, busy: true, told: '' });
    }

    /** @override */
    onAfterAttach() {
      panel.cards.add(this);
      if (this.proposal) this.draw();
    }

    /** @override */
    onBeforeDetach() {
      panel.cards.delete(this);
    }

    /** @override */
    dispose() {
      panel.cards.delete(this);
      super.dispose();
    }
  }
  panel.styles();
  const widget = new ProposalWidget();
  widget.addClass('ctxk');
  widget.addClass('ctxk-output');
  return widget;
}

/* ---------------------------------------------------------------- one notebook */

/**
 * The connection of one notebook to its kernel's panel comm, and the view that draws it.
 *
 * Holds: at most one comm is open; messages of an earlier comm are never drawn.
 */
class Link {
  /** @param {Parts} lab @param {NotebookPanel} notebook @param {Panel} owner */
  constructor(lab, notebook, owner) {
    this.lab = lab;
    this.notebook = notebook;
    this.owner = owner;
    this.context = notebook.sessionContext;
    this.host = document.createElement('div');
    this.host.className = 'ctxk-host';
    this.host.hidden = true;
    /** The user asked for this kernel by command; it need not be a ctxkernel. */
    this.forced = false;
    /** Whether kernel_info says ctxkernel; null while that is not known. @type {boolean | null} */
    this.own = null;
    /**
     * The kernel that the panel has opened itself for, so that it does so once a kernel.
     * @type {string | null | undefined}
     */
    this.openedFor = null;
    /** @type {Comm | null} */
    this.comm = null;
    this.live = false;
    this.disposed = false;
    /** The connection was lost. */
    this.wasLost = false;
    /** When this page saw the last cell end. @type {number | null} */
    this.cellEnd = null;
    /** The name of what the panel says where it is not live. */
    this.phase = '';
    /** The hole that a snapshot was asked for. */
    this.hole = 0;
    /** The proposal that the keyboard was given to. @type {string | null} */
    this.offered = null;
    /** Timers: for the first snapshot, for the next question, for a lost turn, for a lost connection. */
    this.timer = this.asked = this.settle = this.lost = /** @type {number | undefined} */ (undefined);
    /** The timeline in a tab of its own. @type {LabWidget | null} */
    this.tab = null;
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
      rerunCells: (ids, told, stop) => this.rerunCells(ids, told, stop),
      version: lab.version,
      tab: owner.tab,
      onTab: (tab) => owner.setTab(tab),
      goto: (cellId) => this.goto(cellId),
      reconnect: () => this.reconnect(),
      close: () => owner.close(),
      decides: () => owner.decides(this),
      highlight: lab.highlight,
      render: lab.render,
      painted: (mark) => this.painted(mark)
    });
    this.retitle = () => this.view.title(notebook.context.localPath?.split('/').pop() ?? notebook.title.label);
    this.retitle();

    this.onKernel = () => void this.changed();
    /** @param {unknown} _ @param {string} status */
    this.onStatus = (_, status) => this.status(status);
    /** @param {unknown} _ @param {string} status */
    this.onConnection = (_, status) => this.connection(status);
    /** @param {unknown} _ @param {Message} msg */
    this.onMessage = (_, msg) => this.watch(msg);
    this.context.kernelChanged.connect(this.onKernel);
    this.context.statusChanged.connect(this.onStatus);
    this.context.connectionStatusChanged.connect(this.onConnection);
    this.context.iopubMessage.connect(this.onMessage);
    notebook.context.pathChanged.connect(this.retitle);
    notebook.disposed.connect(() => this.dispose());
    void this.context.ready.then(() => this.changed()).catch(() => {});
  }

  get kernel() {
    return this.context.session?.kernel ?? null;
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
      rerun: (cell) => onCell(cell, () => this.view.rerunFromCell(cell.model.id, this.hands.codeCells)),
      goBack: (cell) => onCell(cell, () => this.view.goBackToCell(cell.model.id)),
      show: (cell) => this.showCell(cell),
      kept: (cell) => this.versions.compareKept(cell),
      keptTexts: (cell) => this.kept.of(cell.model).length,
      cellOf: (statement) => this.view.cellOf(statement),
      goto: (cellId) => this.goto(cellId)
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
    this.bar?.dispose();
    this.bar = null;
    this.view.offer(offer);
    const { contentHeader } = this.notebook;
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

  /** Another kernel, or none, or the first one. */
  async changed() {
    if (this.disposed) return;
    this.drop();
    this.own = null;
    const kernel = this.kernel;
    if (!kernel) return this.say(PHASES.noKernel());
    this.view.kernelStatus(kernel.status);
    this.say(PHASES.connecting());
    let info;
    try {
      info = await Promise.any([kernel.info, this.infoByControl(kernel)]);
    } catch {
      return; // Disposed while it started; kernelChanged follows.
    }
    if (this.disposed || kernel !== this.kernel) return;
    this.own = info.implementation === IMPLEMENTATION;
    if (this.own) {
      this.owner.wants(this);
      this.open();
    } else {
      this.forced = false;
      this.say(PHASES.other(await this.kernelName()));
    }
  }

  /**
   * What kernel_info says, asked on the control channel. A page that comes while a cell runs would otherwise not learn
   * until its end what kernel it has, since Lab asks on the shell channel. Rejects where that is not needed.
   * @param {Kernel} kernel
   */
  async infoByControl(kernel) {
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS / 2));
    if (kernel.isDisposed || kernel !== this.kernel || kernel.status === 'idle') throw new Error('not busy');
    const reply = await kernel.sendControlMessage(this.controlMessage(kernel, 'kernel_info_request'), true).done;
    if (!reply?.content?.implementation) throw new Error('no answer');
    return reply.content;
  }

  /** @param {Kernel} kernel @param {string} msgType @param {object} [content] */
  controlMessage(kernel, msgType, content = {}) {
    return this.lab.KernelMessage.createMessage({
      msgType,
      channel: 'control',
      session: kernel.clientId,
      username: kernel.username,
      content
    });
  }

  async kernelName() {
    const name = this.context.kernelDisplayName || this.kernel?.name || 'another kernel';
    return String(name);
  }

  /** Open the comm; the kernel answers with a snapshot. */
  open() {
    const kernel = this.kernel;
    if (this.disposed || this.comm || !kernel || kernel.isDisposed) return;
    let comm;
    try {
      comm = kernel.createComm(TARGET);
    } catch {
      // Of several connections of one page to a kernel (two notebooks on it), only the first may have comms.
      return this.say(PHASES.shared());
    }
    this.comm = comm;
    comm.onMsg = (msg) => {
      if (comm === this.comm) this.receive(msg.content.data);
    };
    comm.onClose = () => {
      if (comm !== this.comm) return;
      this.comm = null;
      this.live = false;
      clearTimeout(this.timer);
      void this.kernelName().then((name) => {
        if (!this.comm) this.say(this.own ? PHASES.closed() : PHASES.other(name));
      });
    };
    comm.open({ protocol: PROTOCOL, version: this.lab.version });
    this.expectAnswer();
  }

  /** Wait for the first snapshot. A busy kernel answers when its cell ends, so only idle time counts. */
  expectAnswer() {
    clearTimeout(this.timer);
    let left = ANSWER_MS;
    let asked = false;
    const step = 500;
    const comm = this.comm;
    const look = () => {
      if (this.live || this.comm !== comm || this.disposed) return;
      // `unknown` is what Lab calls a kernel that it found in the middle of a cell.
      const { status } = this.kernel ?? {};
      if (status === 'busy' || status === 'unknown') {
        left = ANSWER_MS;
        if (!asked) {
          asked = true;
          this.say(PHASES.busy());
          if (this.own) void this.peek(comm);
        }
      } else if ((left -= step) <= 0) {
        this.say(PHASES.noAnswer());
        return;
      }
      this.timer = setTimeout(look, step);
    };
    this.timer = setTimeout(look, step);
  }

  /** A cell runs, so the comm waits in the kernel's queue; its control channel does not. @param {Comm | null} comm */
  async peek(comm) {
    const kernel = this.kernel;
    if (!kernel) return;
    try {
      const reply = await kernel.sendControlMessage(this.controlMessage(kernel, CONTROL), true).done;
      if (this.live || this.comm !== comm || reply?.content?.type !== 'snapshot') return;
      this.view.snapshot(reply.content);
      this.tellNotebook(reply.content);
      this.owner.mark(this);
    } catch {
      // The kernel went away, or knows no such message: the comm's snapshot will do.
    }
  }

  /** @param {any} data */
  receive(data) {
    try {
      if (data?.type === 'snapshot') {
        this.live = true;
        clearTimeout(this.timer);
        this.view.snapshot(data);
        this.asks.lookAtAll();
        this.tellNotebook(data);
        this.owner.mark(this);
        return;
      }
      if (this.hands.answered(data)) return;
      this.view.message(data);
      this.tellNotebook(data);
      if (data?.insert) this.hands.insert(data.insert);
      // A statement that this page never saw (a message was lost): ask for all, once for each such hole.
      const hole = data?.type === 'turn' ? this.view.hole() : 0;
      if (hole && hole !== this.hole) {
        this.hole = hole;
        this.ask();
      }
    } catch (error) {
      // Lab awaits this handler: a fault here must not hold up the notebook's other messages.
      console.error('ctxkernel panel', error);
    }
  }

  /** @param {any} data a message of the kernel */
  tellNotebook(data) {
    this.gutter.take(data);
    this.versions.take(data);
    this.owner.drawStatus();
  }

  /** Run cells one after the other; the marks say which of them wait. @type {NotebookHands['rerunCells']} */
  async rerunCells(ids, told, stop) {
    this.gutter.queue(ids);
    try {
      return await this.hands.rerunCells(
        ids,
        (done) => {
          this.gutter.queue(ids.slice(done));
          told(done);
        },
        stop
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

  /** Ask for a snapshot, at most once a second. */
  ask() {
    if (!this.comm || this.asked) return;
    this.asked = setTimeout(() => {
      this.asked = undefined;
      try {
        this.comm?.send({ type: 'snapshot' });
      } catch {
        this.drop();
        this.open();
      }
    }, 1000);
  }

  /** @param {string} status */
  status(status) {
    this.view.kernelStatus(status);
    if (status === 'restarting' || status === 'autorestarting') {
      this.drop();
      this.say(PHASES.restarting());
    } else if (status === 'dead') {
      this.drop();
      this.say(PHASES.dead());
    } else if (status === 'idle') {
      if (!this.comm && (this.own || this.forced)) this.open();
      else this.checkRunning();
    }
  }

  /** The kernel is idle: if a statement still counts as running then its turn was lost. */
  checkRunning() {
    clearTimeout(this.settle);
    this.settle = setTimeout(() => {
      if (this.live && this.kernel?.status === 'idle' && this.view.isRunning()) this.ask();
    }, SETTLE_MS);
  }

  /** @param {string} status */
  connection(status) {
    if (status === 'connected') {
      if (!this.wasLost) return;
      this.wasLost = false;
      clearTimeout(this.lost);
      // Messages may have been dropped meanwhile; the snapshot has them all.
      if (this.comm) {
        if (this.live) this.view.phase(null);
        this.ask();
      } else if (this.own) this.open();
    } else if (status === 'connecting' && this.live) {
      this.wasLost = true;
      clearTimeout(this.lost);
      this.lost = setTimeout(() => this.wasLost && this.live && this.say(PHASES.disconnected()), SETTLE_MS);
    }
  }

  /**
   * Note when this page sees a cell end, to measure how long its turn takes to be seen; and what became of a proposal.
   * @param {Message} msg
   */
  watch(msg) {
    if (msg.header.msg_type === 'update_display_data') this.hands.settle(msg.content.data);
    if (
      msg.header.msg_type === 'status' &&
      msg.content.execution_state === 'idle' &&
      msg.parent_header?.msg_type === 'execute_request'
    )
      this.cellEnd = performance.now();
  }

  /** @param {{statement_id: string, ended_at: number | null}} mark */
  painted({ statement_id, ended_at }) {
    this.owner.painted(this, statement_id, ended_at);
  }

  /** The user asks: try again, whatever the kernel is. */
  reconnect() {
    this.forced = true;
    this.drop(true);
    if (!this.kernel) return this.say(PHASES.noKernel());
    this.say(PHASES.connecting());
    this.open();
  }

  /** Forget the comm. `tell` also closes it in the kernel, which must be alive for that. @param {boolean} [tell] */
  drop(tell = false) {
    clearTimeout(this.timer);
    clearTimeout(this.asked);
    clearTimeout(this.settle);
    this.asked = undefined;
    const comm = this.comm;
    this.comm = null;
    this.live = false;
    this.gutter?.leave();
    if (!comm || comm.isDisposed) return;
    try {
      if (tell) comm.close();
      else comm.dispose();
    } catch {
      // Its kernel is gone already.
    }
  }

  /** @param {Phase} phase */
  say(phase) {
    if (this.disposed) return;
    this.view.phase(phase);
    this.owner.mark(this);
    this.phase = phase.name;
    this.owner.drawStatus();
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
    this.drop(true);
    this.disposed = true;
    clearTimeout(this.lost);
    this.context.kernelChanged.disconnect(this.onKernel);
    this.context.statusChanged.disconnect(this.onStatus);
    this.context.connectionStatusChanged.disconnect(this.onConnection);
    this.context.iopubMessage.disconnect(this.onMessage);
    this.asks.dispose();
    this.tab?.dispose();
    this.notebook.context.saveState?.disconnect(this.onSave);
    this.gutter.dispose();
    this.view.dispose();
    this.host.remove();
    this.owner.links.delete(this.notebook);
  }
}

/** What the panel says where it is not live. @satisfies {Record<string, (name: string) => Phase>} */
const PHASES = {
  connecting: () => ({ name: 'connecting', tone: 'wait', title: 'Connecting to the kernel…' }),
  busy: () => ({
    name: 'busy',
    tone: 'wait',
    title: 'The kernel is busy',
    text: 'A cell is running. The panel fills when it ends.'
  }),
  restarting: () => ({
    name: 'restarting',
    tone: 'wait',
    title: 'The kernel restarts…',
    text: 'The panel comes back with it.'
  }),
  disconnected: () => ({
    name: 'disconnected',
    tone: 'warn',
    title: 'The connection to the kernel is lost',
    text: 'JupyterLab is trying to get it back. What you see is the last known state.'
  }),
  dead: () => ({
    name: 'dead',
    tone: 'error',
    title: 'The kernel died',
    text: 'What you see is the last known state. Restart it: menu Kernel → Restart Kernel…'
  }),
  noKernel: () => ({
    name: 'no-kernel',
    tone: 'info',
    title: 'This notebook has no kernel',
    text: 'Choose “ctxkernel” in the kernel menu at the top right of the notebook.'
  }),
  closed: () => ({
    name: 'no-answer',
    tone: 'warn',
    title: 'The kernel closed the panel’s connection',
    text: 'Reconnect, or restart the kernel if that does not help.',
    button: 'Reconnect'
  }),
  noAnswer: () => ({
    name: 'no-answer',
    tone: 'warn',
    title: 'The kernel does not answer',
    text: 'It may lack ctxkernel. Load the extension in a cell, then reconnect:',
    code: '%load_ext ctxkernel',
    after: 'Or choose the kernel “ctxkernel” (menu Kernel → Change Kernel…).',
    button: 'Reconnect'
  }),
  shared: () => ({
    name: 'no-answer',
    tone: 'info',
    title: 'Another view of this kernel is open',
    text: 'JupyterLab lets one document per kernel have the panel’s connection. Go to the other one, or close it and reconnect.',
    button: 'Reconnect'
  }),
  other: (name) => ({
    name: 'other',
    tone: 'info',
    title: 'ctxkernel is not loaded here',
    text: `This notebook runs on “${name}”. Load ctxkernel in a cell, then connect:`,
    code: '%load_ext ctxkernel',
    after: 'Or choose the kernel “ctxkernel” (menu Kernel → Change Kernel…), which also opens this panel by itself.',
    button: 'Connect'
  })
};

/** A tab with the timeline of a notebook. @param {Parts} lab @param {Link} link */
function timelineTab(lab, link) {
  class TimelineTab extends lab.Widget {
    drawn = link.view.wide(this.node);

    /** @override */
    onAfterShow() {
      this.drawn.shown();
    }

    /** @override */
    onActivateRequest() {
      this.drawn.focus();
    }

    /** @override */
    dispose() {
      this.drawn.dispose();
      link.tab = null;
      super.dispose();
    }
  }
  const tab = new TimelineTab();
  tab.id = `ctxkernel-timeline-${Math.random().toString(36).slice(2)}`;
  tab.addClass('ctxk-tabwidget');
  tab.title.label = `Timeline: ${link.notebook.title.label}`;
  tab.title.closable = true;
  tab.title.icon = new lab.LabIcon({ name: 'jupyter-ctxkernel:panel', svgstr: ICON });
  return tab;
}

/** Whether two elements are in the outputs of one cell. @param {Element} a @param {Element | undefined} b */
const sameOutputs = (a, b) => b !== undefined && b.closest('.jp-OutputArea') === a.closest('.jp-OutputArea');

/* ---------------------------------------------------------------- the panel */

/** The widget in the right area, and who is shown in it. */
class Panel {
  /** @param {Parts} lab */
  constructor(lab) {
    this.lab = lab;
    /** @type {Map<NotebookPanel, Link>} */
    this.links = new Map();
    this.autoOpen = true;
    this.tab = 'timeline';
    /** JupyterLab has put back its side panels. */
    this.ready = false;
    /** The page goes away. */
    this.leaving = false;
    this.styled = false;
    /** The first-run hint was dismissed on this page. */
    this.hintGone = false;
    /** The panel was widened once. */
    this.sized = false;
    /** @type {Settings | null} */
    this.settings = null;
    /** @type {LabWidget | null} */
    this.widget = null;
    /** What is shown where no notebook is in front. @type {HTMLElement | null} */
    this.none = null;
    /** Outputs that are proposals, of all notebooks. @type {Set<ProposalOutput>} */
    this.cards = new Set();
    /** Shown by a restore or by ourselves: not the user's doing, so not remembered. */
    this.quiet = 0;
    /** Settings of the notebook's part. */
    this.options = { gutter: true, fadeOutputs: true, offerCells: true, statusBar: true };
    /** Commands that depend on the notebook in front. @type {string[]} */
    this.offered = [];
    /** @type {HTMLElement | null} */
    this.status = null;
  }

  /** The active cell of the notebook in front, if it is a code cell. */
  get codeCell() {
    const cell = this.link?.notebook.content.activeCell;
    return cell?.model.type === 'code' ? cell : null;
  }

  /** Read the settings of the notebook's part, and have all notebooks follow. @param {Settings} loaded */
  readOptions(loaded) {
    for (const name of /** @type {(keyof Panel['options'])[]} */ (Object.keys(this.options)))
      this.options[name] = loaded.get(name).composite !== false;
    for (const link of this.links.values()) link.follow();
    this.drawStatus();
  }

  /** @param {keyof Panel['options']} name @param {boolean} on */
  setOption(name, on) {
    this.options[name] = on;
    for (const link of this.links.values()) link.follow();
    void this.settings
      ?.set(name, on)
      .catch((/** @type {unknown} */ error) => console.warn('ctxkernel: could not save the setting', error));
  }

  /** Put our item into the status bar. */
  addStatus() {
    const { statusBar, Widget } = this.lab;
    if (!statusBar) return;
    const item = new Widget();
    this.status = statusButton(() => {
      this.show();
      this.widget?.activate();
    });
    item.node.append(this.status);
    statusBar.registerStatusItem('jupyter-ctxkernel:status', { item, align: 'left', rank: 5 });
  }

  drawStatus() {
    if (!this.status) return;
    const parts = this.options.statusBar ? (this.link?.view.statusParts() ?? []) : [];
    this.status.hidden = !parts.length;
    drawStatus(this.status, parts);
  }

  /** The first-run hint, which a setting remembers. @returns {import('./firststeps.js').Hint} */
  get hint() {
    return {
      wanted: () => !this.hintGone && this.settings?.get('hint').composite === true,
      dismiss: () => {
        this.hintGone = true;
        void this.settings
          ?.set('hint', false)
          .catch((/** @type {unknown} */ error) => console.warn('ctxkernel: could not save the setting', error));
      }
    };
  }

  /** The link of the notebook that an element stands in. @param {Node} node */
  linkOf(node) {
    for (const link of this.links.values()) if (link.notebook.node.contains(node)) return link;
    return null;
  }

  /** What waits in a notebook, or whether it can be decided now, may have changed. @param {Link} link */
  decides(link) {
    // Asked while the link is still being made: it has nothing yet.
    if (!link.view) return;
    for (const card of this.cards) if (link.notebook.node.contains(card.node)) card.draw();
    if (link.front) for (const command of [APPROVE, REJECT]) this.lab.app.commands.notifyCommandChanged(command);
    const id = link.view.proposal()?.id ?? null;
    if (id === link.offered || (id && link.view.stands(link.view.proposal()).busy)) return;
    link.offered = id;
    // When its output has been drawn, too.
    if (id && link.front) setTimeout(() => this.offer(link, id), 100);
  }

  /**
   * Give the keyboard to what waits, where the user has it nowhere, in the panel, or in that output; never out of an editor.
   * @param {Link} link
   * @param {string} id
   */
  offer(link, id) {
    if (link.view.proposal()?.id !== id) return;
    const at = document.activeElement;
    const shown = [...this.cards].find(
      (card) => link.view.stands(card.proposal).live && link.notebook.node.contains(card.node)
    );
    if (shown?.node.contains(at) || link.view.card()?.el.contains(at)) return;
    const typing = at?.closest('input, textarea, [contenteditable=true], .jp-Editor, .cm-editor');
    if (typing || (at && at !== document.body && !this.widget?.node.contains(at) && !sameOutputs(at, shown?.node))) return;
    const inPanel = this.widget?.isVisible && (this.widget.node.contains(at) || !shown);
    (inPanel ? link.view.card() : shown?.card)?.focus(true);
  }

  async start() {
    this.commands();
    this.offered = addCommands(this.lab, this, new this.lab.LabIcon({ name: 'jupyter-ctxkernel:menu', svgstr: ICON }));
    this.addStatus();
    const { app, tracker, settings, state } = this.lab;
    tracker.widgetAdded.connect((_, notebook) => this.adopt(notebook));
    tracker.currentChanged.connect(() => this.follow());
    tracker.activeCellChanged.connect(() => this.tellCommands());
    this.lab.NotebookActions.executed?.connect((_, args) => this.executed(args));
    // Comms of a page that goes away would stay in the kernel and be sent to for nothing.
    window.addEventListener('pagehide', () => {
      this.leaving = true;
      for (const link of this.links.values()) link.drop(true);
    });
    // …and a page that comes back from the browser's cache has none.
    window.addEventListener('pageshow', (event) => {
      this.leaving = false;
      if (event.persisted) for (const link of this.links.values()) if (link.own) link.open();
    });
    try {
      const loaded = await settings?.load(ID);
      if (loaded) {
        this.settings = loaded;
        const read = () => {
          this.autoOpen = loaded.get('autoOpen').composite !== false;
          this.readOptions(loaded);
        };
        read();
        loaded.changed.connect(read);
      }
    } catch (error) {
      console.warn(
        'ctxkernel: settings are not available, so a closed panel is only remembered until the page is left',
        error
      );
    }
    try {
      const saved = await state?.fetch(ID);
      if (saved?.tab) this.tab = String(saved.tab);
      this.sized = Boolean(saved?.sized);
    } catch {
      // Only a convenience.
    }
    // Before this, Lab still puts back its own side panels and would hide ours.
    await app.restored;
    this.ready = true;
    tracker.forEach((notebook) => this.adopt(notebook));
    this.follow();
  }

  /** @param {NotebookPanel} notebook */
  adopt(notebook) {
    if (!this.ready || this.links.has(notebook) || notebook.isDisposed) return;
    const link = new Link(this.lab, notebook, this);
    this.links.set(notebook, link);
    link.follow();
    followCellLinks(notebook.node, (cellId) => void link.goto(cellId));
    this.decides(link);
    this.widget?.node.append(link.host);
    this.follow();
  }

  get link() {
    const notebook = this.lab.tracker.currentWidget;
    return notebook ? (this.links.get(notebook) ?? null) : null;
  }

  /** Show the view of the notebook in front. */
  follow() {
    const link = this.link;
    for (const other of this.links.values()) other.host.hidden = other !== link;
    if (this.none) this.none.hidden = Boolean(link);
    link?.view.shown();
    this.drawStatus();
    if (link) {
      this.mark(link);
      if (link.own) this.wants(link);
    }
  }

  /**
   * A notebook on a ctxkernel is there: open for it, once a kernel, unless the user closed the panel.
   * @param {Link} link
   */
  wants(link) {
    if (!this.ready || !link.front) return;
    this.ensure();
    if (link.openedFor === link.kernel?.id) return;
    link.openedFor = link.kernel?.id;
    if (this.autoOpen) this.show();
  }

  /** Have our styles in the page, once. */
  styles() {
    if (this.styled) return;
    this.styled = true;
    for (const name of STYLES) {
      const style = document.createElement('link');
      style.rel = 'stylesheet';
      style.href = new URL(name, import.meta.url).href;
      document.head.append(style);
    }
  }

  /** Put the widget into the right area, once; from then on its tab is there. */
  ensure() {
    if (this.widget) return this.widget;
    const { app, Widget, LabIcon } = this.lab;
    const panel = this;
    class PanelWidget extends Widget {
      /** @override */
      onAfterShow() {
        panel.visible(true);
      }
      /** @override */
      onAfterHide() {
        panel.visible(false);
      }
      /** @override */
      onActivateRequest() {
        // Only asked for by the user (command, click on the tab): the keyboard goes where the eyes are.
        if (!panel.quiet) find(this.node, '.ctxk-host:not([hidden]) [role=tab][aria-selected=true]')?.focus();
      }
    }
    const widget = new PanelWidget();
    widget.id = PANEL_ID;
    widget.addClass('ctxk-panel');
    widget.title.icon = new LabIcon({ name: 'jupyter-ctxkernel:panel', svgstr: ICON });
    widget.title.caption = 'ctxkernel: timeline, handles, projection';
    widget.node.setAttribute('aria-label', 'ctxkernel');
    widget.node.setAttribute('role', 'region');
    this.styles();
    this.none = document.createElement('p');
    this.none.className = 'ctxk-none';
    this.none.textContent = 'Open a notebook: this panel follows the one in front.';
    widget.node.append(this.none);
    for (const link of this.links.values()) widget.node.append(link.host);
    this.widget = widget;
    this.quietly(() => app.shell.add(widget, 'right', { rank: 120, type: 'ctxkernel' }));
    this.follow();
    return widget;
  }

  show() {
    // Only if it is not there: Notebook 7 takes the second call for a wish to close it.
    if (!this.ensure().isVisible) this.quietly(() => this.lab.app.shell.activateById(PANEL_ID));
    setTimeout(() => this.widen(), 0);
  }

  /** Lab's side areas start at 250 px, too narrow for code. Widen ours once; from then on the width is the user's. */
  widen() {
    let split = this.widget?.parent;
    while (split && !split.setRelativeSizes) split = split.parent;
    if (this.sized || !this.widget?.isVisible || !split?.setRelativeSizes || !split.relativeSizes) return;
    this.sized = true;
    this.save();
    const missing = WIDTH - this.widget.node.offsetWidth;
    const sizes = split.relativeSizes();
    const share = missing / split.node.offsetWidth;
    // [left, main, right]: what the panel gains is the main area's.
    if (missing <= 0 || sizes.length !== 3 || sizes[1] < 2 * share) return;
    split.setRelativeSizes([sizes[0], sizes[1] - share, sizes[2] + share]);
  }

  close() {
    const { shell } = this.lab.app;
    if (this.widget?.isVisible) shell.collapseRight?.();
    this.remember(false);
  }

  /** What happens in here is ours, not the user's. @param {() => void} job */
  quietly(job) {
    this.quiet += 1;
    try {
      job();
    } finally {
      // Lumino delivers show, hide and activate in a later task.
      setTimeout(() => (this.quiet -= 1), 200);
    }
  }

  /**
   * The widget came or went. Collapsing the right area is closing; showing another panel there is not.
   * @param {boolean} on
   */
  visible(on) {
    if (this.quiet || this.leaving || !this.ready) return;
    if (on) {
      this.remember(true);
      this.link?.view.shown();
    } else if (this.lab.app.shell.rightCollapsed) this.remember(false);
  }

  /** @param {boolean} open */
  remember(open) {
    if (this.autoOpen === open) return;
    this.autoOpen = open;
    void this.settings
      ?.set('autoOpen', open)
      .catch((/** @type {unknown} */ error) => console.warn('ctxkernel: could not save the setting', error));
  }

  /**
   * The next notebook opens with this tab, where every session has it: an empty one would hide what is there.
   * @param {Tab} tab
   */
  setTab(tab) {
    if (tab === 'rerun' || tab === 'history') return;
    this.tab = tab;
    this.save();
  }

  save() {
    void this.lab.state?.save(ID, { tab: this.tab, sized: Boolean(this.sized) }).catch(() => {});
  }

  /** State for styles, tests and whoever looks: what the view in front shows. @param {Link} link */
  mark(link) {
    if (link.front) this.tellCommands();
    if (!this.widget || !link.front) return;
    this.widget.node.dataset.phase = link.live ? 'live' : link.phase;
    this.widget.node.dataset.session = link.live ? 'yes' : 'no';
  }

  /**
   * A turn is on the screen: leave when, so that a test can tell how long it took.
   * @param {Link} link
   * @param {string} statementId
   * @param {number | null} endedAt
   */
  painted(link, statementId, endedAt) {
    if (!this.widget || !link.front) return;
    const now = performance.now();
    const { dataset } = this.widget.node;
    dataset.lastTurn = statementId;
    dataset.paintedAt = String(now);
    // The kernel's clock; on one machine it is the same as this one's.
    dataset.sinceCellEnd = endedAt === null ? '' : String(performance.timeOrigin + now - endedAt * 1000);
    // When this page saw the kernel's `idle` for the cell; empty where the turn was painted before that came.
    dataset.idleAt = link.cellEnd === null ? '' : String(link.cellEnd);
  }

  /**
   * A cell has loaded the extension into a stock kernel, and the panel is being looked at: connect.
   * @param {Executed} executed
   */
  executed({ notebook, cell, success }) {
    if (!success || !this.widget?.isVisible) return;
    const source = cell?.model.sharedModel.getSource() ?? '';
    if (!/%load_ext\s+ctxkernel\b/.test(source)) return;
    for (const link of this.links.values()) if (link.notebook.content === notebook && !link.live) link.reconnect();
  }

  commands() {
    const { app, palette } = this.lab;
    /** @param {string} command @param {string} label @param {() => void} execute */
    const add = (command, label, execute) => {
      app.commands.addCommand(command, { label, execute: () => void execute() });
      palette?.addItem({ command, category: 'ctxkernel' });
    };
    add('ctxkernel:open-panel', 'ctxkernel: Open the panel', () => {
      const widget = this.ensure();
      this.remember(true);
      if (widget.isVisible) widget.activate();
      else app.shell.activateById(PANEL_ID);
      const link = this.link;
      if (link && !link.live && link.own === false) link.reconnect();
    });
    add('ctxkernel:close-panel', 'ctxkernel: Close the panel', () => this.close());
    add('ctxkernel:reconnect', 'ctxkernel: Reconnect', () => {
      this.show();
      this.link?.reconnect();
    });
    add('ctxkernel:open-timeline', 'ctxkernel: Open the timeline in a tab', () => this.openTimeline());
    this.decidingCommands();
    const rerunIcon = new this.lab.LabIcon({ name: 'jupyter-ctxkernel:rerun', svgstr: RERUN_ICON });
    /**
     * @param {string} command
     * @param {string} label
     * @param {string} caption
     * @param {object | undefined} icon
     * @param {(link: Link, cellId: string) => void} execute
     */
    const onCell = (command, label, caption, icon, execute) => {
      app.commands.addCommand(command, {
        // The palette lists it among ours; in a menu of the notebook its place says enough.
        label: (args) => (args.isPalette ? `ctxkernel: ${label}` : label),
        caption,
        icon,
        isEnabled: () => this.cellInReach() !== null,
        isVisible: () => this.cellInReach() !== null,
        execute: () => {
          const cellId = this.cellInReach();
          const { link } = this;
          if (cellId === null || !link) return;
          this.show();
          execute(link, cellId);
        }
      });
      palette?.addItem({ command, category: 'ctxkernel', args: { isPalette: true } });
    };
    onCell(
      RERUN,
      'Re-run from here',
      'Re-run from here (restores the state before this cell)',
      rerunIcon,
      ({ view, hands }, cellId) => void view.rerunFromCell(cellId, hands.codeCells)
    );
    onCell(
      GO_BACK,
      'Go back to after this cell',
      'Restore the state after this cell as it was when it last ran',
      undefined,
      ({ view }, cellId) => void view.goBackToCell(cellId)
    );
    onCell(
      UNDO,
      'Undo the last cell or move',
      'Restore the state before the last cell, or before the last move',
      undefined,
      ({ view }) => void view.undo()
    );
  }

  /** Show the timeline of the notebook in front in a tab of the main area, once a notebook. */
  openTimeline() {
    const { link } = this;
    if (!link) return;
    this.styles();
    link.tab ??= timelineTab(this.lab, link);
    const { shell } = this.lab.app;
    if (!link.tab.isAttached) shell.add(link.tab, 'main', { mode: 'tab-after' });
    shell.activateById(link.tab.id);
  }

  /** Commands on what waits: there only while something does. */
  decidingCommands() {
    const { app, palette } = this.lab;
    /** @param {string} command @param {string} label @param {(card: Card) => void} execute */
    const add = (command, label, execute) => {
      app.commands.addCommand(command, {
        label: `ctxkernel: ${label}`,
        isEnabled: () => {
          const { link } = this;
          const proposal = link?.view.proposal();
          if (!link || !proposal) return false;
          const { live, busy } = link.view.stands(proposal);
          return Boolean(live) && !busy;
        },
        execute: () => {
          // What is decided on is seen.
          this.show();
          // The palette first gives the keyboard back to where it was.
          setTimeout(() => {
            const card = this.link?.view.card();
            if (card) execute(card);
          }, 50);
        }
      });
      palette?.addItem({ command, category: 'ctxkernel' });
    };
    add(APPROVE, 'Approve the proposal', (card) => card.run());
    add(REJECT, 'Reject the proposal', (card) => card.refuse());
  }

  /** The id of the code cell that is active in the notebook in front, where that one's kernel can go back; else null. */
  cellInReach() {
    const { link } = this;
    if (!link?.live || !link.view.canMove()) return null;
    const cell = link.notebook.content.activeCell;
    return cell?.model.type === 'code' ? cell.model.id : null;
  }

  /** Buttons and menus look whether a command is there only when they are told that it may have changed. */
  tellCommands() {
    for (const command of [RERUN, GO_BACK, UNDO, ...this.offered]) this.lab.app.commands.notifyCommandChanged(command);
  }
}

export { Link, Panel, createPlugin };
