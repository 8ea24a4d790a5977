/** The section Projection: exactly what the model would be sent, block by block, what it costs and what is wrong with it. */

import { drawAgainst } from './against.js';
import { HISTORY_KINDS, blockLink, condenseButton, drawMessages, runLine, statementLink } from './blocks.js';
import {
  clean,
  copyText,
  count,
  dict,
  emptyState,
  foldable,
  h,
  list,
  number,
  plural,
  pre,
  quoted
} from './base.js';

/** @import {Block, LeftOut, Projection, Violation} from '../messages.js' */
/** @import {View} from './render.js' */

/** @typedef {keyof typeof SHARES} Share */

const COSTS =
  'What sending it would cost, no answer counted, where the one before was sent some minutes ago at most';
const SHARES = { system: 'system', history: 'history', state: 'state' };

/** The projection: its size and cost, its checks, what was left out, and its messages. @param {View} view */
function drawProjection(view) {
  const p = view.projection;
  if (!p)
    return emptyState(
      'No projection yet',
      'The projection is exactly what the model would be sent. It is built after each cell: run one.'
    );
  const blocks = list(p.blocks).map(dict);
  const violations = list(dict(p.report).violations).map(dict);
  /** @type {Map<string, Partial<Violation>[]>} */
  const broken = new Map();
  for (const one of violations) if (one.block) broken.set(one.block, [...(broken.get(one.block) ?? []), one]);
  return [
    drawMeter(view, p, blocks),
    dict(p.report).ok ? null : drawViolations(view, violations),
    leftOut(view, list(p.left_out).map(dict)),
    drawAgainst(view),
    drawMessages(view, blocks, broken),
    rawRequest(view, p)
  ];
}

/**
 * What a projection costs, in the fewest words; empty where the kernel does not say.
 * @param {Partial<Projection> | null} projection
 */
function costOf(projection) {
  const cost = dict(dict(projection).cost);
  return number(cost.usd) === null ? '' : clean(cost.told);
}

/** @param {View} view @param {Partial<Projection>} p @param {Partial<Block>[]} blocks */
function drawMeter(view, p, blocks) {
  const total = number(p.tokens) ?? 0;
  const budget = number(p.budget) ?? 0;
  const request = dict(p.request);
  const cached = sumOf(blocks.filter((block) => block.cached));
  const cost = dict(p.cost);
  /** @type {Record<Share, (block: Partial<Block>) => boolean>} */
  const isOf = {
    system: (block) => block.kind === 'system',
    history: (block) => HISTORY_KINDS.has(block.kind ?? ''),
    state: (block) => block.kind !== 'system' && !HISTORY_KINDS.has(block.kind ?? '')
  };
  const names = /** @type {Share[]} */ (Object.keys(SHARES));
  const shares = names.map((name) => /** @type {const} */ ([name, sumOf(blocks.filter(isOf[name]))]));
  return h(
    'div',
    { class: 'ctxk-meter' },
    h(
      'p',
      { class: 'ctxk-meterline' },
      h('span', null, h('b', null, `~${count(total)}`), budget ? ` of ${count(budget)} tokens` : ' tokens'),
      cost.told
        ? h(
            'span',
            {
              class: 'ctxk-cost',
              title: `${COSTS}; prices of ${cost.as_of ?? 'an unknown date'}`
            },
            cost.told
          )
        : null
    ),
    budget ? stack(shares, budget, total > budget) : null,
    h(
      'ul',
      { class: 'ctxk-legend' },
      shares.map(([name, tokens]) =>
        h('li', null, h('span', { class: `ctxk-key ctxk-of-${name}` }), `${SHARES[name]} ~${count(tokens)}`)
      ),
      budget
        ? h('li', { class: 'ctxk-muted' }, `${Math.round((100 * total) / budget)} %`)
        : null
    ),
    h(
      'p',
      { class: 'ctxk-hint' },
      [request.model, plural(list(request.messages).length, 'message'), cached ? `~${count(cached)} cached` : null]
        .filter(Boolean)
        .join(' · ')
    ),
    blocks.some((block) => block.role) && h('div', { class: 'ctxk-buttons' }, condenseButton(view))
  );
}

/** @param {Partial<Block>[]} blocks */
const sumOf = (blocks) => blocks.reduce((sum, block) => sum + (number(block.tokens) ?? 0), 0);

/**
 * The budget as a bar, and how much of it each part takes.
 * @param {(readonly [Share, number])[]} shares
 * @param {number} budget
 * @param {boolean} isOver
 */
function stack(shares, budget, isOver) {
  const of = Math.max(budget, shares.reduce((sum, [, tokens]) => sum + tokens, 0));
  const el = h('span', { class: `ctxk-bar ctxk-stack${isOver ? ' ctxk-over' : ''}`, 'aria-hidden': 'true' });
  for (const [name, tokens] of shares) {
    const part = h('span', { class: `ctxk-of-${name}` });
    part.style.width = `${((100 * tokens) / of).toFixed(2)}%`;
    el.append(part);
  }
  return el;
}

/**
 * What is wrong, each with its block and its statement, both a click away.
 * @param {View} view
 * @param {Partial<Violation>[]} violations
 */
function drawViolations(view, violations) {
  return h(
    'div',
    { class: 'ctxk-violations ctxk-tone-error', role: 'group', 'aria-label': 'Checks that failed', tabindex: '-1' },
    h('strong', null, `${plural(violations.length || 1, 'violation')}: this projection would not be sent`),
    violations.map((one) =>
      h(
        'div',
        { class: 'ctxk-violation' },
        h(
          'p',
          null,
          one.block ? ['block ', blockLink(view, one.block)] : 'the request as a whole',
          one.origin ? [' of ', statementLink(view, one.origin)] : ''
        ),
        h('p', null, h('code', null, one.rule), one.path ? h('code', { class: 'ctxk-path' }, one.path) : null),
        h('p', null, one.message),
        one.fix && h('p', null, h('b', null, 'Fix: '), one.fix)
      )
    )
  );
}

/**
 * What is not in it, with the reasons; of anything else the kernel is asked.
 * @param {View} view
 * @param {Partial<LeftOut>[]} left
 */
function leftOut(view, left) {
  return foldable(view.openFolds, 'left', `Left out (${count(left.length)})`, () => {
    const input = h('input', {
      class: 'ctxk-input',
      type: 'text',
      'aria-label': 'Why is this not in the projection: a variable, handle, statement or block',
      placeholder: 'variable, handle, s3 …',
      spellcheck: 'false',
      'data-keep': 'whynot'
    });
    input.value = view.drafts.get('\0whynot') ?? '';
    input.addEventListener('input', () => view.drafts.set('\0whynot', input.value));
    const form = h(
      'form',
      { class: 'ctxk-choose' },
      input,
      h('button', { class: 'ctxk-button', type: 'submit' }, 'Why not?')
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const name = input.value.trim();
      if (name) void runLine(view, `why not ${/^\w+$/.test(name) ? name : quoted(name)}`);
    });
    return [
      left.length
        ? h(
            'ul',
            { class: 'ctxk-left' },
            left.map((one) => h('li', null, h('code', null, one.id), h('span', null, one.why)))
          )
        : h('p', { class: 'ctxk-hint' }, 'Nothing that is known to it was left out.'),
      form
    ];
  });
}

/** @param {View} view @param {Partial<Projection>} p */
function rawRequest(view, p) {
  // Made only when looked at: a request of 32k tokens is a quarter of a megabyte of text.
  const fold = foldable(view.openFolds, 'raw', 'Raw request', () => {
    const text = JSON.stringify(p.request ?? null, null, 2);
    const copy = h('button', { class: 'ctxk-button', type: 'button' }, 'Copy');
    copy.addEventListener('click', async () => {
      copy.textContent = (await copyText(text)) ? 'Copied' : 'Copying is not allowed here';
      setTimeout(() => (copy.textContent = 'Copy'), 2000);
    });
    const receipt = typeof p.receipt === 'string' ? p.receipt : JSON.stringify(p.receipt ?? '');
    return [h('p', { class: 'ctxk-hint' }, p.receipt ? `receipt ${receipt.slice(0, 200)}` : ''), copy, pre(text)];
  });
  fold.classList.add('ctxk-raw');
  return fold;
}

export { drawProjection, costOf };
