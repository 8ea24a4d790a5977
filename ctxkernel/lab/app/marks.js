/**
 * The marks of the notebook's cells: what the kernel says of each, joined with what only the page knows. Pure: no page.
 *
 * Rule 1: the kernel decides whether a cell is fresh. The page adds only: what runs, what was edited since it ran, and
 *         which execution the notebook shows, if the cells were shown as at another state.
 * Rule 2: every state has a word and a sentence; no colour is needed to read it.
 */

import { readTable } from './marktable.js';
import { keyOf } from './rownames.js';
import { clean } from './text.js';
import { dict, list, textOf } from './values.js';

/** @import {CellMark, CellTable, KernelMessage} from '../messages.js' */

/**
 * What the metadata of a cell say that was shown as at another state.
 * @typedef {object} Shown
 * @property {string} execution whose text and outputs the cell shows
 * @property {string} newest the newest execution of the cell then: a later one ends this
 * @property {string} digest of the text that the execution ran
 *
 * What the metadata of a cell say that was inserted for a statement of a model or of an agent.
 * @typedef {object} CopyOf
 * @property {string} statement
 * @property {string} session
 * @property {string} digest of the text
 *
 * A cell as its gutter shows it.
 * @typedef {object} Look
 * @property {'fresh' | 'failed' | 'stale' | 'later' | 'branch' | 'diverged' | 'asks' | 'unknown' | 'running' | 'queued' | 'copy' | 'none'} state
 * @property {string} name `s14`, of a later run `s14.2`
 * @property {string} word
 * @property {string} sentence
 * @property {readonly string[]} because
 * @property {boolean} edited the text is not the one that ran
 * @property {boolean} foreign the output is not of the way to HEAD
 */

/** State → the word in the gutter, and a sentence. @type {Record<Look['state'], [string, string]>} */
const STATES = {
  fresh: ['✓', 'fresh: no cell before it changed what it read'],
  failed: ['failed', 'it raised an exception; no cell before it has changed what it read since'],
  stale: ['stale', 'stale: something that it depends on has changed since it ran'],
  later: ['later', 'ran after the state that the kernel is at'],
  branch: ['branch', 'ran on another branch'],
  diverged: ['differs', 'its re-run came out differently, and not because of an edit or a cell above'],
  asks: ['asks', 'asks before it runs again'],
  unknown: ['?', 'whether it is fresh is not known'],
  running: ['running', 'runs now'],
  queued: ['waits', 'waits for its turn in the re-run'],
  copy: ['copy', 'a copy of this statement, which a model or an agent ran; run the cell to make a statement of its own'],
  none: ['unrecorded', 'no run of it is in the timeline of this session']
};

/** A cell of our commands. */
const COMMAND = /^\s*(?:#.*\n\s*)*%ctx\b/;

const ROUNDS = fractions(64, 1 / 3);
const START = fractions(8, 1 / 2);

/** The first 32 bits of the fractions of roots of the first primes, as SHA-256 has them. @param {number} n @param {number} power */
function fractions(n, power) {
  const found = [];
  for (let one = 2; found.length < n; one += 1) {
    let prime = true;
    for (let by = 2; by * by <= one; by += 1) if (one % by === 0) prime = false;
    if (prime) found.push(((one ** power % 1) * 2 ** 32) | 0);
  }
  return found;
}

/**
 * Return the first 16 hex digits of a text's SHA-256, as marks have them. Not `crypto.subtle`: a page that is served over
 * plain HTTP has none.
 * @param {string} text
 */
function fingerprint(text) {
  const raw = new TextEncoder().encode(text);
  const bytes = new Uint8Array(((raw.length + 8) >> 6) * 64 + 64);
  bytes.set(raw);
  bytes[raw.length] = 0x80;
  const view = new DataView(bytes.buffer);
  view.setUint32(bytes.length - 8, Math.floor(raw.length / 2 ** 29));
  view.setUint32(bytes.length - 4, raw.length * 8);
  const hash = [...START];
  const w = new Int32Array(64);
  /** @param {number} x @param {number} n */
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  for (let at = 0; at < bytes.length; at += 64) {
    for (let i = 0; i < 16; i += 1) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i += 1) {
      const [a, b] = [w[i - 15], w[i - 2]];
      w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = hash;
    for (let i = 0; i < 64; i += 1) {
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[i] + w[i]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((one, i) => (hash[i] = (hash[i] + one) | 0));
  }
  return hash
    .slice(0, 2)
    .map((one) => (one >>> 0).toString(16).padStart(8, '0'))
    .join('');
}

/** The marks of one notebook, as far as messages have told them. */
class Marks {
  constructor() {
    /** By the cell's id. @type {Map<string, Partial<CellMark>>} */
    this.cells = new Map();
    /** Ids of cells by the number that the kernel gave them. @type {string[]} */
    this.names = [];
    /** More changed than one message could tell: all marks are to be asked for. */
    this.behind = false;
    /** Whether the kernel tells marks at all. */
    this.known = false;
    /** The id of the session. */
    this.session = '';
    /** HEAD's execution; null: before all. @type {string | null} */
    this.head = null;
    /** The cell that runs now. @type {string | null} */
    this.running = null;
    /** The cells that a re-run will still run. @type {Set<string>} */
    this.queued = new Set();
  }

  /**
   * Take what a message says. Returns the ids of the cells that it changes; null: any.
   * @param {Partial<KernelMessage> | null | undefined} msg
   * @returns {Set<string> | null}
   */
  take(msg) {
    /** @type {Set<string>} */
    const changed = new Set();
    if (msg?.type === 'snapshot') {
      this.session = textOf(msg.session);
      this.known = msg.cells !== undefined;
      this.cells = new Map();
      this.names = [];
      this.takeTable(msg.cells);
      this.head = msg.head ?? null;
      this.running = msg.running?.cell_id ?? null;
      return null;
    }
    if (msg?.type === 'begin') {
      if (this.running) changed.add(this.running);
      this.running = msg.statement?.cell_id ?? null;
      if (this.running) changed.add(this.running);
      return changed;
    }
    if (msg?.type === 'turn') {
      if (this.running) changed.add(this.running);
      this.running = null;
      const head = msg.head ?? null;
      // The text of these cells names HEAD.
      if (head !== this.head) for (const [id, mark] of this.cells) if (mark.state === 'later') changed.add(id);
      this.head = head;
    }
    if (msg?.type === 'turn' || msg?.type === 'asking' || msg?.type === 'checkpoint')
      for (const id of this.takeTable(msg.cells)) changed.add(id);
    return changed;
  }

  /** Take a table of marks. Returns the ids of the cells that it changes. @param {Partial<CellTable> | null | undefined} table */
  takeTable(table) {
    this.behind = dict(table).more === true;
    return readTable(this.cells, this.names, dict(table));
  }

  /** The kernel went away: nothing runs, and what is known is the last that was. Returns what that changes. */
  leave() {
    const changed = new Set([...this.queued, ...(this.running ? [this.running] : [])]);
    this.running = null;
    this.queued.clear();
    return changed;
  }

  /**
   * The cells that stand above one that ran before them, each with that one, from the lowest up.
   * @param {readonly string[]} ids of the notebook's cells, in order
   */
  aboveOlder(ids) {
    const numbers = new Map(this.names.map((id, number) => [id, number]));
    const known = ids.filter((id) => numbers.has(id) && this.cells.get(id)?.on_head);
    /** @type {{cell: string, before: string}[]} */
    const found = [];
    let lowest = Infinity;
    for (let i = known.length - 1; i >= 0; i -= 1) {
      const number = numbers.get(known[i]) ?? 0;
      if (number > lowest) found.push({ cell: known[i], before: known[i + 1] });
      else lowest = number;
    }
    return found;
  }

  /** What HEAD is called. */
  get here() {
    return this.head === null ? 'the start' : nameOf(this.head);
  }

  /**
   * The execution whose outputs a cell shows.
   * @param {Partial<CellMark>} mark @param {Partial<Shown> | null} shown what its metadata say
   */
  shownBy(mark, shown) {
    return shown?.execution && shown.newest === mark.execution_id ? shown.execution : textOf(mark.execution_id);
  }

  /**
   * How a cell is to look.
   * @param {string} id
   * @param {string} source its text
   * @param {Partial<Shown> | null} [shown]
   * @param {boolean} [hasRun] whether it shows outputs, or the number of a run
   * @param {Partial<CopyOf>} [of] the statement that it is a copy of
   * @returns {Look | null} null: nothing is known of it, and there is nothing to say
   */
  look(id, source, shown = null, hasRun = false, of = {}) {
    const mark = this.cells.get(id);
    const runs = this.running === id ? 'running' : this.queued.has(id) ? 'queued' : null;
    if (!mark) {
      // A command that only reads, or moves HEAD, leaves no execution of its cell.
      const copied = Boolean(of.session) && of.session === this.session;
      const state = runs ?? (copied ? 'copy' : hasRun && !COMMAND.test(source) ? 'none' : null);
      if (!state) return null;
      const [word, sentence] = STATES[state];
      const edited = state === 'copy' && fingerprint(source) !== of.digest;
      const name = state === 'copy' ? clean(textOf(of.statement)) : '';
      return { state, name, word, sentence, because: [], edited, foreign: false };
    }
    const execution = this.shownBy(mark, shown);
    const foreign = mark.on_head !== execution;
    const followed = execution !== mark.execution_id;
    const said = followed && !foreign ? mark.here : mark.state;
    const known = said && said in STATES ? said : 'unknown';
    const told = known === 'fresh' && !followed && mark.failed ? 'failed' : known;
    const away = !followed && mark.state === 'later' ? 'later' : 'branch';
    const state = runs ?? (foreign ? away : told);
    const [word, general] = STATES[state];
    const here = mark.on_head ? `; there it ran as ${nameOf(mark.on_head)}` : '';
    const sentence =
      state === 'branch'
        ? mark.on_head
          ? `of another branch; on this one the cell ran as ${nameOf(mark.on_head)}`
          : 'ran on another branch; it has not run on this one'
        : state === 'later'
          ? `ran after ${this.here}, where the kernel is${here}`
          : general;
    const ran = followed ? shown?.digest : mark.source;
    const edited = !runs && Boolean(ran) && fingerprint(source) !== ran;
    const because = state === 'branch' || state === 'later' ? [] : list(mark.because).map(clean);
    return { state, name: nameOf(execution), word, sentence, because, edited, foreign };
  }
}

/** What a reader calls an execution: `s14`, of a later run `s14.2`. @param {string} execution */
const nameOf = (execution) => keyOf({ execution_id: execution }).replace(/\.1$/, '');

export { Marks, fingerprint, nameOf };
