/**
 * The tree of executions: the way to HEAD, what lies ahead of it, and the branches beside it. Pure: no page, no text.
 *
 * Rule 1: rows are a stranger's. A parent that is not known makes a root, one that would close a circle too.
 * Rule 2: kernels that say no parents ran one line: each row then follows the one before.
 * Rule 3: a statement that only moved HEAD, and that nothing follows, is no branch and has no place in the tree.
 */

import { keyOf } from './rownames.js';
import { dict, list, number, textOf } from './values.js';

/** @import {Row, Shape, SpentByAsk} from '../messages.js' */
/** @import {Session} from './session.js' */

/** Most runs of one span: a shape is a stranger's. */
const MOST_RUNS = 1e6;

/**
 * A row as it came: older kernels leave fields out. A stub has only what the shape of the tree tells.
 * @typedef {Partial<Row> & {stub?: boolean}} AnyRow
 * @typedef {{nodes: Map<string, TreeNode>, roots: TreeNode[], last: TreeNode | null, leaves: string[] | null, bends: number}} Tree
 *   nodes in the order of time; the ends of branches, where they were asked for; how often it has changed otherwise than
 *   by growing at its end
 * @typedef {'path' | 'ahead' | 'branch'} Place
 */

/**
 * @typedef {object} TreeNode
 * @property {string} key an execution's id
 * @property {AnyRow} row
 * @property {TreeNode | null} parent
 * @property {TreeNode[]} children oldest first
 * @property {number} seq place in the order of time
 * @property {number} latest the highest `seq` at or below it
 * @property {number} size how many rows it and all below it are
 */

/** @param {AnyRow} row */
const run = (row) => Number(keyOf(row).split('.').pop()) || 1;
/** @param {AnyRow} a @param {AnyRow} b */
const byTime = (a, b) =>
  (number(a.started_at) ?? 0) - (number(b.started_at) ?? 0) ||
  (number(a.index) ?? 0) - (number(b.index) ?? 0) ||
  run(a) - run(b);

/** Rows in the order of time. @param {Iterable<AnyRow>} rows */
const sorted = (rows) => [...rows].sort(byTime);

/** The node that was made last. @param {Map<string, TreeNode>} nodes */
function newestOf(nodes) {
  /** @type {TreeNode | null} */
  let last = null;
  for (const node of nodes.values()) last = node;
  return last;
}

/**
 * Link rows to a tree.
 * @param {Iterable<AnyRow>} rows
 * @param {string | null} [head] a row that stays, even if it only moved HEAD
 * @param {boolean} [inOrder] the rows come in the order of time
 * @returns {Tree}
 */
function plant(rows, head = null, inOrder = false) {
  const all = inOrder ? [...rows] : sorted(rows);
  /** @type {Map<string, TreeNode>} */
  const nodes = new Map();
  for (const row of all) {
    const key = keyOf(row);
    nodes.set(key, { key, row, parent: null, children: [], seq: nodes.size, latest: 0, size: 1 });
  }
  /** @type {TreeNode | null} */
  let before = null;
  for (const node of nodes.values()) {
    const said = node.row.parent_execution_id;
    const parent = said === undefined ? before : (nodes.get(String(said)) ?? null);
    before = node;
    if (parent && parent !== node) {
      node.parent = parent;
      parent.children.push(node);
    }
  }
  const roots = [...nodes.values()].filter((node) => !node.parent);
  const order = below(roots);
  if (order.length < nodes.size) {
    // What no root leads to is a circle: it is cut at its oldest row.
    const seen = new Set(order);
    for (const node of nodes.values()) {
      if (seen.has(node)) continue;
      if (node.parent) node.parent.children = node.parent.children.filter((child) => child !== node);
      node.parent = null;
      roots.push(node);
      for (const one of below([node])) {
        seen.add(one);
        order.push(one);
      }
    }
  }
  for (const node of order.reverse()) {
    if (node.row.moved && !node.children.length && node.key !== head) {
      nodes.delete(node.key);
      const beside = node.parent ? node.parent.children : roots;
      beside.splice(beside.indexOf(node), 1);
      continue;
    }
    node.latest = Math.max(node.seq, ...node.children.map((child) => child.latest));
    node.size = 1 + node.children.reduce((sum, child) => sum + child.size, 0);
  }
  return { nodes, roots, last: newestOf(nodes), leaves: null, bends: 0 };
}

/**
 * Add the newest row to a tree, or put another content into its node, at a cost that does not grow with the tree.
 * False: it is no leaf at the end of the tree, so the tree has to be planted anew.
 * @param {Tree} tree
 * @param {AnyRow} row
 * @param {string | null | undefined} head
 */
function attach(tree, row, head) {
  const key = keyOf(row);
  const said = row.parent_execution_id;
  const old = tree.nodes.get(key);
  const parent = said === undefined ? (old?.parent ?? tree.last) : (tree.nodes.get(String(said)) ?? null);
  if (said && !parent) return false;
  if (old) {
    if (old.parent !== parent) return false;
    old.row = row;
  } else {
    const last = [...tree.roots, tree.last].reduce((seq, node) => Math.max(seq, node?.latest ?? 0), 0);
    const node = { key, row, parent, children: [], seq: last + 1, latest: last + 1, size: 1 };
    tree.nodes.set(key, node);
    if (!parent || parent !== tree.last || parent.children.length) tree.bends += 1;
    if (tree.leaves) {
      // It was the end of a branch.
      if (parent && !parent.children.length) tree.leaves.splice(tree.leaves.lastIndexOf(parent.key), 1);
      tree.leaves.push(key);
    }
    (parent ? parent.children : tree.roots).push(node);
    tree.last = node;
    for (let at = parent; at; at = at.parent) {
      at.latest = node.seq;
      at.size += 1;
    }
  }
  prune(tree, key, head);
  return true;
}

/**
 * Remove a run that only moved HEAD and that nothing follows.
 * @param {Tree} tree
 * @param {string | null | undefined} key
 * @param {string | null | undefined} head
 */
function prune(tree, key, head) {
  const node = tree.nodes.get(String(key));
  if (!node?.row.moved || node.children.length || node.key === head) return;
  tree.nodes.delete(node.key);
  tree.bends += 1;
  tree.leaves = null;
  const beside = node.parent ? node.parent.children : tree.roots;
  beside.splice(beside.indexOf(node), 1);
  for (let at = node.parent; at; at = at.parent) {
    at.size -= 1;
    if (at.latest === node.latest) at.latest = Math.max(at.seq, ...at.children.map((child) => child.latest));
  }
  if (tree.last === node) tree.last = node.parent;
}

/**
 * The runs that a shape tells of, oldest first, as rows without content.
 * @param {Partial<Shape> | null | undefined} shape
 * @returns {AnyRow[]}
 */
function stubsOf(shape) {
  /** @type {AnyRow[]} */
  const stubs = [];
  if (!shape) return stubs;
  const cells = Object.entries(dict(shape.cells)).sort((a, b) => Number(a[1]) - Number(b[1])).map(([id]) => id);
  const meta = new Set(list(shape.meta));
  const moved = new Set(list(shape.moved));
  const verdicts = dict(shape.verdicts);
  const spent = dict(shape.usd);
  const responses = dict(shape.responses);
  for (const span of list(shape.spans)) {
    const [, index, run] = /^s(\d+)\.(\d+)$/.exec(String(span.first)) ?? [];
    let parent = span.parent;
    for (let i = 0; i < Math.min(number(span.count) ?? 0, MOST_RUNS); i += 1) {
      const at = stubs.length;
      const execution_id = index === undefined ? String(span.first) : `s${Number(index) + i}.${run}`;
      const word = verdicts[execution_id];
      stubs.push({
        stub: true,
        execution_id,
        statement_id: execution_id.split('.')[0],
        index: index === undefined ? 0 : Number(index) + i,
        parent_execution_id: parent,
        cell_id: cells[list(shape.cell)[at]] ?? null,
        kind: meta.has(at) ? 'meta' : 'python',
        time_ms: number(list(shape.time_ms)[at]) ?? 0,
        usd: number(spent[execution_id]),
        ...(execution_id in responses && responseOf(responses[execution_id])),
        moved: moved.has(at) ? { to: null, reason: 'goto' } : null,
        comparison: word ? /** @type {any} */ ({ same: word === 'same', expected: word === 'expected' }) : null
      });
      parent = execution_id;
    }
  }
  return stubs;
}

/** What a stub of a response has, too. @param {Partial<SpentByAsk> | undefined} told @returns {AnyRow} */
const responseOf = (told) => ({ author: 'model', tokens: number(told?.tokens), tags: { ask: textOf(told?.ask) } });

/** A row without its content, so that a long session needs little memory. @param {AnyRow} row @returns {AnyRow} */
const stubOf = ({ execution_id, statement_id, index, parent_execution_id, cell_id, kind, time_ms, usd, moved, comparison }) => ({
  stub: true,
  execution_id,
  statement_id,
  index,
  parent_execution_id,
  cell_id,
  kind,
  time_ms,
  usd,
  moved,
  comparison: comparison && { ...comparison, divergences: [] }
});

/**
 * Executions as the kernel reads them in a request: `s1.1+20 s40.2`.
 * @param {readonly string[]} keys
 */
function spansOf(keys) {
  /** @type {{first: string, next: string, count: number}[]} */
  const spans = [];
  for (const key of keys) {
    const [, index, run] = /^s(\d+)(\.\d+)$/.exec(key) ?? [];
    const next = index ? `s${Number(index) + 1}${run}` : '';
    const last = spans[spans.length - 1];
    if (last?.next === key) {
      last.next = next;
      last.count += 1;
    } else spans.push({ first: key, next, count: 1 });
  }
  return spans.map((one) => (one.count > 1 ? `${one.first}+${one.count}` : one.first)).join(' ');
}

/** All nodes at and below some, parents first. @param {TreeNode[]} starts */
function below(starts) {
  const found = [...starts];
  for (let i = 0; i < found.length; i += 1) for (const child of found[i].children) found.push(child);
  return found;
}

/**
 * The nodes from a root to that of `head`, oldest first; none where it is not known.
 * @param {Tree} tree
 * @param {string | null | undefined} head
 */
function pathTo(tree, head) {
  /** @type {TreeNode[]} */
  const path = [];
  for (let node = tree.nodes.get(String(head)) ?? null; node; node = node.parent) path.push(node);
  return path.reverse();
}

/** @param {TreeNode[]} nodes */
const newest = (nodes) =>
  nodes.reduce(
    (best, node) => (!best || node.latest > best.latest ? node : best),
    /** @type {TreeNode | null} */ (null)
  );

/** From a node on, always to where the latest run is; the node itself is the first. @param {TreeNode | null} node */
function lineFrom(node) {
  /** @type {TreeNode[]} */
  const line = [];
  for (let at = node; at; at = newest(at.children)) line.push(at);
  return line;
}

/**
 * What stands in the timeline, from top to bottom.
 * @typedef {{readonly kind: 'row', key: string, readonly row: AnyRow, place: Place, depth: number, head: boolean}
 *   | {kind: 'here', key: string, head: TreeNode | null, known: boolean, ahead: TreeNode[]}
 *   | {kind: 'fold', key: string, fork: TreeNode | null, branches: Branch[], open: boolean, depth: number}
 *   | {kind: 'branch', key: string, branch: Branch, open: boolean, depth: number}} Entry
 * @typedef {{key: string, first: TreeNode, line: TreeNode[], size: number}} Branch
 */

/** A row of the timeline; its content is that of its node, which may change. */
class RowEntry {
  /** @param {TreeNode} node @param {Place} place @param {number} depth @param {boolean} head */
  constructor(node, place, depth, head) {
    this.node = node;
    this.key = node.key;
    this.place = place;
    this.depth = depth;
    this.head = head;
  }

  get kind() {
    return /** @type {const} */ ('row');
  }

  get row() {
    return this.node.row;
  }
}

/**
 * Which tree entries were laid out of, and HEAD where it was the end of the newest line; undefined: it was not.
 * @typedef {{tree: Tree, bends: number, end: string | undefined}} Laid
 * @param {Tree} tree @param {string | null | undefined} head @returns {Laid}
 */
const laidOut = (tree, head) => ({ tree, bends: tree.bends, end: head && tree.last?.key === head ? head : undefined });

/**
 * Add to entries what the tree has grown at its end since they were laid out, at a cost that does not grow with the tree.
 * False: they have to be laid out anew.
 * @param {Entry[]} entries
 * @param {Laid | null} laid
 * @param {Tree} tree
 * @param {string | null | undefined} head
 */
function extend(entries, laid, tree, head) {
  if (!laid?.end || laid.tree !== tree || laid.bends !== tree.bends || !head || tree.last?.key !== head) return false;
  const old = entries[entries.length - 1];
  if (!(old instanceof RowEntry) || old.key !== laid.end) return false;
  /** @type {RowEntry[]} */
  const added = [];
  for (let node = /** @type {TreeNode | null} */ (tree.last); node && node.key !== laid.end; node = node.parent)
    added.push(new RowEntry(node, 'path', 0, node.key === head));
  if (added.length) old.head = false;
  entries.push(...added.reverse());
  laid.end = head;
  return true;
}

/**
 * Lay the tree out: the path to HEAD, `here` where that is not the end of its line, what lies ahead; branches folded
 * at their fork.
 * @param {Tree} tree
 * @param {string | null | undefined} head undefined: not told, so the newest
 * @param {(key: string) => boolean} isOpen whether a fold or a branch is open
 * @returns {Entry[]}
 */
function layOut(tree, head, isOpen) {
  /** @type {Entry[]} */
  const out = [];
  const path = head === undefined ? lineFrom(newest(tree.roots)) : pathTo(tree, head);
  const at = path[path.length - 1] ?? null;
  const on = new Set(path);

  /** @param {TreeNode | null} fork @param {TreeNode[]} others @param {number} depth */
  const fold = (fork, others, depth) => {
    if (!others.length) return;
    const branches = [...others]
      .sort((a, b) => a.seq - b.seq)
      .map((first) => ({ key: `branch:${first.key}`, first, line: lineFrom(first), size: first.size }));
    const key = branches.length === 1 ? branches[0].key : `fold:${fork?.key ?? ''}`;
    const open = isOpen(key);
    out.push({ kind: 'fold', key, fork, branches, open, depth });
    if (!open) return;
    for (const branch of branches) {
      const shown = branches.length === 1 || isOpen(branch.key);
      if (branches.length > 1) out.push({ kind: 'branch', key: branch.key, branch, open: shown, depth });
      if (shown) lay(branch.line, 'branch', depth + 1);
    }
  };
  /** @param {TreeNode[]} line @param {Place} place @param {number} depth */
  const lay = (line, place, depth) => {
    line.forEach((node, i) => {
      out.push(new RowEntry(node, place, depth, node === at));
      // The path's last row is HEAD's: what comes after it is `ahead`, told below.
      if (place === 'path' && node === at) return;
      fold(
        node,
        node.children.filter((child) => child !== line[i + 1]),
        depth
      );
    });
  };

  const starts = at ? tree.roots.filter((root) => !on.has(root)) : [];
  fold(null, starts, 0);
  lay(path, 'path', 0);
  const next = at ? at.children : tree.roots;
  const chosen = newest(next);
  const ahead = chosen ? lineFrom(chosen) : [];
  const known = head === undefined || head === null || at !== null;
  if (ahead.length) out.push({ kind: 'here', key: 'here', head: at, known, ahead });
  fold(
    at,
    next.filter((node) => node !== chosen),
    0
  );
  lay(ahead, 'ahead', 0);
  return out;
}

/**
 * The ends of all branches, oldest first, and which of them is that of HEAD; -1: none.
 * @param {Tree} tree
 * @param {string | null | undefined} head
 */
function branchesOf(tree, head) {
  const leaves = (tree.leaves ??= [...tree.nodes.values()].filter((node) => !node.children.length).map((node) => node.key));
  const end = lineFrom(tree.nodes.get(String(head)) ?? null).at(-1);
  return { leaves, at: end ? leaves.indexOf(end.key) : -1 };
}

/**
 * The rows of the last re-run on the way to HEAD that were compared, oldest first.
 *
 * A re-run begins where it left another branch. What was run after it does not end it.
 * @param {Tree} tree
 * @param {string | null | undefined} head
 */
function lastRerun(tree, head) {
  /** @type {AnyRow[]} */
  const found = [];
  const end = head === undefined ? lineFrom(newest(tree.roots)).at(-1) : tree.nodes.get(String(head));
  for (let node = end ?? null; node; node = node.parent) {
    if (node.row.comparison) found.push(node.row);
    const fork = (node.parent ? node.parent.children : tree.roots).length > 1;
    if (found.length && fork) break;
  }
  return found.reverse();
}

/**
 * The row to go back before, so that a cell and those below it run on what the cells above made.
 *
 * It is the first run of this cell or of one below since those above were last run. Where there is none, the cell's own
 * newest run; null where that is not on the way to HEAD either.
 * @param {AnyRow[]} path rows on the way to HEAD, oldest first
 * @param {string[]} cells ids of the notebook's code cells, in order
 * @param {string} from the id of the cell
 */
function startOf(path, cells, from) {
  const start = cells.indexOf(from);
  /** @type {Map<string | null | undefined, number>} */
  const place = new Map(cells.map((id, i) => [id, i]));
  const runs = path.filter((row) => row.kind !== 'meta' && place.has(row.cell_id));
  /** @param {AnyRow} row */
  const isAbove = (row) => (place.get(row.cell_id) ?? start) < start;
  const since = runs.slice(runs.findLastIndex(isAbove) + 1);
  return since[0] ?? runs.findLast((row) => row.cell_id === from) ?? null;
}

/**
 * How a row is named in a command: its statement where that means this run of it, else the run.
 * @param {AnyRow} row
 * @param {Session} view
 */
function targetOf(row, view) {
  /** @param {TreeNode} node */
  const isOfIt = (node) => node.row.statement_id === row.statement_id;
  // A statement is its run on the way to HEAD, else its newest.
  const meant = view.wayToHead.findLast(isOfIt) ?? [...view.tree.nodes.values()].findLast(isOfIt);
  return meant && meant.key !== keyOf(row) ? keyOf(row) : String(row.statement_id);
}

export {
  attach,
  branchesOf,
  extend,
  laidOut,
  lastRerun,
  layOut,
  lineFrom,
  pathTo,
  plant,
  prune,
  sorted,
  spansOf,
  startOf,
  stubOf,
  stubsOf,
  targetOf
};
