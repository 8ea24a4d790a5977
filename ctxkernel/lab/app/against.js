/** The part of the section Projection that compares: which blocks came, went and changed since an earlier statement. */

import { askKernel } from './askkernel.js';
import { blockLink } from './blocklinks.js';
import { foldable } from './components.js';
import { find, h, put } from './elements.js';
import { keyOf, label } from './rownames.js';
import { clean, headline } from './text.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {BlockChange, Compared} from '../messages.js' */
/** @import {Child} from '../types.js' */
/** @import {AnyRow} from './tree.js' */
/** @import {View} from './view.js' */

/** Statements that are offered, the newest ones; any other is named by its number. */
const CHOICES = 200;
/** The choice that opens a field for a number. */
const OTHER = 'other';
/** @typedef {keyof typeof SIGNS} Sort how a block differs */

const SIGNS = { gained: '+', lost: '−', changed: '~' };

/** The part, folded until it is asked for. @param {View} view */
function drawAgainst(view) {
  return foldable(view.openFolds, 'against', 'Compare with an earlier projection', () => {
    const choices = view.wayToHead
      .map((node) => node.row)
      .filter((row) => row.kind !== 'meta' && row.status !== 'running')
      .slice(-CHOICES)
      .reverse();
    if (!choices.length) return h('p', { class: 'ctxk-hint' }, 'There is no earlier one: run a cell.');
    const keys = choices.map(keyOf);
    const chosen = view.against;
    if (!view.rows.has(chosen.old)) chosen.old = keys[Math.min(1, keys.length - 1)];
    if (!view.rows.has(chosen.new)) chosen.new = '';
    const box = h('div', { class: 'ctxk-against', 'aria-live': 'polite' });
    /**
     * @param {'old' | 'new'} which
     * @param {string} title
     * @param {string} [first] what stands for no statement
     */
    const choose = (which, title, first) => {
      const row = view.rows.get(chosen[which]);
      const more = row && !keys.includes(chosen[which]) ? [row] : [];
      const select = h(
        'select',
        { class: 'ctxk-input', 'aria-label': title, 'data-keep': `against-${which}` },
        first && h('option', { value: '' }, first),
        [...more, ...choices].map((one) => h('option', { value: keyOf(one) }, told(one))),
        h('option', { value: OTHER }, 'another, by its number …')
      );
      select.value = chosen[which];
      /** @param {string} key */
      const take = (key) => {
        chosen[which] = key;
        void ask(view, box);
      };
      select.addEventListener('change', () => {
        if (select.value !== OTHER) return take(select.value);
        const back = () => {
          field.replaceWith(select);
          select.value = chosen[which];
          select.focus();
        };
        const field = numberField(title, (text) => {
          const found = rowNamed(view, text);
          if (!found) return `There is no statement ${text}.`;
          if (![...select.options].some((one) => one.value === keyOf(found)))
            select.prepend(h('option', { value: keyOf(found) }, told(found)));
          take(keyOf(found));
          back();
          return '';
        }, back);
        select.replaceWith(field);
        find(field, 'input')?.focus();
      });
      return select;
    };
    const go = h(
      'button',
      {
        class: 'ctxk-button',
        type: 'button',
        'data-keep': 'against-go',
        onclick: () => void ask(view, box)
      },
      'Compare'
    );
    // What was compared with the projection of then is compared with that of now.
    if (chosen.asked) void ask(view, box);
    return [
      h(
        'div',
        { class: 'ctxk-choose' },
        choose('old', 'The earlier projection: after which statement'),
        h('span', { 'aria-hidden': 'true' }, '→'),
        choose('new', 'The later projection', 'now'),
        go
      ),
      box
    ];
  });
}

/** A row as a choice; of old ones the page has no source. @param {AnyRow} row */
const told = (row) => label(row) + (row.source === undefined ? '' : ` · ${headline(row.source).slice(0, 60)}`);

/** The run that a person names: `12`, `s12`, `s12.2`. Of several runs the one on the way to HEAD, else the newest. @param {View} view @param {string} text */
function rowNamed(view, text) {
  const [, index, run] = /^s?(\d+)(\.\d+)?$/.exec(text.trim()) ?? [];
  if (index === undefined) return undefined;
  const statement = `s${Number(index)}`;
  if (run) return view.rows.get(statement + run);
  return view.wayToHead.findLast(({ row }) => row.statement_id === statement)?.row ?? view.rowOf(statement);
}

/**
 * A field for the number of a statement; Enter takes it, Escape goes back.
 * @param {string} title @param {(text: string) => string} take returns what is wrong with it @param {() => void} back
 */
function numberField(title, take, back) {
  const wrong = h('span', { class: 'ctxk-muted', role: 'status' });
  const input = h('input', {
    class: 'ctxk-input',
    type: 'text',
    'aria-label': title,
    placeholder: 'number, such as s12',
    spellcheck: 'false',
    maxlength: '20',
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== 'Enter' && event.key !== 'Escape') return;
      event.preventDefault();
      event.stopPropagation();
      if (event.key === 'Escape') return back();
      wrong.textContent = take(input.value);
      input.setAttribute('aria-invalid', String(Boolean(wrong.textContent)));
    }
  });
  return h('span', { class: 'ctxk-choosenumber' }, input, wrong);
}

/** @param {View} view @param {HTMLElement} box */
async function ask(view, box) {
  const chosen = view.against;
  chosen.asked = true;
  const turn = (chosen.turn = {});
  const answer = await askKernel(view.actions.ask, 'compare', { old: chosen.old, new: chosen.new || null });
  if (chosen.turn !== turn) return;
  box.replaceChildren();
  if ('compare' in answer && answer.compare) put(box, drawFound(view, dict(answer.compare)));
  else put(box, h('p', { class: 'ctxk-note' }, answer.error || 'The kernel gave no answer.'));
}

/** @param {View} view @param {Partial<Compared>} found @returns {Child} */
function drawFound(view, found) {
  const [before, after] = list(found.sizes).map((size) => number(size) ?? 0);
  const [alone, now] = list(found.costs).map((cost) => clean(dict(cost).told));
  const more = number(found.tokens) ?? 0;
  const sign = more > 0 ? '+' : more < 0 ? '−' : '±';
  /** @type {Record<Sort, Partial<BlockChange>[]>} */
  const groups = { gained: [], lost: [], changed: [] };
  for (const one of list(found.changes).map(dict))
    groups[number(one.before) === null ? 'gained' : number(one.after) === null ? 'lost' : 'changed'].push(one);
  const hidden = number(found.more) ?? 0;
  return [
    h(
      'dl',
      { class: 'ctxk-sums' },
      sum('tokens', `~${count(before)} → ~${count(after)} (${sign}${count(Math.abs(more))})`),
      sum('cost alone', `${alone} → ${now}`),
      sum('cost right after', clean(dict(found.cost_after).told)),
      sum('from the cache', [
        `~${count(found.prefix_tokens)} tokens`,
        found.breaks_at ? [', it breaks at ', blockLink(view, found.breaks_at)] : ', nothing differs'
      ])
    ),
    /** @type {[Sort, Partial<BlockChange>[]][]} */ (Object.entries(groups))
      .filter(([, all]) => all.length)
      .map(([word, all]) =>
        h(
          'section',
          { class: `ctxk-part ctxk-${word}`, 'data-changes': word },
          h('h4', { class: 'ctxk-h' }, `${word} (${count(all.length)})`),
          h(
            'ul',
            { class: 'ctxk-changes-list' },
            all.map((one) => change(view, SIGNS[word], one))
          )
        )
      ),
    hidden > 0 && h('p', { class: 'ctxk-hint' }, `… and ${plural(hidden, 'more change')}: %ctx diff projection`)
  ];
}

/** @param {string} name @param {Child} value */
const sum = (name, value) => h('div', null, h('dt', null, name), h('dd', null, value));

/** @param {View} view @param {string} sign @param {Partial<BlockChange>} one */
function change(view, sign, one) {
  const sizes = [one.before, one.after].filter((size) => number(size) !== null).map((size) => `~${count(size)}`);
  return h(
    'li',
    null,
    h('span', { class: 'ctxk-sign', 'aria-hidden': 'true' }, sign),
    blockLink(view, one.id),
    clean(one.kind) === clean(one.id) ? '' : h('span', { class: 'ctxk-tag' }, one.kind),
    h('span', { class: 'ctxk-space' }),
    h('span', { class: 'ctxk-tokens' }, sizes.join(' → '))
  );
}

export { drawAgainst };
