/** What a change would cost, told before it is made: the kernel supposes it and applies nothing. */

import { askKernel } from './askkernel.js';
import { h } from './elements.js';
import { clean } from './text.js';
import { count, dict, list, number } from './values.js';

/** @import {Price} from '../messages.js' */
/** @import {Item} from './menu.js' */
/** @import {View} from './view.js' */

/** An item of a menu with the words of `%ctx whatif` for what it does. @typedef {Item & {change?: string}} PricedItem */

/** Prices that are kept: those of the newest projection. */
const KEPT = 200;

/**
 * Give items that have a `change` a note, and fill it with the price when the kernel has told it.
 * @param {View} view
 * @param {PricedItem[]} items
 * @returns {Item[]}
 */
function priced(view, items) {
  const receipt = clean(view.projection?.receipt);
  /** @type {Map<string, HTMLElement>} */
  const missing = new Map();
  for (const item of items) {
    if (!item.change || item.off) continue;
    item.note = h('span', { class: 'ctxk-price' }, 'price …');
    const known = view.prices.get(`${receipt}\0${item.change}`);
    if (known) item.note.textContent = priceTold(known);
    else missing.set(item.change, item.note);
  }
  if (missing.size) void fill(view, receipt, missing);
  return items;
}

/** @param {View} view @param {string} receipt @param {Map<string, HTMLElement>} notes */
async function fill(view, receipt, notes) {
  const busy = view.busy ? 'the price is told when the cell has ended' : '';
  const answer = busy ? { error: busy } : await askKernel(view.actions.ask, 'whatif', { changes: [...notes.keys()].join('\n') });
  if ('whatif' in answer && answer.whatif) {
    for (const price of list(answer.whatif.prices).map(dict)) {
      const change = clean(price.change);
      if (view.prices.size > KEPT) view.prices.clear();
      view.prices.set(`${receipt}\0${change}`, price);
      const note = notes.get(change);
      if (note) note.textContent = priceTold(price);
      notes.delete(change);
    }
  }
  for (const note of notes.values()) note.textContent = clean(answer.error) || 'no price';
}

/** A difference with its sign. @param {number} value @param {string} text */
const signed = (value, text) => `${value > 0 ? '+' : value < 0 ? '−' : '±'}${text}`;

/** A price in a few words: `−1,240 tokens · next request +$0.0012`. @param {Partial<Price>} price */
function priceTold(price) {
  if (price.error) return clean(price.error);
  const tokens = number(price.tokens) ?? 0;
  const [before, after] = [dict(price.before), dict(price.after)];
  const [usd, wasUsd] = [number(after.usd), number(before.usd)];
  const parts = [tokens ? `${signed(tokens, count(Math.abs(tokens)))} tokens` : 'as many tokens'];
  if (usd !== null && wasUsd !== null) {
    const more = usd - wasUsd;
    const cents = Math.abs(more) < 0.00005 ? 0 : more;
    parts.push(`next request ${signed(cents, `$${Math.abs(cents).toFixed(4)}`)}`);
  } else {
    const more = Math.round((number(after.units) ?? 0) - (number(before.units) ?? 0));
    parts.push(`next request ${signed(more, count(Math.abs(more)))} input tokens’ worth`);
  }
  if (price.violations) parts.push('would break a rule of the API');
  return parts.join(' · ');
}

export { priced, priceTold };
