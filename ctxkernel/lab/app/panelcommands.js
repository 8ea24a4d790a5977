/** Commands that open and close the panel, move through the session from a cell, and decide on what waits. */

import { AFFECTED_ICON, PANEL_ID, RERUN_ICON, labelOf } from './labparts.js';

/** @import {Link} from './link.js' */
/** @import {Panel} from './panel.js' */
/** @import {Card} from './proposal.js' */

const RERUN = 'ctxkernel:rerun-from-here';
const GO_BACK = 'ctxkernel:go-back-to-cell';
const AFFECTED = 'ctxkernel:run-affected';
const UNDO = 'ctxkernel:undo';
const APPROVE = 'ctxkernel:approve';
const REJECT = 'ctxkernel:reject';
/** Those that move, and those that decide on what waits. */
const MOVES = [RERUN, AFFECTED, GO_BACK, UNDO];
const ON_PROPOSAL = [APPROVE, REJECT];

/** Add the commands. @param {Panel} panel */
function addPanelCommands(panel) {
  panelCommands(panel);
  decidingCommands(panel);
  movingCommands(panel);
}

/** @param {Panel} panel */
function panelCommands(panel) {
  const { app, palette } = panel.lab;
  /** @param {string} command @param {string} label @param {() => void} execute */
  const add = (command, label, execute) => {
    app.commands.addCommand(command, { label: labelOf(label), execute: () => void execute() });
    palette?.addItem({ command, category: 'ctxkernel', args: { isPalette: true } });
  };
  add('ctxkernel:open-panel', 'Open the panel', () => {
    const widget = panel.ensure();
    panel.remember(true);
    if (widget.isVisible) widget.activate();
    else app.shell.activateById(PANEL_ID);
    const link = panel.link;
    if (link && !link.live && link.connection.own === false) link.connection.reconnect();
  });
  add('ctxkernel:close-panel', 'Close the panel', () => panel.close());
  add('ctxkernel:reconnect', 'Reconnect', () => {
    panel.show();
    panel.link?.connection.reconnect();
  });
  // Notebook 7 has room for one document only.
  if (app.shell.mode) add('ctxkernel:open-timeline', 'Open the timeline in a tab', () => panel.openTimeline());
}

/** Commands that move through the session of the notebook in front. @param {Panel} panel */
function movingCommands(panel) {
  const { app, palette } = panel.lab;
  const rerunIcon = new panel.lab.LabIcon({ name: 'jupyter-ctxkernel:rerun', svgstr: RERUN_ICON });
  const affectedIcon = new panel.lab.LabIcon({ name: 'jupyter-ctxkernel:affected', svgstr: AFFECTED_ICON });
  /**
   * @param {string} command
   * @param {string} label
   * @param {string} caption
   * @param {object | undefined} icon
   * @param {(link: Link) => void} execute
   * @param {() => boolean} [isEnabled]
   */
  const add = (command, label, caption, icon, execute, isEnabled = () => panel.canMove) => {
    app.commands.addCommand(command, {
      label: labelOf(label),
      caption,
      icon,
      isEnabled,
      // A toolbar whose buttons come and go with each cell would move under the pointer.
      isVisible: () => Boolean(panel.link?.gutter.marks.known),
      execute: () => {
        const { link } = panel;
        if (!link || !isEnabled()) return;
        panel.show();
        execute(link);
      }
    });
    palette?.addItem({ command, category: 'ctxkernel', args: { isPalette: true } });
  };
  /** @param {string} command @param {string} label @param {string} caption @param {object | undefined} icon @param {(link: Link, cellId: string) => void} execute */
  const onCell = (command, label, caption, icon, execute) =>
    add(
      command,
      label,
      caption,
      icon,
      (link) => execute(link, /** @type {string} */ (panel.cellInReach())),
      () => panel.cellInReach() !== null
    );
  onCell(
    RERUN,
    'Re-run from here',
    'Re-run from here (restores the state before this cell)',
    rerunIcon,
    ({ view, hands }, cellId) => void view.rerunFromCell(cellId, hands.codeCells)
  );
  add(
    AFFECTED,
    'Run affected cells',
    'Run only the cells that your edits affect; the plan is shown first',
    affectedIcon,
    ({ view }) => void view.runAffected()
  );
  onCell(
    GO_BACK,
    'Go back to after this cell',
    'Restore the state after this cell as it was when it last ran',
    undefined,
    ({ view }, cellId) => void view.goBackToCell(cellId)
  );
  add(
    UNDO,
    'Undo the last cell or move',
    'Restore the state before the last cell, or before the last move',
    undefined,
    ({ view }) => void view.undo()
  );
}

/** Commands on what waits: there only while something does. @param {Panel} panel */
function decidingCommands(panel) {
  const { app, palette } = panel.lab;
  /** @param {string} command @param {string} label @param {(card: Card) => void} execute */
  const add = (command, label, execute) => {
    app.commands.addCommand(command, {
      label: labelOf(label),
      isEnabled: () => {
        const { link } = panel;
        const proposal = link?.view.proposal();
        if (!link || !proposal) return false;
        const { live, busy } = link.view.stands(proposal);
        return Boolean(live) && !busy;
      },
      execute: () => {
        // What is decided on is seen.
        panel.show();
        // The palette first gives the keyboard back to where it was.
        setTimeout(() => {
          const card = panel.link?.view.card();
          if (card) execute(card);
        }, 50);
      }
    });
    palette?.addItem({ command, category: 'ctxkernel', args: { isPalette: true } });
  };
  add(APPROVE, 'Approve the proposal', (card) => card.run());
  add(REJECT, 'Reject the proposal', (card) => card.refuse());
}

export { MOVES, ON_PROPOSAL, addPanelCommands };
