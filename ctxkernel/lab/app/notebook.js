/**
 * What the panel does to a notebook: gestures, questions, and running its cells again. JupyterLab's side of `Actions`.
 *
 * Rule 1: a gesture is an execute request that a person could have typed; it does not count as a prompt, does not stop the
 *         cells behind it when it fails, and is sent again where the error of a cell before it swept it away.
 * Rule 2: cells run one after the other, each when the one before has ended well, so that a stop is a stop.
 */

import { fingerprint } from './marks.js';
import { reasonOf } from './text.js';
import { list } from './values.js';

/** @import {Cell, CodeCell, Outputs} from '../jupyterlab.js' */
/** @import {Copy} from '../messages.js' */
/** @import {Answers, Requests} from '../types.js' */
/** @import {Link} from './link.js' */
/** @import {Actions} from './render.js' */

const PROPOSAL_MIME = 'application/vnd.ctxkernel.proposal+json';
/** How often a gesture that was swept away is sent again. */
const TRIES = 3;
/** How long an idle kernel may take to answer by the comm before it is asked on its control channel. */
const ANSWER_MS = 3000;

/** Errors of a gesture that was carried out: the next cell waits, the user stopped it, the model did not answer. */
const GOES_ON = new Set(['Waiting', 'KeyboardInterrupt', 'ModelFailure']);

class NotebookHands {
  /** @param {Link} link of one notebook to its kernel @param {CodeCell} CodeCell JupyterLab's */
  constructor(link, CodeCell) {
    this.link = link;
    this.CodeCell = CodeCell;
    /** @type {Map<string, (answer: any) => void>} what was asked for, by id */
    this.asked = new Map();
  }

  /** The part of the renderer's actions that is ours. @returns {Actions} */
  get actions() {
    return {
      ask: (type, request) => this.ask(type, request),
      gesture: (code, cellId, said) => this.gesture(code, cellId, said),
      interrupt: () => void this.link.kernel?.interrupt(),
      cellsFrom: (cellId) => this.cellsFrom(cellId),
      allCells: () => this.toldCells(this.content.widgets),
      rerunCells: (ids, told, stop, said) => this.rerunCells(ids, told, stop, said)
    };
  }

  get content() {
    return this.link.notebook.content;
  }

  /**
   * Ask for something that is only read, a plan say: by the comm, and while a cell runs on the control channel.
   * @template {keyof Requests} Type
   * @param {Type} type
   * @param {Requests[Type]} request
   * @returns {Promise<Answers[Type] | {error: string}>}
   */
  async ask(type, request) {
    const { kernel, comm } = this.link.connection;
    if (!kernel) return { error: 'The notebook has no kernel.' };
    const id = Math.random().toString(36).slice(2);
    if (comm && kernel.status === 'idle') {
      const answer = new Promise((resolve) => {
        this.asked.set(id, resolve);
        setTimeout(() => resolve(null), ANSWER_MS);
      });
      comm.send({ type, id, ...request });
      const found = await answer;
      this.asked.delete(id);
      if (found) return found;
    }
    return this.askByControl(type, request);
  }

  /**
   * Ask on the control channel, which answers while a cell runs, and whose answers have no limit of size.
   * @template {keyof Requests} Type
   * @param {Type} type
   * @param {Requests[Type]} request
   * @returns {Promise<Answers[Type] | {error: string}>}
   */
  async askByControl(type, request) {
    const { connection } = this.link;
    const { kernel } = connection;
    if (!kernel) return { error: 'The notebook has no kernel.' };
    const content = { id: Math.random().toString(36).slice(2), ...request };
    const message = connection.controlMessage(kernel, `ctxkernel_${type}_request`, content);
    const reply = await kernel.sendControlMessage(message, true).done;
    return reply?.content?.type === type ? reply.content : { error: 'This kernel cannot tell that.' };
  }

  /** Whether a message that came by the comm is an answer to us; who asked has it then. @param {any} data */
  answered(data) {
    const resolve = this.asked.get(data?.id);
    resolve?.(data);
    return Boolean(resolve);
  }

  /**
   * Run a line as a gesture. Returns whether it went well, and what it said. What it leads to (a cell of the model, an
   * answer) is added to the outputs of `cellId`: a page that was reloaded has no other place for it.
   * @param {string} code
   * @param {string} [cellId]
   * @param {object} [said] what else the kernel is told with it
   * @returns {Promise<{ok: boolean, text: string}>}
   */
  async gesture(code, cellId, said = {}) {
    const cell = cellId ? this.content.widgets.find((one) => one.model.id === cellId) : undefined;
    for (let i = 0; i < TRIES; i += 1) {
      const { kernel } = this.link;
      if (!kernel) return { ok: false, text: 'The notebook has no kernel.' };
      let text = '';
      /** @type {string | undefined} */
      let status;
      let ename = '';
      const sink = cell?.model.type === 'code' ? outputsOf(cell.model.outputs) : null;
      try {
        const future = kernel.requestExecute(
          { code, silent: false, store_history: false, user_expressions: {}, allow_stdin: false, stop_on_error: false },
          true,
          { ctxkernel: { ...said, kind: 'meta' } }
        );
        /** @type {object | null} */
        let failed = null;
        const error = () => failed && sink?.('error', failed);
        future.onIOPub = (msg) => {
          const { content } = msg;
          // The last error is that of the gesture itself, where it was refused: told where the user clicked.
          error();
          failed = msg.header.msg_type === 'error' ? content : null;
          if (!failed && sink?.(msg.header.msg_type, content)) return;
          if (msg.header.msg_type === 'stream') text += content.text;
          else if (msg.header.msg_type === 'error') text += content.evalue || content.ename;
          else text += content.data?.['text/plain'] ?? '';
        };
        ({ status, ename } = (await future.done).content);
        if (status === 'ok' || GOES_ON.has(ename)) error();
      } catch (error) {
        return { ok: false, text: `The kernel went away: ${reasonOf(error)}` };
      }
      if (status === 'ok') return { ok: true, text };
      if (status === 'error') return { ok: GOES_ON.has(ename), text };
    }
    return { ok: false, text: 'Errors of other cells swept it away; try again.' };
  }

  /**
   * Show what became of a proposal where it was saved: JupyterLab knows only displays that it has seen come.
   * @param {Record<string, any> | undefined} data
   */
  settle(data) {
    const now = data?.[PROPOSAL_MIME];
    if (!now?.id || now.state === 'waits') return;
    for (const { model } of this.content.widgets) {
      if (model.type !== 'code') continue;
      for (let at = 0; at < model.outputs.length; at += 1) {
        const said = model.outputs.get(at).data?.[PROPOSAL_MIME];
        if (said?.id === now.id && said.ask === now.ask && said.state === 'waits')
          model.outputs.set(at, { output_type: 'display_data', data, metadata: {} });
      }
    }
  }

  /**
   * Put what the model said or ran below the cell that asked, after what stands there of the same ask; never twice. Where
   * an ask is answered again the same way, its old copies become the new ones. When it is answered its own output is
   * folded, or all of it would stand there twice; JupyterLab unfolds it when the ask is run again. A text that replaces a
   * cell is put into that cell.
   * @param {Copy} copy
   */
  insert(copy) {
    const { model } = this.content;
    if (!model) return;
    if (copy.into) {
      this.replace(copy);
      return;
    }
    const { sharedModel } = model;
    const said = sharedModel.cells.map((cell) => cell.getMetadata('ctxkernel') ?? {});
    if (said.some((one) => one.statement === copy.statement && one.ask === copy.ask)) return;
    let at = sharedModel.cells.findIndex((cell) => cell.getId() === copy.after) + 1;
    if (!at) return;
    if (copy.ends) this.content.widgets[at - 1].outputHidden = true;
    while (at < said.length && said[at].ask === copy.ask) at += 1;
    const { cell_type, source, outputs, execution_count } = copy;
    const { session } = this.link.gutter.marks;
    const ctxkernel = { statement: copy.statement, ask: copy.ask, after: copy.after, session, digest: fingerprint(source) };
    const old = sharedModel.cells[at];
    if (said[at]?.after === copy.after && old.cell_type === cell_type && old.getSource() === source) {
      old.setMetadata('ctxkernel', ctxkernel);
      return;
    }
    const metadata = { ctxkernel, trusted: true };
    const made = { cell_type, source, metadata };
    sharedModel.insertCell(at, cell_type === 'code' ? { ...made, outputs, execution_count } : made);
    if (cell_type === 'markdown') this.content.widgets[at].rendered = true;
  }

  /** Put the text and the outputs of an agent's cell into the cell that it replaces. @param {Copy} copy */
  replace(copy) {
    const cell = this.content.widgets.find((one) => one.model.id === copy.after);
    if (cell?.model.type !== 'code') return;
    const { source, outputs, execution_count: count } = copy;
    this.link.versions.show(cell, { execution_id: copy.ask, source, outputs, count, digest: fingerprint(source) });
  }

  /** The notebook's code cells from one on, in order; null where it has none of that id. @param {string} cellId */
  cellsFrom(cellId) {
    const start = this.content.widgets.findIndex((cell) => cell.model.id === cellId);
    if (start < 0) return null;
    return this.toldCells(this.content.widgets.slice(start));
  }

  /** The code cells among cells that are not empty. @param {readonly Cell[]} cells */
  toldCells(cells) {
    return cells
      .filter((cell) => cell.model.type === 'code' && cell.model.sharedModel.getSource().trim())
      .map((cell) => ({ cell_id: cell.model.id, source: cell.model.sharedModel.getSource(), tags: tagsOf(cell) }));
  }

  /** Ids of all code cells, in order. */
  get codeCells() {
    return this.content.widgets.filter((cell) => cell.model.type === 'code').map((cell) => cell.model.id);
  }

  /** Run a cell as Ctrl+Enter does. @param {Cell} cell */
  async runCell(cell) {
    const { context } = this.link.connection;
    const deletedCells = this.content.model?.deletedCells ?? [];
    try {
      await this.CodeCell.execute(cell, context, {
        deletedCells,
        recordTiming: this.content.notebookConfig?.recordTiming
      });
      deletedCells.splice(0, deletedCells.length);
    } catch {
      // The kernel or the cell went away; JupyterLab shows that.
    }
  }

  /**
   * Run cells as JupyterLab does, with what we say in their metadata; their outputs land in them.
   * @param {string[]} ids
   * @param {(done: number, reply: Record<string, any>) => unknown} told is awaited
   * @param {{stopped: boolean}} stop
   * @param {object} [said] what else the kernel is told with each
   */
  async rerunCells(ids, told, stop, said = {}) {
    const { notebook, connection } = this.link;
    let ran = 0;
    for (const id of ids) {
      const cell = this.content.widgets.find((one) => one.model.id === id);
      // Deleted, or on another kernel, since the plan was made.
      if (!cell || this.link.disposed || !this.link.live) return { ran, failed: cell ? null : id };
      const deletedCells = notebook.content.model?.deletedCells ?? [];
      let status;
      /** @type {Record<string, any>} */
      let content = {};
      try {
        const reply = await this.CodeCell.execute(cell, connection.context, {
          deletedCells,
          recordTiming: this.content.notebookConfig?.recordTiming,
          ctxkernel: { ...said, rerun: true, statement: cell.model.getMetadata('ctxkernel')?.statement }
        });
        deletedCells.splice(0, deletedCells.length);
        content = reply?.content ?? {};
        status = content.status ?? 'ok';
      } catch {
        status = 'error'; // The kernel went away, or the cell did.
      }
      ran += 1;
      await told(ran, content);
      if (status !== 'ok' && !tagsOf(cell).includes('raises-exception')) return { ran, failed: id };
      if (stop.stopped) break;
    }
    return { ran, failed: null };
  }
}

/**
 * What adds a request's outputs to those of a cell, as JupyterLab does for a cell's own. It says whether a message was one.
 * @param {Outputs} outputs
 * @returns {(type: string, content: any) => boolean}
 */
function outputsOf(outputs) {
  /** @type {Map<string, number>} */
  const places = new Map();
  return (type, content) => {
    const id = content.transient?.display_id;
    const { transient, ...output } = content;
    const place = places.get(id);
    if (type === 'update_display_data' && place !== undefined)
      outputs.set(place, { ...output, output_type: 'display_data' });
    else if (['stream', 'display_data', 'execute_result', 'error'].includes(type)) {
      const length = outputs.add({ ...output, output_type: type });
      if (id) places.set(id, length - 1);
    } else return false;
    return true;
  };
}

/** @param {Cell} cell */
const tagsOf = (cell) => list(cell.isDisposed ? [] : cell.model.getMetadata('tags')).map(String);

export { PROPOSAL_MIME, NotebookHands };
