/** What statements, their runs, authors and ends are called. */

import { clean } from './text.js';
import { number } from './values.js';

/** @import {Row} from '../messages.js' */

/**
 * What a row is told apart by; kernels that do not tell executions run each statement once.
 * @typedef {Partial<Pick<Row, 'statement_id' | 'index'>> & {execution_id?: string | null}} Named
 */

const AUTHORS = { human: 'you', model: 'the model', agent: 'an agent', panel: 'the panel', kernel: 'the kernel' };

const STATUSES = {
  ok: ['✓', 'ok'],
  error: ['✕', 'error'],
  cancelled: ['■', 'cancelled'],
  timeout: ['◷', 'timeout'],
  imported: ['⇣', 'imported, not run here'],
  running: ['●', 'running']
};

/** @param {Partial<Row>} row */
const statusOf = (row) => (row.status && row.status in STATUSES ? row.status : 'ok');

/**
 * The run of a statement that a row is about: `s3.2`. Kernels that say no executions run each statement once.
 * @param {Named | null | undefined} row
 */
const keyOf = (row) => clean(row?.execution_id ?? `${row?.statement_id ?? '?'}.1`);

/**
 * What a reader calls a row: its statement, and from the second run on which run of it.
 * @param {Named | null | undefined} row
 */
function label(row) {
  const statement = clean(row?.statement_id ?? (number(row?.index) !== null ? `s${row?.index}` : '?'));
  const run = keyOf(row);
  return run.endsWith('.1') ? statement : run;
}

/**
 * The run, or else the statement, that an id of the model's history belongs to: `s3.1` of `s3.1:4~result`.
 * @param {unknown} id
 */
const runOf = (id) => clean(id).split(/[:~#]/)[0];

export { AUTHORS, STATUSES, statusOf, keyOf, label, runOf };
