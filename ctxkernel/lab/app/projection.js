/** The section Projection: exactly what the model would be sent, block by block. */

import { bar, clean, copyText, count, dict, emptyState, h, list, number, plural, pre, put } from './base.js?v=0.1.0';

/** Longest text of a block that is drawn before the reader asks for the rest. */
const BLOCK_CHARS = 700;

/** The projection: its size, its checks, its blocks and what was left out. */
export function drawProjection(view) {
  const p = view.projection;
  if (!p)
    return emptyState(
      'No projection yet',
      'The projection is exactly what the model would be sent. It is built after each cell: run one.'
    );
  const total = number(p.tokens) ?? 0;
  const budget = number(p.budget) ?? 0;
  const report = dict(p.report);
  const blocks = list(p.blocks).map(dict);
  const cached = blocks.filter((b) => b.cached).reduce((sum, b) => sum + (number(b.tokens) ?? 0), 0);
  const request = dict(p.request);
  const out = [
    h(
      'div',
      { class: 'ctxk-meter' },
      h(
        'p',
        { class: 'ctxk-meterline' },
        h('span', null, h('b', null, `~${count(total)}`), budget ? ` of ${count(budget)} tokens` : ' tokens'),
        h('span', null, budget ? `${Math.round((100 * total) / budget)} %` : '')
      ),
      budget ? bar(total / budget, total > budget ? 'error' : 'plain') : null,
      h(
        'p',
        { class: 'ctxk-hint' },
        [request.model, plural(list(request.messages).length, 'message'), cached ? `~${count(cached)} cached` : null]
          .filter(Boolean)
          .join(' · ')
      )
    )
  ];
  const violations = list(report.violations).map(dict);
  if (!report.ok) {
    out.push(
      h(
        'div',
        { class: 'ctxk-violations ctxk-tone-error', role: 'group', 'aria-label': 'Checks that failed' },
        h('strong', null, `${plural(violations.length || 1, 'violation')}: this projection would not be sent`),
        violations.map((v) =>
          h(
            'div',
            { class: 'ctxk-violation' },
            h('p', null, h('code', null, v.rule), v.path ? h('code', { class: 'ctxk-path' }, v.path) : null),
            h('p', null, v.message),
            v.fix && h('p', null, h('b', null, 'Fix: '), v.fix)
          )
        )
      )
    );
  }
  const widest = Math.max(1, ...blocks.map((b) => number(b.tokens) ?? 0));
  let role = null;
  const roles = rolesOf(blocks, request);
  const ol = h('ol', { class: 'ctxk-blocks' });
  blocks.forEach((block, i) => {
    if (roles[i] && roles[i] !== role) {
      role = roles[i];
      ol.append(h('li', { class: 'ctxk-role' }, role));
    }
    ol.append(drawBlock(view, block, widest, total));
  });
  out.push(ol);
  const left = list(p.left_out).map(dict);
  if (left.length) {
    out.push(
      h(
        'details',
        { class: 'ctxk-fold' },
        h('summary', null, `Left out (${count(left.length)})`),
        h(
          'ul',
          { class: 'ctxk-left' },
          left.map((x) => h('li', null, h('code', null, x.id), h('span', null, x.why)))
        )
      )
    );
  }
  out.push(rawRequest(view, p));
  return out;
}

function drawBlock(view, block, widest, total) {
  const id = String(block.id ?? '');
  const text = clean(block.text);
  const tokens = number(block.tokens) ?? 0;
  const key = (what) => `${id}\0${what}`;
  const why = h(
    'p',
    { class: 'ctxk-why', hidden: !view.openBlocks.has(key('why')) },
    block.why || 'No reason was given.',
    block.origin ? h('span', { class: 'ctxk-origin' }, `from ${originText(block.origin)}`) : null
  );
  const whyButton = h(
    'button',
    {
      class: 'ctxk-link',
      type: 'button',
      'aria-expanded': String(!why.hidden),
      title: 'Why this block is here',
      onclick: () => {
        why.hidden = !why.hidden;
        whyButton.setAttribute('aria-expanded', String(!why.hidden));
        view.openBlocks[why.hidden ? 'delete' : 'add'](key('why'));
      }
    },
    'why'
  );
  const long = text.length > BLOCK_CHARS || text.split('\n').length > 10;
  const body = pre('');
  const more = h('button', { class: 'ctxk-link ctxk-more', type: 'button' });
  const draw = () => {
    const all = !long || view.openBlocks.has(key('all'));
    body.textContent = all ? text : text.slice(0, BLOCK_CHARS);
    body.classList.toggle('ctxk-clamped', !all);
    more.textContent = all ? 'less' : 'show all';
  };
  more.addEventListener('click', () => {
    view.openBlocks[view.openBlocks.has(key('all')) ? 'delete' : 'add'](key('all'));
    draw();
  });
  draw();
  const share = total ? Math.round((100 * tokens) / total) : 0;
  return h(
    'li',
    { class: `ctxk-block${block.cached ? ' ctxk-cached' : ''}`, 'data-block': id },
    h(
      'div',
      { class: 'ctxk-blockline' },
      h('code', { class: 'ctxk-blockid', title: id }, id),
      block.kind && clean(block.kind) !== id && h('span', { class: 'ctxk-tag' }, block.kind),
      h('span', { class: 'ctxk-space' }),
      h(
        'span',
        {
          class: block.cached ? 'ctxk-cachemark' : 'ctxk-freshmark',
          title: block.cached
            ? 'same bytes as in the last projection: a provider’s cache can serve it'
            : 'new or changed since the last projection'
        },
        block.cached ? 'cached' : 'fresh'
      ),
      h('span', { class: 'ctxk-tokens', title: `${share} % of the total` }, `~${count(tokens)}`),
      whyButton
    ),
    bar(tokens / widest, 'plain'),
    why,
    text && body,
    text && long && more
  );
}

function rawRequest(view, p) {
  const box = h('div', { class: 'ctxk-raw' });
  const fold = h('details', { class: 'ctxk-fold' }, h('summary', null, 'Raw request'), box);
  fold.open = Boolean(view.rawOpen);
  const fill = () => {
    view.rawOpen = fold.open;
    if (!fold.open || box.childElementCount) return;
    // Made only when looked at: a request of 32k tokens is a quarter of a megabyte of text.
    const text = JSON.stringify(p.request ?? null, null, 2);
    const copy = h('button', { class: 'ctxk-button', type: 'button' }, 'Copy');
    copy.addEventListener('click', async () => {
      copy.textContent = (await copyText(text)) ? 'Copied' : 'Copying is not allowed here';
      setTimeout(() => (copy.textContent = 'Copy'), 2000);
    });
    put(
      box,
      h(
        'p',
        { class: 'ctxk-hint' },
        p.receipt
          ? `receipt ${String(typeof p.receipt === 'string' ? p.receipt : JSON.stringify(p.receipt)).slice(0, 200)}`
          : ''
      ),
      copy,
      pre(text)
    );
  };
  fold.addEventListener('toggle', fill);
  fill();
  return fold;
}

const originText = (origin) =>
  typeof origin === 'string' ? origin : Array.isArray(origin) ? origin.join(', ') : JSON.stringify(origin);

/**
 * The part of the request that each block stands in: `tools`, `system`, `user` or `assistant`; null where it is not clear.
 *
 * A block does not say its role, so its text is looked for in the request, which is in the same order.
 */
function rolesOf(blocks, request) {
  const parts = [];
  const texts = (content) =>
    typeof content === 'string'
      ? [content]
      : list(content).map((c) =>
          typeof c === 'string' ? c : typeof c?.text === 'string' ? c.text : JSON.stringify(c ?? null)
        );
  if (list(request.tools).length) parts.push(['tools', JSON.stringify(request.tools)]);
  for (const text of texts(request.system)) parts.push(['system', text]);
  for (const message of list(request.messages))
    for (const text of texts(message?.content)) parts.push([String(message?.role ?? ''), text]);
  let at = 0;
  return blocks.map((block) => {
    const text = typeof block.text === 'string' ? block.text.slice(0, 200) : '';
    if (block.kind === 'tools' || block.kind === 'system') return block.kind;
    if (!text) return null;
    for (let i = at; i < parts.length; i += 1) {
      if (parts[i][1].includes(text)) {
        at = i;
        return parts[i][0];
      }
    }
    return null;
  });
}
