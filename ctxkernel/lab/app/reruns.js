/** Running again from a row or a cell on: the plan with its cells, and running them one after the other. */

import { askKernel } from './askkernel.js';
import { label } from './rownames.js';
import { questionOf, verdict } from './rowparts.js';
import { headline } from './text.js';
import { startOf, targetOf } from './tree.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {Job, Step} from './plans.js' */
/** @import {Cell} from './render.js' */
/** @import {Returning} from './returning.js' */
/** @import {AnyRow} from './tree.js' */

/** The tag of a cell that asks before it runs again. */
const ASKS = 'ctx-asks';
/** A cell of our commands: those that only read leave no statement. */
const COMMAND = /^\s*%ctx\b/;
const MOVES = /^\s*(?:#.*\n\s*)*%ctx\s+(?:goto|undo|rerun|resume)\b/;

class Reruns {
  /** @param {Returning} returning */
  constructor(returning) {
    this.returning = returning;
    this.view = returning.view;
    /** Cells are being run, one after the other: between two of them the kernel is idle, and still not free. */
    this.running = false;
  }

  /**
   * From a row on: the notebook's cells as they are now where it has that cell, else the statements of the log.
   * @param {AnyRow} which
   * @returns {Promise<void>}
   */
  async rerun(which) {
    const row = await this.view.whole(which);
    const cells = row.cell_id ? this.view.actions.cellsFrom?.(String(row.cell_id)) : null;
    if (cells?.length) return this.rerunCells(row, cells, () => this.rerun(row));
    const target = targetOf(row, this.view);
    /** @type {Job} */
    const job = {
      title: `Re-run from ${label(row)}`,
      detail:
        'Its cell is not in a notebook here: the recorded statements run again, and their output goes to the timeline.',
      confirm: 'Re-run',
      request: { action: 'rerun', target },
      done: `Re-run from ${label(row)}.`,
      /** Statements that ask run only if a person says so. */
      asked: false,
      get code() {
        return `%ctx rerun ${target}${this.asked ? ' --yes' : ''}`;
      }
    };
    return this.returning.propose(job, () => this.rerun(row));
  }

  /**
   * From a cell of the notebook on. `ids` are all its code cells, in order.
   * @param {string} cellId
   * @param {string[]} ids
   * @returns {Promise<void> | null}
   */
  rerunFromCell(cellId, ids) {
    const cells = this.view.actions.cellsFrom?.(cellId);
    if (!cells?.length) return null;
    const path = this.view.wayToHead.map((node) => node.row);
    return this.rerunCells(startOf(path, ids, cellId), cells, () => this.rerunFromCell(cellId, ids));
  }

  /**
   * @param {AnyRow | null} row the run whose state before is restored; null: nothing of these cells has run, so none is
   * @param {Cell[]} cells
   * @param {() => unknown} again makes the plan anew
   */
  async rerunCells(row, cells, again) {
    const target = row === null ? null : targetOf(row, this.view);
    const last = await this.lastRuns(cells);
    // A cell that itself moves HEAD would carry the re-run off to another state.
    const steps = cells
      .filter((cell) => !MOVES.test(cell.source))
      .map((cell) => {
        const ran = last.get(cell.cell_id);
        const took = number(ran?.time_ms);
        const asks = Boolean(dict(ran?.marks).asks) || list(cell.tags).includes(ASKS);
        return {
          cell_id: cell.cell_id,
          id: ran ? label(ran) : COMMAND.test(cell.source) ? '' : 'new',
          gist: questionOf(cell) || headline(cell.source),
          expected_s: took === null ? null : took / 1000,
          edited: ran !== undefined && String(ran.source) !== cell.source,
          asks,
          run: !asks
        };
      });
    return this.returning.propose({
      title: row ? `Re-run from ${label(row)}` : 'Run from here',
      detail: row
        ? `Restores the state before ${label(row)}, then runs the notebook’s cells from there as they are now.`
        : '',
      confirm: () => `Re-run ${plural(steps.filter((one) => one.run).length, 'cell')}`,
      request: target === null ? null : { action: 'goto', target, before: true },
      code: target === null ? null : `%ctx goto ${target} --before`,
      steps,
      then: () => this.runSteps(steps.filter((one) => one.run))
    }, again);
  }

  /**
   * The newest run on the way to HEAD of each of these cells, with its whole source.
   * @param {Cell[]} cells
   */
  async lastRuns(cells) {
    const { view } = this;
    const ids = new Set(cells.map((cell) => cell.cell_id));
    /** @type {Map<string, string>} */
    const keys = new Map();
    for (const { key, row } of view.wayToHead) if (row.cell_id && ids.has(row.cell_id)) keys.set(row.cell_id, key);
    await view.ensure([...keys.values()]);
    /** @type {Map<string, AnyRow>} */
    const runs = new Map();
    for (const [cell, key] of keys) {
      const row = view.rows.get(key) ?? {};
      const answer = row.brief ? await askKernel(this.view.actions.ask, 'details', { of: key }) : null;
      const whole = answer && 'details' in answer ? answer.details?.row.source : undefined;
      runs.set(cell, whole === undefined ? row : { ...row, source: whole });
    }
    return runs;
  }

  /** @param {Step[]} steps */
  async runSteps(steps) {
    const stop = { stopped: false };
    let ran = 0;
    const told = () =>
      this.returning.tell(`Re-running ${count(ran + 1)} of ${plural(steps.length, 'cell')}`, {
        button: stop.stopped ? '' : 'Stop after this one',
        onclick: () => {
          stop.stopped = true;
          told();
        },
        keep: true
      });
    const { rerunCells } = this.view.actions;
    if (!steps.length || !rerunCells) return this.returning.tell('No cell was left to run.');
    this.running = true;
    told();
    const result = await rerunCells(
      steps.map((one) => one.cell_id ?? ''),
      (n) => {
        ran = n;
        if (n < steps.length) told();
      },
      stop
    );
    this.running = false;
    this.returning.busyChanged();
    const left = steps.length - result.ran;
    const { failed } = result;
    if (failed)
      this.returning.tell(left ? `Stopped at an error; ${plural(left, 'cell')} not run.` : 'The last cell ended with an error.', {
        tone: 'error',
        button: 'Go to the cell',
        onclick: () => void this.view.actions.goto?.(failed)
      });
    else if (left) this.returning.tell(`Stopped: ${plural(left, 'cell')} not run.`, { tone: 'warn' });
    else this.toldOfRerun(steps.length);
  }

  /** @param {number} n */
  toldOfRerun(n) {
    const rows = this.view.compared;
    const differs = rows.filter((row) => row.comparison && verdict(row.comparison).word === 'differs').length;
    this.returning.tell(
      rows.length
        ? `Re-run: ${plural(n, 'cell')}, ${differs ? `${count(differs)} came out differently.` : 'none came out differently.'}`
        : `Ran ${plural(n, 'cell')}.`,
      rows.length ? { button: 'Show', onclick: () => this.view.select('rerun') } : {}
    );
  }
}

export { Reruns };
