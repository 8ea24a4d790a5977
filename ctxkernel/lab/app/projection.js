/** The section Projection: exactly what the model would be sent, block by block, what it costs and what is wrong with it. */

import { drawAgainst } from './against.js';
import { askKernel } from './askkernel.js';
import { condenseButton, runLine } from './blockactions.js';
import { blockLink, blockOf, goToBlock, statementLink } from './blocklinks.js';
import { drawMessages } from './blocks.js';
import { copyText, emptyState, foldable, pre } from './components.js';
import { h, put } from './elements.js';
import { drawMeter } from './meter.js';
import { clean, quoted } from './text.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {LeftOut, Projection, RequestBody, Violation} from '../messages.js' */
/** @import {View} from './view.js' */

/** A search begins when nothing was typed for this long. */
const TYPED_MS = 150;

/** The projection: its size and cost, its checks, what was left out, and its messages. @param {View} view */
function drawProjection(view) {
  const p = view.projection;
  if (!p)
    return emptyState(
      'No projection yet',
      'The projection is exactly what a model would be sent: nothing more, nothing less. It is built after each cell, and nothing is sent before you ask. Run a cell to see it.'
    );
  if (view.blocks?.receipt !== p.receipt) void askBlocks(view, clean(p.receipt));
  const found = dict(view.blocks);
  const violations = list(found.violations).map(dict);
  const breaks = /breaks at (\S+) /.exec(clean(p.broke))?.[1];
  const shown = breaks && list(found.blocks).some((block) => block.id === breaks);
  return [
    drawMeter(p, shown && blockLink(view, breaks, 'show the block'), condenseButton(view), ...copyButtons(view)),
    dict(p.report).ok ? null : drawViolations(view, p, violations),
    leftOut(view, number(p.left_out) ?? 0, list(found.left_out).map(dict)),
    drawAgainst(view),
    drawBlocks(view, violations),
    rawRequest(view)
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

/* ------------------------------------------------------------ blocks */

/** Ask for the blocks of the newest projection: a turn tells only sizes. @param {View} view @param {string} receipt */
async function askBlocks(view, receipt) {
  if (view.blocksAsked === receipt) return;
  view.blocksAsked = receipt;
  const answer = await askKernel(view.actions.ask, 'projection', {});
  if (view.blocksAsked !== receipt || view.disposed) return;
  view.blocksError = '';
  if ('projection' in answer && answer.projection) view.blocks = answer.projection;
  else view.blocksError = clean(answer.error) || 'The kernel gave no answer.';
  const then = view.afterBlocks;
  view.afterBlocks = null;
  view.refresh('projection');
  then?.();
}

/**
 * The messages with their blocks, and a field that searches in them.
 * @param {View} view
 * @param {Partial<Violation>[]} violations
 */
function drawBlocks(view, violations) {
  const blocks = list(dict(view.blocks).blocks).map(dict);
  if (!blocks.length)
    return h('p', { class: 'ctxk-hint ctxk-loading', role: 'status' }, view.blocksError || 'Reading the blocks…');
  /** @type {Map<string, Partial<Violation>[]>} */
  const broken = new Map();
  for (const one of violations) if (one.block) broken.set(one.block, [...(broken.get(one.block) ?? []), one]);
  const box = h('div', { class: 'ctxk-messages' });
  const told = h('span', { class: 'ctxk-hint', role: 'status' });
  const input = h('input', {
    class: 'ctxk-input',
    type: 'search',
    'aria-label': 'Search in the blocks',
    placeholder: 'Search in the blocks',
    spellcheck: 'false',
    'data-keep': 'blocksearch'
  });
  input.value = view.drafts.get('\0search') ?? '';
  const draw = () => {
    const words = input.value.trim().toLowerCase();
    const chosen = words
      ? blocks.filter((block) => [block.id, block.kind, block.text].some((text) => clean(text).toLowerCase().includes(words)))
      : blocks;
    told.textContent = words ? `${plural(chosen.length, 'block')} of ${count(blocks.length)}` : '';
    box.replaceChildren();
    put(box, drawMessages(view, blocks, new Set(chosen), broken, words));
    if (box.isConnected) view.lazy.projection.makeNear();
  };
  /** @type {number | undefined} */
  let typed;
  input.addEventListener('input', () => {
    view.drafts.set('\0search', input.value);
    clearTimeout(typed);
    typed = setTimeout(draw, TYPED_MS);
  });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') {
      draw();
      const first = box.querySelector('[data-block]');
      if (first instanceof HTMLElement) goToBlock(view, first.dataset.block ?? '');
    } else if (event.key === 'Escape' && input.value) {
      event.stopPropagation();
      input.value = '';
      view.drafts.delete('\0search');
      draw();
    }
  });
  draw();
  return [h('div', { class: 'ctxk-blocksearch' }, input, told), box];
}

/** Bring a block to the front when the blocks are there. @param {View} view @param {string} id */
function showBlock(view, id) {
  view.drafts.delete('\0search');
  view.refresh('projection');
  if (blockOf(view, id)) return goToBlock(view, id);
  view.afterBlocks = () => goToBlock(view, id);
}

/* ------------------------------------------------------------ checks, and what is left out */

/**
 * What is wrong, each with its block and its statement, both a click away.
 * @param {View} view
 * @param {Partial<Projection>} p
 * @param {Partial<Violation>[]} violations
 */
function drawViolations(view, p, violations) {
  const found = violations.length || (number(dict(p.report).count) ?? 1);
  return h(
    'div',
    { class: 'ctxk-violations ctxk-tone-error', role: 'group', 'aria-label': 'Checks that failed', tabindex: '-1' },
    h('strong', null, `${plural(found, 'violation')}: this projection would not be sent`),
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
 * @param {number} total
 * @param {Partial<LeftOut>[]} left
 */
function leftOut(view, total, left) {
  return foldable(view.openFolds, 'left', `Left out (${count(total)})`, () => {
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

/* ------------------------------------------------------------ the exact request */

/** @param {View} view */
function copyButtons(view) {
  /** @param {string} text @param {string} title @param {(body: Partial<RequestBody>) => string} make */
  const button = (text, title, make) => {
    const el = h('button', { class: 'ctxk-button', type: 'button', title, 'data-keep': text }, text);
    el.addEventListener('click', async () => {
      const body = await askBody(view);
      const done = typeof body !== 'string' && (await copyText(make(body)));
      el.textContent = done ? 'Copied' : typeof body === 'string' ? 'No answer' : 'Copying is not allowed here';
      setTimeout(() => (el.textContent = text), 2000);
    });
    return el;
  };
  return [
    button('Copy JSON', 'The exact body of the request', (body) => String(body.body)),
    button('Copy curl', 'A command line that sends exactly these bytes, with $ANTHROPIC_API_KEY for the key', curlOf)
  ];
}

/** The newest request, or why it cannot be had. @param {View} view @returns {Promise<Partial<RequestBody> | string>} */
async function askBody(view) {
  const answer = await askKernel(view.actions.ask, 'request', {});
  return 'request' in answer && answer.request ? answer.request : clean(answer.error) || 'The kernel gave no answer.';
}

/** A text as one word of a POSIX shell. @param {unknown} text */
const shellWord = (text) => `'${String(text).replace(/'/g, "'\\''")}'`;

/**
 * A command line that sends a request. The body comes through a pipe: an argument may not be as long.
 * @param {Partial<RequestBody>} body
 */
function curlOf(body) {
  const headers = Object.entries(dict(body.headers)).map(([name, value]) => `-H ${shellWord(`${name}: ${value}`)}`);
  return [
    `printf %s ${shellWord(body.body)} | curl --no-buffer ${shellWord(body.url)}`,
    ...headers,
    '-H "x-api-key: $ANTHROPIC_API_KEY"',
    '--data-binary @-'
  ].join(' \\\n  ');
}

/** @param {View} view */
function rawRequest(view) {
  // Made only when looked at: a request of 32k tokens is a quarter of a megabyte of text.
  const fold = foldable(view.openFolds, 'raw', 'Raw request', (box) => {
    void askBody(view).then((body) => {
      box.replaceChildren();
      if (typeof body === 'string') return void put(box, h('p', { class: 'ctxk-note' }, body));
      put(box, h('p', { class: 'ctxk-hint' }, `receipt ${clean(body.receipt)}`), pre(readable(String(body.body))));
    });
    return h('p', { class: 'ctxk-hint' }, 'Reading the request…');
  });
  fold.classList.add('ctxk-raw');
  return fold;
}

/** A body with line breaks, and images by their size. @param {string} body */
function readable(body) {
  try {
    return JSON.stringify(
      JSON.parse(body),
      (key, value) => (key === 'data' && typeof value === 'string' && value.length > 2000 ? `(${count(value.length)} characters)` : value),
      2
    );
  } catch {
    return body;
  }
}

export { drawProjection, costOf, showBlock, curlOf };
