/* The page of an exported session. Every text is set as text: the data come from cells, files and models. */

import { SweepTable } from '../lab/app/sweeptable.js';

const data = JSON.parse(document.getElementById('data').textContent);
const byId = new Map(data.executions.map(one => [one.id, one]));

/** Return an element with attributes and children; children are nodes or texts. */
function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined && child !== ''));
  return made;
}

function pathTo(leaf) {
  const path = [];
  const seen = new Set();
  for (let at = byId.get(leaf); at && !seen.has(at.id); at = byId.get(at.parent)) {
    seen.add(at.id);
    path.unshift(at);
  }
  return path;
}

const firstLine = text => (text.trim().split('\n')[0] || '').slice(0, 120);
const seconds = ms => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);
const anchor = id => `e-${id}`;
const time = at => new Date(at * 1000).toISOString().slice(0, 19).replace('T', ' ');

function table(caption, heads, rows) {
  const head = make('tr', {}, ...heads.map(text => make('th', { scope: 'col' }, text)));
  const body = rows.map(row => make('tr', {}, ...row.map((text, at) => make(at ? 'td' : 'th', at ? {} : { scope: 'row' }, String(text ?? '')))));
  return make('table', {}, make('caption', {}, caption), make('thead', {}, head), make('tbody', {}, ...body));
}

function output(one, where) {
  if (one.kind === 'image') {
    const uri = data.images[one.image];
    const text = one.text || `output of ${where}`;
    return uri ? make('img', { src: uri, alt: text.slice(0, 300), loading: 'lazy' }) : make('p', { class: 'note' }, `[the image is left out: ${text}]`);
  }
  return make('pre', { class: `output ${one.kind}` }, one.text);
}

/** Return the table of a sweep, as the panel draws it. */
function sweep(shown) {
  const drawn = new SweepTable(null);
  drawn.show(shown);
  return drawn.el;
}

function comparison(one) {
  const found = one.comparison;
  if (!found) return null;
  if (!found.rows.length) return make('p', { class: 'facts' }, `ran again after ${found.against}: the same result`);
  const rows = found.rows.map(row => [row.subject, row.summary, row.before, row.after, row.cause]);
  const caption = `differs from ${found.against}${found.expected ? ', as expected' : ''}`;
  return table(caption, ['what', 'difference', 'before', 'after', 'cause'], rows);
}

/** Return by its number what each display shows at the end of a path, and the last run that updated it. */
function lastContents(path) {
  const last = new Map();
  for (const one of path) {
    for (const each of one.outputs) if (each.display !== undefined) last.set(each.display, { content: each, by: null });
    for (const each of one.updates) last.set(each.display, { content: each, by: one });
  }
  return last;
}

/** Return the nodes of an output as it is at the end of the path; `last` is from `lastContents`. */
function shownOutput(each, one, last) {
  const { content, by } = last.get(each.display) ?? { content: each, by: null };
  const note = by ? make('p', { class: 'facts' }, `updated by ${by.id.endsWith('.1') ? by.statement : by.id}`) : null;
  return [output(content, one.statement), ...(note ? [note] : [])];
}

function cell(one, last = new Map()) {
  const facts = [one.author, one.status, seconds(one.ms), time(one.at)];
  if (one.tokens) facts.push(`projection ~${one.tokens.toLocaleString('en')} tokens`);
  if (one.name) facts.push(`named ${one.name}`);
  const changes = one.changes.map(change => [change.name, change.how, change.before, change.after]);
  return make('article', { class: 'cell', id: anchor(one.id), 'aria-label': `statement ${one.statement}`, 'data-run': one.id },
    make('h3', {}, one.id.endsWith('.1') ? one.statement : one.id),
    make('p', { class: `facts${one.status === 'ok' ? '' : ' bad'}` }, facts.join(' · ')),
    make('pre', {}, one.source),
    ...one.outputs.flatMap(each => shownOutput(each, one, last)),
    one.sweep ? sweep(one.sweep) : null,
    one.error ? make('pre', { class: 'output stderr' }, one.error) : null,
    ...one.notices.map(text => make('p', { class: 'note' }, text)),
    comparison(one),
    changes.length ? make('details', {}, make('summary', {}, `${changes.length} changed: ${one.changes.map(change => change.name).slice(0, 8).join(', ')}`),
      table('changes of variables', ['name', 'how', 'before', 'after'], changes)) : null,
    one.files.length ? make('p', { class: 'facts' }, `wrote ${one.files.join(', ')}`) : null);
}

/** Return the notebook along a branch: its cells in the order of the file, then what the file does not have. */
function notebookOf(path, isHead) {
  const newest = new Map();
  for (const one of path) newest.set(one.cell || one.id, one);
  const last = lastContents(path);
  const shown = new Set();
  const made = [];
  for (const each of isHead ? data.notebook : []) {
    if (each.type === 'markdown') {
      made.push(make('div', { class: 'words' }, each.source));
    } else if (newest.has(each.cell)) {
      shown.add(each.cell);
      made.push(cell(newest.get(each.cell), last));
    } else if (each.source.trim()) {
      made.push(make('article', { class: 'cell', 'aria-label': 'cell that did not run' },
        make('p', { class: 'facts' }, 'did not run on this branch'), make('pre', {}, each.source)));
    }
  }
  for (const [key, one] of newest) {
    if (!shown.has(key) && !(one.kind === 'meta' && one.source.startsWith('%ctx') && !one.outputs.length)) made.push(cell(one, last));
  }
  return made;
}

const textOf = one => [one.statement, one.source, one.error, ...[...one.outputs, ...one.updates].map(each => each.text), ...one.changes.map(change => `${change.name} ${change.after || ''}`)].join('\n').toLowerCase();
const texts = new Map();
const notebook = document.getElementById('notebook');
const side = document.getElementById('side');
const branch = document.getElementById('branch');
const words = document.getElementById('words');
let rows = [];

function showTimeline() {
  const list = make('ol', { class: 'rows' });
  rows = data.executions.map(one => {
    const link = make('a', { href: `#${anchor(one.id)}` }, one.id.endsWith('.1') ? one.statement : one.id);
    link.addEventListener('click', () => choose(one.id));
    const state = [one.status === 'ok' ? '' : one.status, one.author === 'human' ? '' : one.author,
      one.comparison && one.comparison.rows.length ? 'differs' : '', one.id === data.head ? 'HEAD' : ''].filter(Boolean).join(', ');
    const row = make('li', { 'data-run': one.id }, link, make('span', {}, firstLine(one.source)), make('span', {}, `${state} ${seconds(one.ms)}`.trim()));
    list.append(row);
    return row;
  });
  side.append(make('section', { 'aria-labelledby': 'h-timeline' }, make('h2', { id: 'h-timeline' }, `Timeline (${data.executions.length})`), list));
}

function showComparisons() {
  const found = data.executions.filter(one => one.comparison);
  if (!found.length && !data.differences.length) return;
  const section = make('section', { 'aria-labelledby': 'h-compare' }, make('h2', { id: 'h-compare' }, 'Comparisons'));
  for (const each of data.differences) {
    section.append(make('details', {}, make('summary', {}, `the branch that ends at ${each.leaf}, and HEAD`), make('pre', {}, each.text)));
  }
  for (const one of found) section.append(make('details', {}, make('summary', {}, `${one.id} and ${one.comparison.against}: ${one.comparison.same ? 'the same' : 'different'}`), comparison(one)));
  side.append(section);
}

function showProjection() {
  const found = data.projection;
  if (!found) return;
  const section = make('section', { 'aria-labelledby': 'h-projection' }, make('h2', { id: 'h-projection' }, 'Projection'),
    make('p', { class: 'facts' }, `what ${found.model || 'the model'} would be sent after the newest statement: ~${found.tokens.toLocaleString('en')} of ${found.budget.toLocaleString('en')} tokens, ${found.cost}; checks ${found.ok ? 'passed' : 'failed'}`));
  for (const block of found.blocks) {
    section.append(make('details', {},
      make('summary', {}, `${block.id} · ${block.role} · ~${block.tokens.toLocaleString('en')} tokens${block.cached ? ' · cached' : ''}`),
      make('p', { class: 'why' }, block.why), make('pre', {}, block.text)));
  }
  if (found.left_out.length) section.append(table('left out', ['what', 'why'], found.left_out.map(one => [one.id, one.why])));
  side.append(section);
}

function showBranch() {
  const path = pathTo(branch.value);
  const isHead = path.some(one => one.id === data.head);
  const on = new Set(path.map(one => one.id));
  notebook.replaceChildren(notebook.firstElementChild, ...notebookOf(path, isHead));
  for (const row of rows) row.classList.toggle('here', on.has(row.dataset.run));
  search();
}

/** Show the branch that an execution is on. */
function choose(id) {
  if (document.getElementById(anchor(id))) return;
  const leaf = [...data.branches].reverse().find(one => pathTo(one.leaf).some(each => each.id === id));
  if (leaf && leaf.leaf !== branch.value) {
    branch.value = leaf.leaf;
    showBranch();
  }
  if (!document.getElementById(anchor(id)) && byId.has(id)) {
    notebook.append(make('h3', {}, 'An execution that is not the newest of its cell'), cell(byId.get(id)));
  }
}

function search() {
  const wanted = words.value.trim().toLowerCase();
  const hits = new Set();
  for (const one of data.executions) {
    if (!texts.has(one.id)) texts.set(one.id, textOf(one));
    if (!wanted || texts.get(one.id).includes(wanted)) hits.add(one.id);
  }
  for (const row of rows) row.hidden = !hits.has(row.dataset.run);
  for (const one of notebook.querySelectorAll('.cell, .words')) {
    const run = one.dataset.run;
    one.hidden = wanted !== '' && !(run ? hits.has(run) : one.textContent.toLowerCase().includes(wanted));
  }
  document.getElementById('found').textContent = wanted ? `${hits.size} of ${data.executions.length} statements` : '';
}

function start() {
  const facts = [`session ${data.session}`, `${data.executions.length} executions`, `${data.branches.length} ${data.branches.length === 1 ? 'branch' : 'branches'}`, `saved ${data.exported}`, `ctxkernel ${data.version}`];
  document.getElementById('facts').textContent = facts.join(' · ');
  if (data.left_out.length) {
    document.querySelector('header').append(make('details', {}, make('summary', {}, `Left out or cut: ${data.left_out.length}`),
      make('ul', {}, ...data.left_out.map(text => make('li', {}, text)))));
  }
  for (const one of data.branches) {
    const last = byId.get(one.leaf);
    branch.append(make('option', { value: one.leaf, selected: one.head }, `${one.head ? 'HEAD, ' : ''}ends at ${one.leaf}${last ? `: ${firstLine(last.source).slice(0, 40)}` : ''}`));
  }
  if (data.head && !data.branches.some(one => one.leaf === data.head)) branch.prepend(make('option', { value: data.head, selected: true }, `HEAD, at ${data.head}`));
  showTimeline();
  showComparisons();
  showProjection();
  showBranch();
  branch.addEventListener('change', showBranch);
  words.addEventListener('input', search);
  document.getElementById('search').addEventListener('submit', event => event.preventDefault());
  const open = () => location.hash.startsWith('#e-') && (choose(location.hash.slice(3)), document.getElementById(location.hash.slice(1))?.scrollIntoView());
  addEventListener('hashchange', open);
  open();
}

start();

export { start as default };
