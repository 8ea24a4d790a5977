/** What the responses of a session have cost, in all and by ask. Each response counts once, with or without its content. */

import { keyOf } from './rownames.js';
import { clean } from './text.js';
import { dict, number } from './values.js';

/** @import {AnyRow} from './tree.js' */

/** Whether a row is what a model said, in words; its cells are rows of their own. @param {AnyRow} row */
const isResponse = (row) => row.author === 'model' && row.kind === 'meta' && !dict(row.tags).held;

class Spending {
  constructor() {
    /** By the ask's run; `usd` is null where the cost of a response is not known. @type {Map<string, {tokens: number, usd: number | null}>} */
    this.ofAsk = new Map();
    this.usd = 0;
    /** Responses that were counted. @type {Set<string>} */
    this.counted = new Set();
  }

  /** Count a row, if it is a response that has ended. @param {AnyRow} row */
  take(row) {
    const tokens = number(row.tokens);
    const usd = number(row.usd);
    const key = keyOf(row);
    if (!(isResponse(row) ? tokens : usd) || this.counted.has(key)) return;
    this.counted.add(key);
    this.usd += usd ?? 0;
    if (!isResponse(row) || !tokens) return;
    const ask = clean(dict(row.tags).ask);
    const sum = this.ofAsk.get(ask) ?? { tokens: 0, usd: 0 };
    this.ofAsk.set(ask, { tokens: sum.tokens + tokens, usd: sum.usd === null || usd === null ? null : sum.usd + usd });
  }
}

export { Spending, isResponse };
