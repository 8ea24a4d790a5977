/** One statement: the line that tells what it did, and its details. */

import { askKernel } from './askkernel.js';
import { facts, heading, pre } from './components.js';
import { h, put } from './elements.js';
import { AUTHORS, keyOf } from './rownames.js';
import { isResponse } from './spending.js';
import { clean, marked } from './text.js';
import { bytes, clock, count, dict, duration, list, number, plural, spentTold } from './values.js';

/** @import {Child} from '../types.js' */
/** @import {Details, NameChange, Size} from '../messages.js' */
/** @import {Actions} from './render.js' */
/** @import {AnyRow} from './tree.js' */

/**
 * One line on what the statement did, after what was said of it: names that came, changed and went; the error; what it left.
 * @param {AnyRow} row
 * @param {Child[]} [first]
 */
function chips(row, first = []) {
  const diff = dict(row.diff);
  /** @type {Child[]} */
  const out = [...first];
  /** @type {['added' | 'changed' | 'deleted', string, readonly string[]][]} */
  const sets = [
    ['added', '+', Object.keys(dict(diff.added))],
    ['changed', '~', Object.keys(dict(diff.changed))],
    ['deleted', '−', list(diff.deleted)]
  ];
  for (const [kind, sign, names] of sets) {
    for (const name of names.slice(0, 6))
      out.push(h('span', { class: `ctxk-chip ctxk-${kind}`, title: `${kind}: ${name}` }, `${sign}${name}`));
    const more = names.length - Math.min(6, names.length) + (number(dict(diff.more)[kind]) ?? 0);
    if (more) out.push(h('span', { class: `ctxk-chip ctxk-${kind}` }, `${sign}${more} more`));
  }
  if (diff.incomplete)
    out.push(h('span', { class: 'ctxk-chip', title: `Changes may be missing: ${diff.incomplete}` }, '?'));
  // Handles that a call or the tick changed; one that is new has its chip as a new name already.
  const fresh = new Set(sets[0][2]);
  const nodes = list(row.nodes)
    .map(dict)
    .filter((n) => !fresh.has(n.name ?? ''));
  for (const n of nodes.slice(0, 6))
    out.push(h('span', { class: 'ctxk-chip ctxk-node', title: `${n.name}: ${n.summary ?? ''}` }, `◇ ${n.name}`));
  if (nodes.length > 6) out.push(h('span', { class: 'ctxk-chip ctxk-node' }, `◇ ${nodes.length - 6} more`));
  // A result comes as text and as something richer: one chip for both is enough.
  const all = list(row.artifacts).map(dict);
  const rich = new Set(all.filter((a) => a.kind !== 'file' && a.mime !== 'text/plain').map((a) => a.name));
  const artifacts = all.filter((a) => a.mime !== 'text/plain' || a.kind === 'file' || !rich.has(a.name));
  for (const a of artifacts.slice(0, 4)) {
    const text = a.kind === 'file' ? a.name : shortMime(a.mime);
    out.push(
      h(
        'span',
        { class: 'ctxk-chip ctxk-artifact', title: `${a.kind} ${a.name ?? ''} ${a.mime ?? ''} ${bytes(a.size)}` },
        a.kind === 'file' ? '▤ ' : '▣ ',
        text
      )
    );
  }
  if (artifacts.length > 4) out.push(h('span', { class: 'ctxk-chip ctxk-artifact' }, `${artifacts.length - 4} more`));
  const exception = row.exception && dict(row.exception);
  const error =
    exception &&
    h(
      'p',
      { class: 'ctxk-exc', title: `${exception.type}: ${exception.message}` },
      h('b', null, exception.type),
      exception.message ? `: ${exception.message}` : ''
    );
  if (!out.length && !error) return null;
  return h('div', { class: 'ctxk-sub' }, error, out.length > 0 && h('div', { class: 'ctxk-chips' }, out));
}

/**
 * Fill the details of one statement: what ran, what it said, how it failed, what it changed, what it left. What the row
 * tells is there at once; the rest is asked for.
 * @param {HTMLElement} el
 * @param {AnyRow} row
 * @param {Actions} actions
 * @param {() => void} resized the details have another height now
 */
function fillDetails(el, row, actions, resized) {
  draw(el, row, actions, null);
  if (!actions.ask || row.status === 'running') return;
  void askKernel(actions.ask, 'details', { of: keyOf(row) }).then((answer) => {
    const found = 'details' in answer ? answer.details : null;
    if (!found || !el.isConnected) return;
    el.replaceChildren();
    draw(el, { ...row, ...found.row }, actions, found);
    resized();
  });
}

/**
 * @param {HTMLElement} el
 * @param {AnyRow} row
 * @param {Actions} actions
 * @param {Partial<Details> | null} found what the kernel told beside the row
 */
function draw(el, row, actions, found) {
  const cut = dict(row.cut);
  const late = dict(row.late);
  const tags = dict(row.tags);
  if (isResponse(row)) put(el, heading('What the model said'), h('p', { class: 'ctxk-said' }, row.source));
  else put(el, heading('Source'), sourceOf(row, actions));
  for (const stream of /** @type {const} */ (['stdout', 'stderr'])) {
    const text = row[stream];
    const lost = number(cut[stream]);
    if (!text && !lost) continue;
    put(el, heading(stream), text && h('pre', { class: `ctxk-pre ctxk-${stream}` }, text));
    if (lost) put(el, h('p', { class: 'ctxk-cut' }, `✂ ${plural(lost, 'byte')} of ${stream} were cut from the record`));
    else if (!found && typeof text === 'string' && text.length >= 2000)
      put(el, h('p', { class: 'ctxk-cut' }, 'The first 2,000 characters; the cell has the rest.'));
  }
  for (const [stream, text] of Object.entries(late)) {
    if (text) put(el, heading(`${stream} after the end`), pre(text));
  }
  if (row.exception) {
    const e = dict(row.exception);
    put(
      el,
      heading('Exception'),
      h('p', { class: 'ctxk-excfull' }, h('b', null, e.type), e.message ? `: ${e.message}` : ''),
      e.trace_summary && pre(e.trace_summary)
    );
  }
  put(el, drawOutputs(found, actions));
  const diff = dict(row.diff);
  const lines = [
    ...Object.entries(dict(diff.added)).map(([name, x]) => diffLine('added', '+', name, dict(x))),
    ...Object.entries(dict(diff.changed)).map(([name, x]) => diffLine('changed', '~', name, dict(x))),
    ...list(diff.deleted).map((name) => diffLine('deleted', '−', name, {}))
  ];
  if (lines.length) put(el, heading('Changes in the namespace'), h('ul', { class: 'ctxk-diff' }, lines));
  if (diff.incomplete) put(el, h('p', { class: 'ctxk-cut' }, `Changes may be missing: ${diff.incomplete}`));
  const nodes = list(row.nodes).map(dict);
  if (nodes.length)
    put(
      el,
      heading('Handles'),
      h(
        'ul',
        { class: 'ctxk-diff' },
        nodes.map((n) => h('li', null, h('b', null, n.name), ` ${n.summary ?? ''}`))
      )
    );
  const artifacts = list(row.artifacts).map(dict);
  if (artifacts.length) {
    put(
      el,
      heading('Left behind'),
      h(
        'ul',
        { class: 'ctxk-diff' },
        artifacts.map((a) =>
          h(
            'li',
            null,
            h('code', null, a.name || a.mime),
            h(
              'span',
              { class: 'ctxk-muted' },
              [a.kind, a.name ? a.mime : '', bytes(a.size)].filter(Boolean).join(' · ')
            )
          )
        )
      )
    );
  }
  put(el, drawEvents(found));
  for (const text of list(row.notices)) put(el, h('p', { class: 'ctxk-note' }, text));
  put(
    el,
    facts([
      ['run', row.execution_id],
      ['at', clock(row.started_at ?? row.timestamp)],
      ['took', duration(row.time_ms)],
      ['by', (row.author && AUTHORS[row.author]) ?? row.author],
      ['of the ask', tags.ask],
      ['model', tags.model],
      ['spent', spentTold(row)],
      ...Object.entries(dict(tags.usage))
        .filter(([, n]) => number(n) !== null)
        .map(([name, n]) => [name.replaceAll('_', ' '), count(n)]),
      ['stopped for', isResponse(row) ? tags.stop_reason : ''],
      ['request', tags.request_id],
      ['receipt', tags.receipt]
    ])
  );
}

/** Its source, in JupyterLab's colours where it has some to give. @param {AnyRow} row @param {Actions} actions */
function sourceOf(row, actions) {
  const code = marked(row.source);
  if (!code || !actions.highlight || code.startsWith('%%')) return pre(code || '(empty)');
  const box = h('pre', { class: 'ctxk-pre ctxk-coloured' });
  actions.highlight(code, box);
  return box;
}

/** Kinds of pictures that are shown; a picture runs no script. */
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/svg+xml'];

/**
 * Tables and figures as they looked: pictures as pictures, all else by JupyterLab, as of a notebook that is not trusted.
 * @param {Partial<Details> | null} found @param {Actions} actions
 * @returns {Child}
 */
function drawOutputs(found, actions) {
  const shown = list(found?.outputs)
    .map((one) => dict(/** @type {Record<string, any>} */ (one)))
    .filter((one) => one.output_type === 'display_data' || one.output_type === 'execute_result')
    .map((one) => drawOutput(dict(/** @type {Record<string, any>} */ (one.data)), actions));
  const more = number(found?.outputs_more) ?? 0;
  if (!shown.length && !more) return null;
  return [
    heading('Output'),
    h('div', { class: 'ctxk-outputs' }, shown),
    more > 0 && h('p', { class: 'ctxk-cut' }, `${plural(more, 'large output')} not shown: %ctx show has them.`)
  ];
}

/** @param {Record<string, unknown>} data a MIME bundle @param {Actions} actions @returns {Child} */
function drawOutput(data, actions) {
  const mime = PICTURES.find((one) => typeof data[one] === 'string');
  const text = clean(data['text/plain']);
  if (mime) {
    const svg = mime === 'image/svg+xml';
    const body = String(data[mime]);
    if (svg || /^[A-Za-z0-9+/=\s]+$/.test(body))
      return h('img', {
        class: 'ctxk-picture',
        alt: text || 'A figure of this statement',
        src: `data:${mime}${svg ? `;charset=utf-8,${encodeURIComponent(body)}` : `;base64,${body.replace(/\s/g, '')}`}`
      });
  }
  const box = h('div', { class: 'ctxk-rich' });
  if (actions.render?.(data, box)) return box;
  return text ? pre(text) : h('p', { class: 'ctxk-hint' }, `An output of type ${Object.keys(data).join(', ').slice(0, 100)}`);
}

/** What of it a model sees. @param {Partial<Details> | null} found @returns {Child} */
function drawEvents(found) {
  const events = list(found?.events).map((one) => dict(/** @type {Record<string, string>} */ (one)));
  const more = number(found?.events_more) ?? 0;
  if (!events.length) return null;
  return h(
    'details',
    { class: 'ctxk-fold' },
    h('summary', null, `${plural(events.length + more, 'event')} in the model’s history`),
    events.map((one) => [
      h('p', { class: 'ctxk-muted' }, `${clean(one.id)} · ${clean(one.kind)}`),
      pre(clean(one.text))
    ])
  );
}

/** @param {string} kind @param {string} sign @param {string} name @param {Partial<NameChange>} x */
function diffLine(kind, sign, name, x) {
  const size = sizeText(x.size);
  const short = [x.before, x.repr].every((text) => clean(text).length <= 36 && !clean(text).includes('\n'));
  // A line through the old value would say that it is gone; that is told only where there is another one.
  const before = x.repr && x.before !== x.repr ? x.before : '';
  return h(
    'li',
    { class: `ctxk-diffline ctxk-${kind}${short ? ' ctxk-short' : ''}` },
    h('span', { class: 'ctxk-sign', title: kind }, sign),
    h('code', { class: 'ctxk-subject' }, name),
    h(
      'span',
      { class: 'ctxk-muted' },
      [x.type, x.how === 'mutated' ? 'mutated' : '', size].filter(Boolean).join(' · ') ||
        (kind === 'deleted' ? 'deleted' : '')
    ),
    before && h('code', { class: 'ctxk-repr ctxk-before', title: 'before' }, before),
    x.repr && h('code', { class: 'ctxk-repr' }, before && short ? '→ ' : '', x.repr)
  );
}

/** @param {string | undefined} mime */
function shortMime(mime) {
  /** @type {Record<string, string>} */
  const names = {
    'image/png': 'png',
    'image/jpeg': 'jpeg',
    'image/svg+xml': 'svg',
    'text/html': 'html',
    'text/plain': 'text',
    'text/markdown': 'markdown',
    'text/latex': 'latex',
    'application/json': 'json',
    'application/vnd.jupyter.widget-view+json': 'widget'
  };
  return (
    names[mime ?? ''] ??
    clean(mime ?? '')
      .replace(/^application\/(vnd\.)?/, '')
      .slice(0, 24)
  );
}

/** @param {Size | undefined} size */
function sizeText(size) {
  const s = dict(size);
  return [
    Array.isArray(s.shape) ? s.shape.join('×') : number(s.len) !== null ? `len ${count(s.len)}` : '',
    bytes(s.bytes)
  ]
    .filter(Boolean)
    .join(', ');
}

export { chips, fillDetails };
