/** The section Cost: what the requests of this session have cost, in all and by ask, and how that grew. */

import { askKernel } from './askkernel.js';
import { statementLink } from './blocklinks.js';
import { emptyState } from './components.js';
import { h } from './elements.js';
import { clean } from './text.js';
import { count, dict, duration, list, number, plural } from './values.js';

/** @import {CostLine, CostPoint} from '../messages.js' */
/** @import {View} from './view.js' */

const SVG = 'http://www.w3.org/2000/svg';
/** The plot's size, in its own units. */
const [WIDE, HIGH] = [320, 72];

/** @param {View} view */
function drawCosts(view) {
  void ask(view);
  const costs = dict(view.costs);
  const total = costs.total ? dict(costs.total) : null;
  if (!view.costs && !view.costsError) return h('p', { class: 'ctxk-hint ctxk-loading', role: 'status' }, 'Adding up…');
  if (!total)
    return view.costsError
      ? h('p', { class: 'ctxk-note' }, view.costsError)
      : emptyState('Nothing spent yet', 'Each request to a model is listed here with its tokens and its cost. Ask in a cell:', '%%ask');
  return [
    h(
      'dl',
      { class: 'ctxk-sums ctxk-costsum' },
      fact('total', h('b', null, total.told)),
      fact('requests', plural(number(total.requests) ?? 0, 'request')),
      fact('tokens', `${counted(total, 'tokens_in')} in, ${counted(total, 'tokens_out')} out`),
      fact('from the cache', shareOf(total)),
      fact('time', duration(1000 * (number(total.seconds) ?? 0)))
    ),
    plot(list(costs.requests).map(dict)),
    costs.more ? h('p', { class: 'ctxk-hint' }, `The plot has the newest ${count(list(costs.requests).length)} requests.`) : null,
    table('By ask', 'ask', list(costs.asks).map(dict), (line) => [
      statementLink(view, line.ask, clean(line.ask).split('.')[0]),
      ' ',
      h('span', { class: 'ctxk-muted', title: line.question }, clean(line.question))
    ]),
    table('By model', 'model', list(costs.models).map(dict), (line) => clean(line.model)),
    breaks(list(costs.breaks)),
    costs.fault ? h('p', { class: 'ctxk-note' }, costs.fault) : null
  ];
}

/** Ask for the newest books, once at a time. @param {View} view */
async function ask(view) {
  if (view.costsAsked) return;
  const asked = (view.costsAsked = {});
  const before = JSON.stringify(view.costs);
  const answer = await askKernel(view.actions.ask, 'cost', {});
  if (view.costsAsked !== asked || view.disposed) return;
  if ('cost' in answer && answer.cost) [view.costs, view.costsError] = [answer.cost, ''];
  else view.costsError = clean(answer.error) || 'The kernel gave no answer.';
  // Drawn anew only for something new; the drawing itself asks no more.
  if (JSON.stringify(view.costs) !== before || view.costsError) view.refresh('cost');
  view.costsAsked = null;
}

/** A count of tokens; one that the server did not tell is an estimate. @param {Partial<CostLine>} line @param {'tokens_in' | 'tokens_out'} name */
const counted = (line, name) => `${list(line.guessed).includes(name) ? '~' : ''}${count(line[name])}`;

/** The part of the input that came from the provider's cache. @param {Partial<CostLine>} line */
function shareOf(line) {
  const given = number(line.tokens_in) ?? 0;
  return given ? `${Math.round((100 * (number(line.cached) ?? 0)) / given)} % of the input` : 'nothing';
}

/** @param {string} name @param {import('../types.js').Child} value */
const fact = (name, value) => h('div', null, h('dt', null, name), h('dd', null, value));

/**
 * @param {string} title
 * @param {string} first
 * @param {Partial<CostLine>[]} lines
 * @param {(line: Partial<CostLine>) => import('../types.js').Child} told
 */
function table(title, first, lines, told) {
  if (!lines.length) return null;
  return h(
    'table',
    { class: 'ctxk-costs' },
    h('caption', null, title),
    h(
      'thead',
      null,
      h('tr', null, [first, 'requests', 'in', 'cached', 'out', 'cost'].map((name) => h('th', { scope: 'col' }, name)))
    ),
    h(
      'tbody',
      null,
      lines.map((line) =>
        h(
          'tr',
          null,
          h('th', { scope: 'row' }, told(line)),
          h('td', null, count(line.requests)),
          h('td', null, counted(line, 'tokens_in')),
          h('td', null, line.tokens_in ? shareOf(line).split(' of')[0] : ''),
          h('td', null, counted(line, 'tokens_out')),
          h('td', null, clean(line.told))
        )
      )
    )
  );
}

/** @param {readonly string[]} lines */
function breaks(lines) {
  return h(
    'section',
    { class: 'ctxk-part' },
    h('h4', { class: 'ctxk-h' }, 'Where the cache broke'),
    lines.length
      ? h('ul', { class: 'ctxk-broken-list' }, lines.map((line) => h('li', { class: 'ctxk-broke' }, line)))
      : h('p', { class: 'ctxk-hint' }, 'Each request continued the one before it.')
  );
}

/**
 * The sum of the cost, request by request: dollars where all prices are known, else tokens. A text says the same.
 * @param {Partial<CostPoint>[]} points
 */
function plot(points) {
  if (points.length < 2) return null;
  const inUsd = points.every((point) => number(point.usd) !== null);
  let sum = 0;
  const sums = points.map((point) => (sum += number(inUsd ? point.usd : point.tokens) ?? 0));
  if (!sum) return null;
  const text = `${inUsd ? `$${sum.toFixed(4)}` : `${count(sum)} tokens`} after ${plural(points.length, 'request')}`;
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${WIDE} ${HIGH}`);
  svg.setAttribute('class', 'ctxk-plot');
  svg.setAttribute('role', 'img');
  svg.setAttribute('preserveAspectRatio', 'none');
  const dearest = Math.max(...points.map((point) => number(inUsd ? point.usd : point.tokens) ?? 0));
  svg.setAttribute(
    'aria-label',
    `Cost over the session: it grew to ${text}; the dearest request took ${inUsd ? `$${dearest.toFixed(4)}` : count(dearest)}`
  );
  /** @param {number} at */
  const x = (at) => ((WIDE * at) / (points.length - 1)).toFixed(1);
  /** @param {number} value */
  const y = (value) => (HIGH - 2 - ((HIGH - 4) * value) / sum).toFixed(1);
  const line = document.createElementNS(SVG, 'polyline');
  line.setAttribute('points', sums.map((value, at) => `${x(at)},${y(value)}`).join(' '));
  line.setAttribute('class', 'ctxk-plotline');
  svg.append(line);
  for (const [at, point] of points.entries()) {
    if (!point.broke) continue;
    const mark = document.createElementNS(SVG, 'line');
    mark.setAttribute('x1', x(at));
    mark.setAttribute('x2', x(at));
    mark.setAttribute('y1', '0');
    mark.setAttribute('y2', String(HIGH));
    mark.setAttribute('class', 'ctxk-plotbreak');
    svg.append(mark);
  }
  return h(
    'figure',
    { class: 'ctxk-figure' },
    svg,
    h('figcaption', { class: 'ctxk-hint' }, text, points.some((point) => point.broke) && '; a dashed line: the cache broke')
  );
}

export { drawCosts };
