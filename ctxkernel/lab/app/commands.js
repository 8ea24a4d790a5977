/**
 * Commands on the notebook in front and on the sections of the panel: in the palette, the menus, the toolbar and by key.
 *
 * Rule 1: all keys are in the schema of the settings, so that a user can change them; a test compares them with those that
 *         JupyterLab ships.
 * Rule 2: a command is there only where the notebook in front has a kernel that can do it.
 */

import { find } from './elements.js';
import { labelOf } from './labparts.js';
import { savePage } from './savepage.js';

/** @import {Cell} from '../jupyterlab.js' */
/** @import {Parts} from './labparts.js' */
/** @import {Link} from './link.js' */
/** @import {Panel} from './panel.js' */
/** @import {Tab} from './sections.js' */

const MENU = 'ctxkernel:menu';
const SETTING = { gutter: 'ctxkernel:toggle-gutter', fadeOutputs: 'ctxkernel:toggle-fading' };

/**
 * A command on the notebook in front.
 * @typedef {object} NotebookCommand
 * @property {string} id
 * @property {string} label
 * @property {string} [caption]
 * @property {boolean} [onCell] it needs an active code cell
 * @property {boolean} [hides] it is not seen where it cannot run: it stands in a menu of all documents
 * @property {(link: Link, cell: Cell) => unknown} run
 * @property {(link: Link, cell: Cell | null) => boolean} [toggled] it turns something on and off, and this says which holds
 */

/** Whether a person has marked a cell so. @param {Link} link @param {Cell | null} cell @param {'asks' | 'differs'} what */
const marked = (link, cell, what) => link.gutter.marks.cells.get(cell?.model.id ?? '')?.marked === what;

/**
 * Set or take away a mark of a cell. If it cannot be done, the panel opens with the message that says why.
 * @param {Link} link @param {Cell} cell @param {'asks' | 'differs'} what
 */
async function toggleMark(link, cell, what) {
  if (!(await link.view.markCell(cell.model.id, what))) link.owner.show();
}

/** @type {NotebookCommand[]} */
const ON_NOTEBOOK = [
  {
    id: 'ctxkernel:show-cell-state',
    label: 'Show the state of this cell',
    caption: 'Statement, branch, what it depends on, and what can be done',
    onCell: true,
    run: ({ gutter }, cell) => gutter.card.open(cell)
  },
  {
    id: 'ctxkernel:next-marked-cell',
    label: 'Go to the next cell that is not fresh',
    run: ({ gutter }) => gutter.next(1)
  },
  {
    id: 'ctxkernel:previous-marked-cell',
    label: 'Go to the previous cell that is not fresh',
    run: ({ gutter }) => gutter.next(-1)
  },
  {
    id: 'ctxkernel:show-cells-here',
    label: 'Show the cells as at HEAD…',
    caption: 'Text and outputs from the timeline; first what would change',
    run: ({ versions }) => versions.preview()
  },
  {
    id: 'ctxkernel:show-cell-here',
    label: 'Show this cell as at HEAD…',
    onCell: true,
    run: ({ versions }, cell) => versions.preview(cell)
  },
  {
    id: 'ctxkernel:compare-kept-texts',
    label: 'Compare the texts that are kept with this cell…',
    onCell: true,
    run: ({ versions }, cell) => versions.compareKept(cell)
  },
  {
    id: 'ctxkernel:show-in-timeline',
    label: 'Show this cell in the timeline',
    onCell: true,
    run: (link, cell) => link.showCell(cell)
  },
  {
    id: 'ctxkernel:search-timeline',
    label: 'Search the timeline',
    run: (link) => {
      link.owner.show();
      link.view.search();
    }
  },
  {
    id: 'ctxkernel:name-state',
    label: 'Name the state after this cell…',
    onCell: true,
    run: (link, cell) => {
      link.owner.show();
      link.view.nameCell(cell.model.id);
    }
  },
  {
    id: 'ctxkernel:toggle-asks',
    label: 'Ask before this cell runs again',
    onCell: true,
    toggled: (link, cell) => marked(link, cell, 'asks'),
    run: (link, cell) => toggleMark(link, cell, 'asks')
  },
  {
    id: 'ctxkernel:toggle-differs',
    label: 'Expect this cell to differ',
    onCell: true,
    toggled: (link, cell) => marked(link, cell, 'differs'),
    run: (link, cell) => toggleMark(link, cell, 'differs')
  },
  {
    id: 'ctxkernel:save-session-html',
    label: 'Save session as HTML',
    caption: 'Notebook, timeline and comparisons in one file, which needs no Jupyter to be read',
    hides: true,
    run: (link) => savePage(link)
  },
  { id: 'ctxkernel:resume', label: 'Resume the session of the earlier kernel', run: ({ view }) => view.resume() },
  { id: 'ctxkernel:stop-ask', label: 'Stop the ask or the cell', run: ({ kernel }) => kernel?.interrupt() }
];

/** The sections of the panel. @type {[Tab, string][]} */
const SECTIONS = [
  ['timeline', 'Timeline'],
  ['handles', 'Handles'],
  ['projection', 'Projection'],
  ['cost', 'Cost'],
  ['history', 'History'],
  ['changes', 'Changes'],
  ['rerun', 'Re-run'],
  ['sweeps', 'Sweeps']
];

/** What the menu of the toolbar has, with lines between its parts. */
const IN_MENU = [
  ['ctxkernel:rerun-from-here', 'ctxkernel:run-affected', 'ctxkernel:go-back-to-cell', 'ctxkernel:undo'],
  ['ctxkernel:show-cells-here', 'ctxkernel:show-cell-state', 'ctxkernel:next-marked-cell', 'ctxkernel:compare-kept-texts'],
  ['ctxkernel:name-state', 'ctxkernel:toggle-asks', 'ctxkernel:toggle-differs', 'ctxkernel:show-in-timeline'],
  ['ctxkernel:open-panel', SETTING.gutter]
];

/**
 * Add the commands. Returns the ids of those that depend on the notebook in front.
 * @param {Parts} lab @param {Panel} panel @param {object} icon of the menu
 */
function addCommands(lab, panel, icon) {
  const { app, palette } = lab;
  const offered = /** @type {string[]} */ ([]);
  /** @param {string} id */
  const offer = (id) => {
    palette?.addItem({ command: id, category: 'ctxkernel', args: { isPalette: true } });
    offered.push(id);
  };
  for (const { id, label, caption, onCell, hides, toggled, run } of ON_NOTEBOOK) {
    const there = () => Boolean(panel.link?.gutter.marks.known && (!onCell || panel.codeCell));
    app.commands.addCommand(id, {
      label: labelOf(label),
      caption,
      isEnabled: there,
      isVisible: () => !hides || there(),
      ...(toggled && { isToggleable: true, isToggled: () => Boolean(panel.link && toggled(panel.link, panel.codeCell)) }),
      execute: () => {
        const { link } = panel;
        const cell = panel.codeCell;
        // The palette first gives the keyboard back to where it was.
        if (link) setTimeout(() => void run(link, /** @type {Cell} */ (cell)), 0);
      }
    });
    offer(id);
  }
  for (const [tab, name] of SECTIONS) {
    const id = `ctxkernel:show-${tab}`;
    app.commands.addCommand(id, {
      label: labelOf(`Show the section ${name}`),
      isEnabled: () => panel.link !== null,
      execute: () => {
        panel.show();
        panel.link?.view.section(tab);
        // Later: the palette first gives the keyboard back to where it was.
        setTimeout(() => panel.widget?.activate(), 50);
      }
    });
    offer(id);
  }
  addSetting(lab, panel, SETTING.gutter, 'gutter', 'Show the marks beside cells');
  addSetting(lab, panel, SETTING.fadeOutputs, 'fadeOutputs', 'Fade outputs of other branches');
  app.commands.addCommand(MENU, {
    label: 'ctxkernel',
    caption: 'ctxkernel: go back, re-run, states of cells',
    icon,
    isVisible: () => Boolean(panel.link?.gutter.marks.known),
    execute: () => openMenu(lab, panel)
  });
  offered.push(MENU);
  return offered;
}

/**
 * A command that turns a setting on or off.
 * @param {Parts} lab @param {Panel} panel @param {string} id @param {'gutter' | 'fadeOutputs'} name @param {string} label
 */
function addSetting({ app, palette }, panel, id, name, label) {
  app.commands.addCommand(id, {
    label: labelOf(label),
    isToggled: () => panel.options[name],
    isToggleable: true,
    execute: () => panel.setOption(name, !panel.options[name])
  });
  palette?.addItem({ command: id, category: 'ctxkernel', args: { isPalette: true } });
}

/** Open the menu under its button in the notebook's toolbar. @param {Parts} lab @param {Panel} panel */
function openMenu(lab, panel) {
  const menu = new lab.Menu({ commands: lab.app.commands });
  IN_MENU.forEach((commands, i) => {
    if (i) menu.addItem({ type: 'separator' });
    for (const command of commands) menu.addItem({ command });
  });
  menu.aboutToClose.connect(() => setTimeout(() => menu.dispose(), 0));
  const node = panel.link?.notebook.node;
  const button = node && find(node, `[data-command="${MENU}"]`);
  const at = (button ?? node)?.getBoundingClientRect();
  menu.open(at?.left ?? 0, (button ? at?.bottom : at?.top) ?? 0);
}

export { addCommands };
