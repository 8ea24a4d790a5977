/** The parts of a row of the timeline: what it says of a statement, in one line. */

import { h } from './elements.js';
import { label } from './rownames.js';
import { isResponse } from './spending.js';
import { clean, headline, marked, unquoted } from './text.js';
import { bytes, clock, dict, duration, list, number, plural } from './values.js';

/** @import {Checkpoint, Comparison, Divergence} from '../messages.js' */
/** @import {Icon} from './icons.js' */
/** @import {AnyRow, Branch} from './tree.js' */

/** The result of an ask → the status that its row is drawn with. @type {Record<string, 'ok' | 'running' | 'timeout' | 'cancelled' | 'error'>} */
const ASK_STATUSES = {
  answered: 'ok',
  parked: 'running',
  asking: 'running',
  bound: 'timeout',
  stopped: 'cancelled',
  ended: 'cancelled',
  failed: 'error'
};
/** A copy that is on its way to the disk is told with its size from here on. */
const LARGE_BYTES = 1e6;

/** How a checkpoint's mark looks and what it means. @type {Record<string, [Icon, string]>} */
const CHECKPOINTS = {
  durable: ['durable', 'can be returned to, also after the kernel has ended'],
  partial: ['partial', 'can be returned to, except for some values'],
  writing: ['writing', 'is on its way to the disk; until then it ends with the kernel'],
  skipped: ['skipped', 'was not taken'],
  thinned: ['thinned', 'its large data were deleted for space'],
  damaged: ['damaged', 'its data are gone or changed']
};

/**
 * The mark of a checkpoint and what to say of it, line by line; null where there is none.
 * @param {Partial<Checkpoint> | null | undefined} checkpoint
 */
function checkpointTold(checkpoint) {
  if (!checkpoint || typeof checkpoint !== 'object') return null;
  const missing = Object.entries(dict(checkpoint.missing));
  const state = checkpoint.state === 'durable' && missing.length ? 'partial' : String(checkpoint.state ?? 'unknown');
  /** @type {[Icon, string]} */
  const [mark, meaning] = CHECKPOINTS[state] ?? ['skipped', state];
  const size = number(checkpoint.bytes_new);
  const cost = [size ? `${bytes(size)} new` : 'nothing new to store', duration(checkpoint.time_ms)].filter(Boolean);
  return {
    mark,
    lines: [
      `State after it: ${meaning}`,
      checkpoint.reason,
      ...missing.slice(0, 8).map(([name, why]) => `not stored: ${name} (${why})`),
      missing.length > 8 && `and ${missing.length - 8} more`,
      mark === 'skipped' || cost.join(' · ')
    ].flatMap((line) => (typeof line === 'string' && line ? [line] : []))
  };
}

/**
 * What a comparison came to: `same`, `differs` or `expected`, and the glyph for it.
 * @param {Partial<Comparison> | null | undefined} comparison
 * @returns {{word: 'same' | 'differs' | 'expected', glyph: string, found: Partial<Divergence>[]}}
 */
function verdict(comparison) {
  const found = list(comparison?.divergences)
    .map((one) => dict(one))
    .filter((one) => one.kind !== 'timing');
  const same = typeof comparison?.same === 'boolean' ? comparison.same : !found.length;
  if (same) return { word: 'same', glyph: '=', found };
  return comparison?.expected ? { word: 'expected', glyph: '≈', found } : { word: 'differs', glyph: '≠', found };
}

/** The question of a cell that asks the model; empty where it does not. @param {{source?: unknown}} row */
function questionOf(row) {
  const [first, ...rest] = marked(row.source).trim().split('\n');
  const asked = /^%%ask\b\s*(?:(?:--again|--[\w-]+(?:=|\s+)\S+)(?:\s+|$))*(.*)/.exec(first);
  return asked ? [asked[1], ...rest].join(' ').trim() || '%%ask' : '';
}

const DECISION = /^\s*%%?ctx\s+(approve|edit|reject|stop)\b[ \t]*(.*)/;

/** What a statement decided on a cell of the model, in words; empty where it did not. @param {AnyRow} row */
function decisionOf(row) {
  const [, verb, rest] = DECISION.exec(marked(row.source)) ?? [];
  if (!verb) return '';
  if (row.status === 'error') return `${verb}: not carried out`;
  const reason = unquoted(rest);
  if (verb === 'reject') return reason ? `rejected: ${reason}` : 'rejected';
  if (verb === 'approve') return rest.includes('--all') ? 'approved, and all to come' : 'approved';
  return verb === 'edit' ? 'edited, and run so' : 'stopped';
}

/** What a row is about: code as code, what a person or the model said as words. @param {AnyRow} row */
function wordsOf(row) {
  /** @param {string} text @param {string} kind */
  const words = (text, kind) =>
    h('span', { class: `ctxk-src ctxk-words ctxk-${kind}` }, clean(text).replace(/\s+/g, ' ').trim());
  const [question, decision] = [questionOf(row), decisionOf(row)];
  if (question) return words(question, 'question');
  if (decision) return words(decision, 'decision');
  // Only the words: what makes them bold, or code, is left out.
  if (isResponse(row)) return words(clean(row.source).replace(/\*\*|`+/g, ''), 'prose');
  return h('code', { class: 'ctxk-src' }, headline(row.source));
}

/**
 * The ask that a row belongs to: of what the model said and ran, and of what was decided on it; else empty.
 * @param {AnyRow} row
 * @param {Map<string, AnyRow>} rows
 * @returns {string}
 */
function askOf(row, rows) {
  const at = decisionOf(row) ? rows.get(clean(row.parent_execution_id)) : row;
  if (at && at !== row) return questionOf(at) || askOf(at, rows);
  return clean(dict(row.tags).ask);
}

/** @param {Branch} branch */
const tipOf = (branch) => branch.line[branch.line.length - 1].row;

/** `s11 … s20` @param {Branch} branch */
function spanOf(branch) {
  const [first, last] = [label(branch.first.row), label(tipOf(branch))];
  return first === last ? first : `${first} … ${last}`;
}

/** @param {Branch} branch */
function branchTold(branch) {
  const tip = tipOf(branch);
  return [
    `${spanOf(branch)}: ${plural(branch.size, 'statement')}`,
    clock(tip.ended_at ?? tip.started_at),
    headline(tip.source)
  ]
    .filter(Boolean)
    .join(' · ');
}

/** @param {Comparison | null | undefined} comparison */
function comparisonMark(comparison) {
  if (!comparison || typeof comparison !== 'object') return null;
  const { word, glyph, found } = verdict(comparison);
  const causes = [...new Set(found.map((one) => one.cause).filter(Boolean))];
  const told = [
    { same: 'Same as before', expected: 'Differs, as expected', differs: plural(found.length, 'difference') }[word],
    comparison.against && `against ${comparison.against}`,
    ...found.slice(0, 6).map((one) => `${one.subject}: ${one.summary}${one.cause ? ` (${one.cause})` : ''}`)
  ].filter(Boolean);
  return h(
    'span',
    { class: `ctxk-cmp ctxk-cmp-${word}`, title: told.join('\n'), 'data-verdict': word },
    h('span', { 'aria-hidden': 'true' }, glyph, word === 'same' ? '' : ` ${found.length || ''}`),
    h('span', { class: 'ctxk-sr' }, word),
    word === 'differs' && causes.length > 0 && h('span', { class: 'ctxk-cause' }, causes[0])
  );
}

export {
  ASK_STATUSES,
  LARGE_BYTES,
  askOf,
  branchTold,
  checkpointTold,
  comparisonMark,
  decisionOf,
  questionOf,
  spanOf,
  tipOf,
  verdict,
  wordsOf
};
