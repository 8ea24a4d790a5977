/**
 * The renderer of the panel: draws what the kernel sends (docs/panel-protocol.md), knows nothing of JupyterLab.
 *
 * Rule 1: every text is untrusted; see elements.js.
 * Rule 2: no imports but the parts beside it: the inline widget (`%ctx panel`) joins them into one module.
 * Rule 3: a missing or odd field is drawn as nothing; a fault in one section never takes the others down.
 */

import { Card } from './proposal.js';
import { statusParts } from './statusline.js';
import { dict } from './values.js';
import { View } from './view.js';

/** @import {Proposal, BeginMessage, KernelMessage, SnapshotMessage, TurnMessage} from '../messages.js' */
/** @import {Ask} from '../types.js' */
/** @import {Offer} from './cellversions.js' */
/** @import {Hint} from './firststeps.js' */
/** @import {Phase} from './phases.js' */
/** @import {CardHost} from './proposal.js' */
/** @import {Tab} from './sections.js' */

/** @typedef {{cell_id: string, source: string, tags: string[]}} Cell a code cell of the notebook */

/**
 * What the host (JupyterLab plugin or widget) can do for the renderer.
 * @typedef {object} Actions
 * @property {string} [version] the front end's version; without it there is no version handshake
 * @property {(cellId: string) => Promise<boolean>} [goto] scroll the notebook to a cell; false where it has none of that id
 * @property {() => void} [reconnect]
 * @property {() => void} [close]
 * @property {string} [tab] the section to start with
 * @property {(tab: Tab) => void} [onTab]
 * @property {(mark: {statement_id: string, ended_at: number | null}) => void} [painted] a turn is on the screen
 * @property {Ask} [ask] what a return or a re-run would do, what a condensation stands for, how two projections differ;
 *   executes nothing
 * @property {(code: string, cellId?: string, said?: object) => Promise<{ok: boolean, text: string}>} [gesture] run a `%ctx` line as an
 *   execute request; what it leads to is shown by that cell
 * @property {() => void} [interrupt] stop what the kernel does
 * @property {() => void} [decides] what waits for the user, or whether it can be decided now, may have changed
 * @property {(data: Record<string, unknown>, el: HTMLElement) => boolean} [render] show a MIME bundle of nobody that is
 *   trusted; false: it cannot be shown
 * @property {Hint} [hint] whether a first-run hint is shown; the host remembers that it was dismissed
 * @property {(code: string, el: HTMLElement) => void} [highlight] add Python code to an element, in colours
 * @property {(cellId: string) => Cell[] | null} [cellsFrom] the notebook's code cells from that one on; null where it has
 *   none of that id
 * @property {() => Cell[]} [allCells] all code cells of the notebook that are not empty, in order
 * @property {(ids: string[], told: (done: number, reply: Record<string, any>) => unknown, stop: {stopped: boolean}, said?: object) =>
 *   Promise<{ran: number, failed: string | null}>} [rerunCells] run cells one after the other, up to the first error
 */

/**
 * Mount a panel for one notebook into `el`.
 *
 * Holds: messages may come in any order and at any rate; every method is cheap while its section is not in front.
 * @param {HTMLElement} el
 * @param {Actions} [actions]
 */
function mount(el, actions = {}) {
  const view = new View(el, actions);
  return {
    /** @param {Partial<SnapshotMessage>} msg */
    snapshot: (msg) => view.snapshot(msg),
    /** @param {Partial<BeginMessage>} msg */
    begin: (msg) => view.begin(msg),
    /** @param {Partial<TurnMessage>} msg */
    turn: (msg) => view.turn(msg),
    /** Any message of the protocol. @param {Partial<KernelMessage> | null | undefined} msg */
    message: (msg) => view.message(msg),
    /** What the kernel does, in Jupyter's words (`idle`, `busy`, `restarting`, `dead`, …). @param {string} status */
    kernelStatus: (status) => view.kernelStatus(status),
    /** How the connection stands; `null` when it is live. @param {Phase | null} phase */
    phase: (phase) => view.phase(phase),
    /** @param {string} text */
    title: (text) => view.title(text),
    /** The panel came to the front: things that only work on a shown element are done again. */
    shown: () => view.shown(),
    /** The index of a statement that is known while the one before it is not; 0 where there is no such hole. */
    hole: () => view.hole(),
    isRunning: () => view.running !== null,
    dispose: () => view.dispose(),
    /**
     * Restore the state before a cell and run from there.
     * @param {string} cellId @param {string[]} ids all of the notebook's code cells, in order
     */
    rerunFromCell: (cellId, ids) => view.returning.reruns.rerunFromCell(cellId, ids),
    /** Restore the state after the newest run of a cell on the way to HEAD. @param {string} cellId */
    goBackToCell: (cellId) => view.returning.goBackToCell(cellId),
    /**
     * Go to the state of a row of a sweep; returns false where the row is of another session.
     * @param {string} session @param {string} branch @param {string} told
     */
    goToRow: (session, branch, told) => {
      if (view.session !== session) return false;
      void view.returning.goTo(branch, `Go to ${branch}`, told);
      return true;
    },
    undo: () => view.returning.undo(),
    /** Show what a cell depends on, and what depends on it. @param {string} cellId */
    dependencies: (cellId) => view.returning.dependencies(cellId),
    /** Run only the cells of the notebook that edits affect, after a look at the plan. */
    runAffected: () => view.returning.affected(),
    /** Bring a section to the front. @param {Tab} tab */
    section: (tab) => view.select(tab),
    /** Give the keyboard to the search in the timeline. */
    search: () => {
      view.select('timeline');
      view.timeline.bar.focus();
    },
    /** The parts of the status bar's line. */
    statusParts: () => statusParts(view),
    /** Ask for a name of the state after a cell. @param {string} cellId */
    nameCell: (cellId) => view.onRowOf(cellId, (row) => view.returning.name(row)),
    /**
     * Set or take away a mark of a cell. Returns if that was done; if not, a message in the panel says why.
     * @param {string} cellId @param {'differs' | 'asks'} what
     */
    markCell: (cellId, what) =>
      view.onRowOf(cellId, (row) => view.returning.mark(row, what, !dict(row.marks)[what])),
    resume: () => view.returning.resume(),
    /** Offer to follow a move, or take the offer away. @param {Offer | null} offer */
    offer: (offer) => {
      view.following = offer;
      view.drawBanners();
    },
    /** The row of an execution in the timeline. @param {string} execution */
    showRun: (execution) => view.showRun(execution),
    /** The notebook's cell of a statement; null where it has none. @param {string} statement */
    cellOf: (statement) => view.rowOf(statement)?.cell_id ?? null,
    /** Whether the kernel can go back at all. */
    canMove: () => view.canMove,
    /** What of the model's waits for the user; null: nothing. */
    proposal: () => view.decisions.proposal,
    /** How the card of a proposal stands. @param {Partial<Proposal> | null | undefined} proposal */
    stands: (proposal) => view.decisions.stands(proposal),
    /** @param {string} code */
    decide: (code) => view.decisions.decide(code),
    /** The card of what waits, to decide on by command. */
    card: () => view.decisions.card,
    /** Draw the timeline in another element too, with room for details beside it. @param {HTMLElement} host */
    wide: (host) => view.wide(host)
  };
}

/**
 * A proposal, or what became of it, as an output of a cell.
 * @param {Partial<Proposal> | null | undefined} proposal @param {CardHost} host
 */
const makeCard = (proposal, host) => new Card(proposal, host);

export { makeCard, mount };
