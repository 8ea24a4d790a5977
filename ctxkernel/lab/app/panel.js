/**
 * The panel in the right area of JupyterLab: the widget, which notebook is shown in it, and what it remembers.
 *
 * Rule 1: it opens by itself for kernels whose kernel_info says `ctxkernel`, once a kernel, and never for another.
 * Rule 2: only what the user does is remembered: not what a restore, or we, did.
 */

import { followCellLinks } from './celllinks.js';
import { addCommands } from './commands.js';
import { find } from './elements.js';
import { ICON, ID, PANEL_ID } from './labparts.js';
import { Link } from './link.js';
import { MOVES, ON_PROPOSAL, addPanelCommands } from './panelcommands.js';
import { drawStatus, statusButton } from './statusline.js';
import { timelineTab } from './timelinetab.js';

/** @import {NotebookPanel, Settings, Widget as LabWidget} from '../jupyterlab.js' */
/** @import {Parts} from './labparts.js' */
/** @import {ProposalOutput} from './proposaloutput.js' */
/** @import {Tab} from './sections.js' */

/** Width of the panel at its first opening, in pixels. */
const WIDTH = 370;
const STYLES = [
  'panel.css',
  'timeline.css',
  'details.css',
  'handles.css',
  'changes.css',
  'projection.css',
  'history.css',
  'cost.css',
  'branches.css',
  'returning.css',
  'comparisons.css',
  'sweeps.css',
  'proposal.css',
  'notebook.css',
  'differences.css',
  'rendering.css'
];

/** Whether two elements are in the outputs of one cell. @param {Element} a @param {Element | undefined} b */
const sameOutputs = (a, b) => b !== undefined && b.closest('.jp-OutputArea') === a.closest('.jp-OutputArea');

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
    /** The notebook whose turn was painted last, while it is in front. @type {Link | null} */
    this.paintedOf = null;
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
    if (link.front) for (const command of ON_PROPOSAL) this.lab.app.commands.notifyCommandChanged(command);
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
    addPanelCommands(this);
    this.offered = addCommands(this.lab, this, new this.lab.LabIcon({ name: 'jupyter-ctxkernel:menu', svgstr: ICON }));
    this.addStatus();
    const { app, tracker, settings, state } = this.lab;
    tracker.widgetAdded.connect((_, notebook) => this.adopt(notebook));
    tracker.currentChanged.connect(() => this.follow());
    tracker.activeCellChanged.connect(() => this.tellCommands());
    // Comms of a page that goes away would stay in the kernel and be sent to for nothing.
    window.addEventListener('pagehide', () => {
      this.leaving = true;
      for (const link of this.links.values()) link.connection.drop(true);
    });
    // …and a page that comes back from the browser's cache has none.
    window.addEventListener('pageshow', (event) => {
      this.leaving = false;
      if (event.persisted) for (const link of this.links.values()) if (link.connection.own) link.connection.open();
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
    if (link !== this.paintedOf) this.forgetTurn();
    if (this.none) this.none.hidden = Boolean(link);
    link?.view.shown();
    this.drawStatus();
    if (link) {
      this.mark(link);
      if (link.connection.own) this.wants(link);
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
    this.leaveByEscape(widget.node, () => this.link);
    this.widget = widget;
    this.quietly(() => app.shell.add(widget, 'right', { rank: 120, type: 'ctxkernel' }));
    this.follow();
    return widget;
  }

  /**
   * Escape gives the keyboard back to the notebook, where nothing in the element has another use for it.
   * @param {HTMLElement} node @param {() => Link | null} linkOf
   */
  leaveByEscape(node, linkOf) {
    node.addEventListener('keydown', (event) => {
      const notebook = linkOf()?.notebook;
      if (event.key !== 'Escape' || event.isComposing || !notebook) return;
      event.preventDefault();
      event.stopPropagation();
      this.lab.app.shell.activateById(notebook.id);
      notebook.content.activate();
    });
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
    this.paintedOf = link;
    const now = performance.now();
    const { dataset } = this.widget.node;
    dataset.lastTurn = statementId;
    dataset.paintedAt = String(now);
    // The kernel's clock; on one machine it is the same as this one's.
    dataset.sinceCellEnd = endedAt === null ? '' : String(performance.timeOrigin + now - endedAt * 1000);
    // When this page saw the kernel's `idle` for the cell; empty where the turn was painted before that came.
    dataset.idleAt = link.connection.cellEnd === null ? '' : String(link.connection.cellEnd);
  }

  /** Another notebook came to the front: the turn that was painted last is not one of its session. */
  forgetTurn() {
    this.paintedOf = null;
    if (!this.widget) return;
    const { dataset } = this.widget.node;
    for (const name of ['lastTurn', 'paintedAt', 'sinceCellEnd', 'idleAt']) delete dataset[name];
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

  /** The id of the code cell that is active in the notebook in front, where that one's kernel can go back; else null. */
  cellInReach() {
    return this.canMove ? (this.codeCell?.model.id ?? null) : null;
  }

  /** Whether the kernel of the notebook in front can go back. */
  get canMove() {
    return Boolean(this.link?.live && this.link.view.canMove());
  }

  /** Buttons and menus look whether a command is there only when they are told that it may have changed. */
  tellCommands() {
    for (const command of [...MOVES, ...this.offered]) this.lab.app.commands.notifyCommandChanged(command);
  }
}

export { Panel };
