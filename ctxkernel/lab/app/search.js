/** The search over the whole session: one field, some filters; the kernel looks, the timeline shows what was found. */

import { askKernel } from './askkernel.js';
import { h } from './elements.js';
import { icon } from './icons.js';
import { keyOf } from './rownames.js';
import { pathTo } from './tree.js';
import { count } from './values.js';

/** @import {SearchRequest} from '../messages.js' */
/** @import {View} from './view.js' */
/** @import {Entry} from './tree.js' */

/** The kernel is asked when typing has paused this long. */
const TYPED_MS = 150;
/** Words of the field that are filters: `name:df`. */
const FIELDS = /** @type {const} */ (['name', 'author', 'status', 'verdict', 'branch']);
/** Filters that the list offers, as the words that a person could type. @type {[string, string][]} */
const OFFERED = [
  ['', 'All'],
  ['author:human', 'By you'],
  ['author:model', 'By the model'],
  ['status:error', 'Failed'],
  ['status:cancelled', 'Interrupted'],
  ['verdict:differs', 'Came out differently'],
  ['branch:head', 'On this branch'],
  ['branch:other', 'On other branches']
];

/** What was typed, as a request. @param {string} typed */
function requestOf(typed) {
  /** @type {Omit<SearchRequest, 'type' | 'id'>} */
  const request = {};
  const rest = typed.replace(/(\w+):(\S+)/g, (word, field, value) => {
    const name = FIELDS.find((one) => one === field);
    if (!name) return word;
    request[name] = value;
    return '';
  });
  const text = rest.replace(/\s+/g, ' ').trim().slice(0, 500);
  return text ? { ...request, text } : request;
}

/** How to search. */
const FILTERS =
  'Words of source and output. Filters: name:df (df was changed; * is any text), author:human|model, status:error, verdict:differs, branch:s12|head|other';

class SearchBar {
  /** @param {View} view @param {() => void} changed draw what was found */
  constructor(view, changed) {
    this.view = view;
    this.changed = changed;
    /** Executions that were found, oldest first; null: nothing is looked for. @type {readonly string[] | null} */
    this.found = null;
    /** Whether something was looked for, and nothing was found. */
    this.isVain = false;
    /** The newest question. */
    this.turn = {};
    /** @type {number | undefined} */
    this.wait = undefined;
    this.input = h('input', {
      class: 'ctxk-input',
      type: 'search',
      'aria-label': 'Search the timeline',
      placeholder: 'Search: text, name:df …',
      title: FILTERS,
      spellcheck: 'false',
      maxlength: '400'
    });
    this.filter = h(
      'select',
      { class: 'ctxk-select', 'aria-label': 'Show only', title: 'Show only' },
      OFFERED.map(([value, text]) => h('option', { value }, text))
    );
    this.told = h('span', { class: 'ctxk-foundtold ctxk-muted', role: 'status' });
    this.el = h('div', { class: 'ctxk-search' }, icon('search'), this.input, this.filter, this.told);
    this.input.addEventListener('input', () => this.later());
    this.filter.addEventListener('change', () => void this.look());
    this.input.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && (this.found || this.input.value)) {
        event.stopPropagation();
        this.clear();
        this.changed();
      } else if (event.key === 'Enter') void this.look();
    });
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  /** Look for nothing. */
  clear() {
    clearTimeout(this.wait);
    this.turn = {};
    this.input.value = '';
    this.filter.value = '';
    this.found = null;
    this.isVain = false;
    this.told.textContent = '';
  }

  later() {
    clearTimeout(this.wait);
    this.wait = setTimeout(() => void this.look(), TYPED_MS);
  }

  /** Ask the kernel, and show what it finds. */
  async look() {
    clearTimeout(this.wait);
    const request = requestOf(`${this.input.value} ${this.filter.value}`);
    const turn = (this.turn = {});
    if (!Object.keys(request).length) {
      const was = this.found;
      this.found = null;
      this.isVain = false;
      this.told.textContent = '';
      if (was) this.changed();
      return;
    }
    const answer = await askKernel(this.view.actions.ask, 'search', request);
    if (this.turn !== turn) return;
    const found = 'search' in answer ? answer.search : null;
    this.found = found?.runs ?? [];
    this.isVain = found?.total === 0;
    const all = found && found.total > found.runs.length ? `newest ${count(found.runs.length)} of ` : '';
    this.told.textContent = found ? `${all}${count(found.total)} found` : answer.error || 'The kernel gave no answer.';
    this.changed();
  }

  /** What was found, as entries of the timeline. @param {View} view @returns {Entry[]} */
  entries(view) {
    const path = new Set(pathTo(view.tree, view.headKnown).map((node) => node.key));
    return (this.found ?? []).flatMap((key) => {
      const row = view.rows.get(key);
      if (!row) return [];
      const place = path.has(key) ? /** @type {const} */ ('path') : /** @type {const} */ ('branch');
      return [{ kind: /** @type {const} */ ('row'), key: keyOf(row), row, place, depth: 0, head: view.head === key }];
    });
  }
}

export { FILTERS, SearchBar, requestOf };
