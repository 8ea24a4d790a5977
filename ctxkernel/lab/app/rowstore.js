/**
 * The rows of the session that the page knows, and the tree that they make.
 *
 * Rule 1: each execution has a row; of old ones only the place in the tree is kept (a stub), the rest is asked for.
 * Rule 2: nothing here draws.
 */

import { askKernel } from './askkernel.js';
import { keyOf } from './rownames.js';
import { Spending } from './spending.js';
import { attach, lastRerun, pathTo, plant, prune, spansOf, stubOf } from './tree.js';
import { list, number } from './values.js';

/** @import {Actions} from './render.js' */
/** @import {AnyRow} from './tree.js' */

/** Most rows whose content is kept. */
const MAX_ROWS = 1000;
/** Rows that one request asks for: the kernel sends no more, and reads no longer text. */
const ROWS_AT_ONCE = 60;

class RowStore {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    /** Rows by execution, in the order of time; of old ones only stubs. @type {Map<string, AnyRow>} */
    this.rows = new Map();
    /** Those with content. @type {Map<string, AnyRow>} */
    this.full = new Map();
    /** The newest run of each statement. @type {Map<string, string>} */
    this.newest = new Map();
    /** What responses have cost. */
    this.spending = new Spending();
    /** Whether any run was compared with the one that it repeats. */
    this.rerun = false;
    /** Rows that were asked for. @type {Set<string>} */
    this.coming = new Set();
    /** Statements whose rows came last, to find holes. @type {number[]} */
    this.indexes = [];
    this.tree = plant([]);
    /** @type {AnyRow[]} */
    this.compared = [];
    /** @type {string | null} */
    this.session = null;
    /**
     * HEAD's execution; null is the state before all of them, undefined a kernel that does not say.
     * @type {string | null | undefined}
     */
    this.head = undefined;
    this.disposed = false;
  }

  /** Forget all rows; know only those. @param {Iterable<AnyRow>} rows */
  startWith(rows) {
    this.rows = new Map();
    this.full = new Map();
    this.newest = new Map();
    this.spending = new Spending();
    this.rerun = false;
    this.indexes = [];
    for (const row of rows) this.know(keyOf(row), row);
  }

  /** @param {string} key @param {AnyRow} row */
  know(key, row) {
    if (!this.rows.has(key) && row.statement_id) this.newest.set(row.statement_id, key);
    this.rows.set(key, row);
    this.spending.take(row);
    if (row.comparison) this.rerun = true;
  }

  /** Keep a row with its content; of the oldest of too many only a stub stays. @param {AnyRow} row */
  keep(row) {
    const key = keyOf(row);
    const index = number(row.index) ?? 0;
    if (!this.rows.has(key) && this.indexes.at(-1) !== index) {
      this.indexes.push(index);
      if (this.indexes.length > 50) this.indexes.shift();
    }
    this.know(key, row);
    this.full.delete(key);
    this.full.set(key, row);
    if (this.full.size <= MAX_ROWS) return;
    for (const [old, one] of this.full) {
      this.full.delete(old);
      this.swap(old, stubOf(one));
      break;
    }
  }

  /** Put another content at the place of a row. @param {string} key @param {AnyRow} row */
  swap(key, row) {
    this.rows.set(key, row);
    const node = this.tree.nodes.get(key);
    if (node) node.row = row;
  }

  /** Change some fields of a row that is known. @param {AnyRow} fields */
  amend(fields) {
    const key = keyOf(fields);
    const row = this.full.get(key);
    if (!row) return;
    const now = { ...row, ...fields };
    this.full.set(key, now);
    this.swap(key, now);
  }

  /** Whether only the place of a row in the tree is known. @param {AnyRow} row */
  isStub(row) {
    return row.stub === true;
  }

  /**
   * Have the content of rows: those that are not here are asked for. Returns whether some came.
   * @param {readonly string[]} keys
   */
  async ensure(keys) {
    const missing = keys.filter((key) => this.rows.get(key)?.stub && !this.coming.has(key));
    let came = false;
    for (let at = 0; at < missing.length; at += ROWS_AT_ONCE) {
      const page = missing.slice(at, at + ROWS_AT_ONCE);
      for (const key of page) this.coming.add(key);
      const answer = await askKernel(this.actions.ask, 'rows', { runs: spansOf(page) });
      for (const key of page) this.coming.delete(key);
      const { session } = this;
      if (this.disposed || session !== this.session) return false;
      for (const row of 'rows' in answer ? list(answer.rows) : []) {
        if (!this.rows.get(keyOf(row))?.stub) continue;
        this.keep(row);
        this.swap(keyOf(row), row);
        came = true;
      }
    }
    return came;
  }

  /** A row with its content, as far as the kernel gives it. @param {AnyRow} row @returns {Promise<AnyRow>} */
  async whole(row) {
    if (!row.stub) return row;
    await this.ensure([keyOf(row)]);
    return this.rows.get(keyOf(row)) ?? row;
  }

  /**
   * Make the tree of the rows, and what follows from it; where only one row is new, at the cost of that one.
   * @param {AnyRow} [row]
   * @param {string | null} [was] where HEAD was
   */
  grow(row, was) {
    const { tree, head } = this;
    if (row && attach(tree, row, head)) {
      if (was !== head) prune(tree, was, head);
    } else this.tree = plant(this.rows.values(), head, true);
    this.compared = this.rerun ? lastRerun(this.tree, this.headKnown) : [];
  }

  /** HEAD as far as the rows can tell: kernels without branches have theirs at the newest row. */
  get headKnown() {
    return this.tellsParents ? this.head : undefined;
  }

  /** Whether rows say what they follow. */
  get tellsParents() {
    for (const row of this.rows.values()) if (row.parent_execution_id !== undefined) return true;
    return false;
  }

  /** The way to HEAD, oldest first. */
  get wayToHead() {
    const { tree, headKnown } = this;
    if (headKnown !== undefined) return pathTo(tree, headKnown);
    return tree.last ? pathTo(tree, tree.last.key) : [];
  }

  /** The newest run of a statement. @param {string} statementId */
  rowOf(statementId) {
    return this.rows.get(this.newest.get(statementId) ?? '');
  }

  hole() {
    const known = [...new Set(this.indexes)].sort((a, b) => a - b);
    const at = known.findIndex((index, i) => i > 0 && index > known[i - 1] + 1);
    return at < 0 ? 0 : known[at];
  }
}

export { RowStore };
