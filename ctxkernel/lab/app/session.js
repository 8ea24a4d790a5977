/**
 * What the kernel has told of the session: the rows, and the state after the newest turn.
 *
 * Rule 1: a missing or odd field is as if it were not there.
 * Rule 2: nothing here draws.
 */

import { RowStore } from './rowstore.js';
import { dict, list } from './values.js';

/** @import {DeltaItem, Handle, History, Projection} from '../messages.js' */
/** @import {Resume, SnapshotMessage, Storage, TurnMessage} from '../messages.js' */
/** @import {Actions} from './render.js' */

/** Change items that are kept; a day of work stays well below. */
const MAX_DELTAS = 2000;
/** Entries of the history that are kept: as many as the kernel tells. */
const MAX_ENTRIES = 200;

class Session extends RowStore {
  /** @param {Actions} actions */
  constructor(actions) {
    super(actions);
    /** The session that the feed is of. @type {string | null | undefined} */
    this.feedOf = undefined;
    /** @type {string | null} */
    this.path = null;
    /** @type {string | null} */
    this.version = null;
    /** @type {number | null} */
    this.protocol = null;
    /** @type {string | null} */
    this.python = null;
    /** @type {readonly Partial<Handle>[]} */
    this.handles = [];
    /** @type {Partial<DeltaItem>[]} */
    this.deltas = [];
    /** @type {Partial<Projection> | null} */
    this.projection = null;
    /** What the kernel prepares in the background, a line each. @type {readonly string[]} */
    this.work = [];
    /** What was done to the history that the model is shown; null where nothing was. @type {History | null} */
    this.history = null;
    /** @type {string[]} */
    this.notices = [];
    this.dismissed = /** @type {Set<string>} */ (new Set());
    this.truncated = 0;
    /** Whether anything was sent to a model; null where no kernel has told yet. @type {boolean | null} */
    this.sent = null;
    /** How often HEAD went elsewhere. */
    this.moves = 0;
    /** @type {Partial<Storage> | null} */
    this.storage = null;
    /** @type {Partial<Resume> | null} */
    this.resume = null;
  }

  /**
   * What snapshots and turns say of the state after the newest turn.
   * @param {Partial<SnapshotMessage> | Partial<TurnMessage>} msg
   */
  takeState(msg) {
    this.handles = list(msg.handles);
    this.projection = msg.projection ?? null;
    this.history = joined(this.history, msg.history);
    this.sent = msg.sent ?? this.sent;
    this.work = list(msg.work);
  }

  /**
   * What snapshots and turns say of returning; a kernel without it says nothing.
   * @param {Partial<SnapshotMessage> | Partial<TurnMessage>} msg
   */
  takeReturning(msg) {
    this.storage = msg.storage ?? null;
    this.resume = msg.resume ?? null;
  }

  /** Whether this kernel can go back at all. */
  get canMove() {
    return this.storage !== null || [...this.full.values()].some((row) => row.checkpoint);
  }

  /**
   * Each turn repeats the notices that still hold; one that the reader dismissed does not come back.
   * @param {readonly string[] | undefined} texts
   */
  addNotices(texts) {
    const fresh = list(texts).filter(Boolean).map(String);
    this.notices = [...new Set([...this.notices, ...fresh])].filter((text) => !this.dismissed.has(text)).slice(-5);
  }

  /** @param {readonly Partial<DeltaItem>[]} items */
  addDeltas(items) {
    this.deltas.push(...items.map((item) => dict(item)));
    if (this.deltas.length > MAX_DELTAS) this.deltas.splice(0, this.deltas.length - MAX_DELTAS);
  }
}

/**
 * HEAD as a message tells it: an execution's id, null, or undefined where it does not.
 * @param {{head?: string | null}} msg
 */
const headOf = (msg) => (msg.head === undefined ? undefined : msg.head === null ? null : String(msg.head));
/**
 * The history as a message tells it, which may have only the entries that changed.
 * @param {History | null} known @param {History | undefined} told
 */
function joined(known, told) {
  if (!told?.change) return told ?? null;
  const entries = new Map([...list(known?.entries), ...list(told.entries)].map((one) => [one.id, one]));
  return { ...told, entries: [...entries.values()].slice(-MAX_ENTRIES) };
}

/** @param {Partial<DeltaItem> | null | undefined} d */
const deltaKey = (d) => [d?.execution_id ?? d?.statement_id, d?.kind, d?.subject, d?.summary].join('\0');

export { Session, deltaKey, headOf };
