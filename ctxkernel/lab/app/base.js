/**
 * The small things that every part of the panel is made of: elements, texts, numbers for people, icons.
 *
 * Rule 1: every text is untrusted (cells, reprs, exceptions, models). It enters the page as a text node or as the
 *         `title` property, never as HTML, never as an attribute that does something.
 * Rule 2: it imports nothing: the output of a handle brings it along.
 */

/** @import {Answers, Ask, Child, Requests} from '../types.js' */
/** @import {Row, HandleFacts} from '../messages.js' */

/**
 * What a row is told apart by; kernels that do not tell executions run each statement once.
 * @typedef {Partial<Pick<Row, 'execution_id' | 'statement_id' | 'index'>>} Named
 */

/**
 * Make an element. Strings become text nodes; `on*` keys are listeners; the rest of `props` are attributes of OUR making.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'class') el.className = value;
    else if (key === 'title') el.title = clean(value);
    else if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
    else el.setAttribute(key, value === true ? '' : String(value));
  }
  put(el, ...children);
  return el;
}

/**
 * Append children; nothing for null, undefined and false.
 * @template {Node & ParentNode} T
 * @param {T} el
 * @param {...Child} children
 */
function put(el, ...children) {
  for (const child of /** @type {any[]} */ (children).flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    el.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return el;
}

// ESC sequences: CSI, OSC up to their terminator, and two-byte ones. An OSC without an end hides no more than its start.
const ANSI = /[\x1b\x9b](?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)|[ -/]*[0-~])?/g;

// Characters that are not seen or that reorder their line, as in core/text.py: code would read otherwise than it runs.
const EMOJI = '\\ufe0f\\u00a9\\u00ae\\u203c-\\u3299\\u{1f000}-\\u{1faff}';
const HIDDEN = new RegExp(
  '\\r(?!\\n)|[\\u034f\\u17b4\\u17b5\\u180b-\\u180f\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u00ad\\u061c\\u115f\\u1160' +
    '\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\u{d800}-\\u{dfff}' +
    `\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]|(?<![${EMOJI}])\\u200d|(?<![${EMOJI}\\d#*])[\\ufe00-\\ufe0f]`,
  'gu'
);
/** Most texts: they are shown as they are, at little cost. */
const PLAIN = /^[\t\n\x20-\x7e]*$/;
/** Hidden characters at which Python or IPython begins another line. */
const BREAKS = new Set('\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029');

/**
 * A value of a message or of a saved output as text: any JSON may stand where a text is meant.
 * @param {unknown} value
 */
function textOf(value) {
  if (typeof value === 'string') return value;
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** @param {string} char */
const codePoint = (char) => (char.codePointAt(0) ?? 0).toString(16);

/**
 * Code, or any text, with each character that is not seen as a mark such as `⟨U+202E⟩`: nothing is left out of it.
 * @param {unknown} value
 */
function marked(value) {
  const text = textOf(value);
  if (PLAIN.test(text)) return text;
  return text
    .replace(/\r\n/g, '\n')
    .replace(HIDDEN, (char) => `⟨U+${codePoint(char).toUpperCase().padStart(4, '0')}⟩${BREAKS.has(char) ? '\n' : ''}`);
}

/**
 * Python code with these characters as escapes (`\u202e`), or as line breaks where they are some.
 * @param {unknown} value
 */
function escaped(value) {
  return textOf(value).replace(/\r\n/g, '\n').replace(HIDDEN, (char) => {
    const digits = codePoint(char);
    if (BREAKS.has(char)) return '\n';
    return digits.length > 4 ? `\\U${digits.padStart(8, '0')}` : `\\u${digits.padStart(4, '0')}`;
  });
}

/**
 * What a cell printed, as it may be shown: no terminal codes; of a line that was overwritten, its last state. Code is
 * `marked` instead: here, text disappears.
 * @param {unknown} value
 */
function clean(value) {
  const text = textOf(value);
  if (PLAIN.test(text)) return text;
  return marked(
    text
      .replace(ANSI, '')
      .replace(/\r+\n/g, '\n')
      .replace(/^.*\r(?=[^\n])/gm, '')
  );
}

/** @template T @param {readonly T[] | null | undefined} value @returns {readonly T[]} */
const list = (value) => (Array.isArray(value) ? value : []);
/** @template {object} T @param {T | null | undefined} value @returns {Partial<T>} */
const dict = (value) => (value && typeof value === 'object' && !Array.isArray(value) ? value : {});
/** @param {unknown} value */
const number = (value) => (typeof value === 'number' && Number.isFinite(value) ? value : null);
const integer = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
/** @param {unknown} value */
const count = (value) => integer.format(number(value) ?? 0);
/** @param {number} n @param {string} one @param {string} [many] */
const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/**
 * Milliseconds for people: `0.4 ms`, `120 ms`, `1.24 s`, `2 m 05 s`, `1 h 02 m`.
 * @param {unknown} value
 */
function duration(value) {
  const ms = number(value);
  if (ms === null) return '';
  if (ms < 1) return '<1 ms';
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9995) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 59950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} m ${String(s % 60).padStart(2, '0')} s`;
  return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, '0')} m`;
}

/** Bytes for people. @param {unknown} value */
function bytes(value) {
  let n = number(value);
  if (n === null) return '';
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) {
    n /= 1000;
    i += 1;
  }
  return `${i && n < 9.95 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

/** A time of day, in the reader's zone. @param {unknown} value Unix time */
function clock(value) {
  const unix = number(value);
  return unix === null ? '' : new Date(unix * 1000).toLocaleTimeString([], { hour12: false });
}

/** @satisfies {Record<string, string[]>} */
const ICONS = {
  human: ['M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6Z', 'M2.5 14a5.5 5.5 0 0 1 11 0Z'],
  agent: ['M7.25 1.5h1.5V4H13v9H3V4h4.25Zm-2.75 4v6h7v-6Zm1.5 1.75h1.5v2H6Zm2.5 0H10v2H8.5Z'],
  model: [
    'M8 1l1.6 4.4L14 7l-4.4 1.6L8 13 6.4 8.6 2 7l4.4-1.6Z',
    'M13 11l.7 1.8 1.8.7-1.8.7L13 16l-.7-1.8-1.8-.7 1.8-.7Z'
  ],
  panel: ['M2 2h12v12H2Zm1.5 1.5v9h5v-9Zm6.5 0v9h2.5v-9Z'],
  kernel: [
    'M5 1.5h1.3v1.8h3.4V1.5H11v1.8h1.7V5h1.8v1.3h-1.8v3.4h1.8V11h-1.8v1.7H11v1.8H9.7v-1.8H6.3v1.8H5v-1.8H3.3V11H1.5V9.7h1.8V6.3H1.5V5h1.8V3.3H5Z'
  ],
  redact: ['M2 3.6h12v1.3H2Zm0 3h12v2.8H2Zm0 4.5h7v1.3H2Z'],
  fold: ['M7.3 1.5h1.4v3l1.6-1.5.9 1L8 6.9 4.8 4l.9-1 1.6 1.5Zm0 13h1.4v-3l1.6 1.5.9-1L8 9.1 4.8 12l.9 1 1.6-1.5Z'],
  chevron: ['M6 4l4 4-4 4V4Z'],
  pin: ['M5 1.5h6v1.4l-1 .8v3.6l2 2v1.4H8.7V15h-1.4v-4.3H4V9.3l2-2V3.7l-1-.8Z'],
  search: ['M6.7 1.8a4.9 4.9 0 1 0 3 8.8l3.3 3.3 1-1-3.3-3.3a4.9 4.9 0 0 0-4-7.8Zm0 1.4a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7Z'],
  close: ['M3.4 2.4 8 7l4.6-4.6 1 1L9 8l4.6 4.6-1 1L8 9l-4.6 4.6-1-1L7 8 2.4 3.4Z'],
  more: [
    'M3.2 6.7a1.3 1.3 0 1 0 0 2.6 1.3 1.3 0 0 0 0-2.6Zm4.8 0a1.3 1.3 0 1 0 0 2.6 1.3 1.3 0 0 0 0-2.6Zm4.8 0a1.3 1.3 0 1 0 0 2.6 1.3 1.3 0 0 0 0-2.6Z'
  ],
  undo: ['M6.2 2.2 2 6.4l4.2 4.2 1-1-2.5-2.5h4.6a2.7 2.7 0 0 1 0 5.4H6V14h3.3a4.2 4.2 0 0 0 0-8.4H4.7l2.5-2.4Z'],
  fork: [
    'M4 1.6a1.9 1.9 0 0 0-.7 3.7v5.4a1.9 1.9 0 1 0 1.4 0V9.2c.5.3 1.2.4 2 .4h1.6c1.6 0 2.5-.7 2.7-2.3a1.9 1.9 0 1 0-1.4 0c-.1.7-.5.9-1.3.9H6.7c-1.3 0-2-.6-2-1.6V5.3A1.9 1.9 0 0 0 4 1.6Z'
  ],
  play: ['M4.5 3 13 8l-8.5 5Z'],
  flag: ['M3.4 1.6h1.3v.8h7.5l-1.7 3.1 1.7 3.1H4.7v5.8H3.4Z'],
  durable: ['M8 5.4a2.6 2.6 0 1 0 0 5.2 2.6 2.6 0 0 0 0-5.2Z'],
  partial: [
    'M8 4.2a3.8 3.8 0 1 0 0 7.6 3.8 3.8 0 0 0 0-7.6Zm0 1.3a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5Z',
    'M8 5.5a2.5 2.5 0 0 1 0 5Z'
  ],
  thinned: ['M8 4.2a3.8 3.8 0 1 0 0 7.6 3.8 3.8 0 0 0 0-7.6Zm0 1.3a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5Z'],
  writing: ['M8 3.6a4.4 4.4 0 1 0 4.4 4.4h-1.5A2.9 2.9 0 1 1 8 5.1Z'],
  skipped: ['M4.6 7.3h6.8v1.4H4.6Z'],
  damaged: ['M8 2.6 14.2 13.4H1.8Zm-.7 4v3.3h1.4V6.6Zm0 4.2v1.4h1.4v-1.4Z']
};

/** @typedef {keyof typeof ICONS} Icon */

/** Icons that were made: a copy costs less than a new one. @type {Map<Icon, SVGSVGElement>} */
const made = new Map();

/** @param {Icon} name */
function makeIcon(name) {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', `ctxk-icon ctxk-icon-${name}`);
  for (const d of ICONS[name]) {
    const path = document.createElementNS(ns, 'path');
    path.setAttribute('d', d);
    svg.append(path);
  }
  made.set(name, svg);
  return svg;
}

/** @param {Icon} name @param {string} [label] */
function icon(name, label) {
  const svg = /** @type {SVGSVGElement} */ ((made.get(name) ?? makeIcon(name)).cloneNode(true));
  if (label) {
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', label);
    const title = document.createElementNS('http://www.w3.org/2000/svg', 'title');
    title.textContent = label;
    svg.prepend(title);
  } else {
    svg.setAttribute('aria-hidden', 'true');
  }
  return svg;
}

const AUTHORS = { human: 'you', model: 'the model', agent: 'an agent', panel: 'the panel', kernel: 'the kernel' };

const STATUSES = {
  ok: ['✓', 'ok'],
  error: ['✕', 'error'],
  cancelled: ['■', 'cancelled'],
  timeout: ['◷', 'timeout'],
  running: ['●', 'running']
};

/** @param {Partial<Row>} row */
const statusOf = (row) => (row.status && row.status in STATUSES ? row.status : 'ok');

/** @param {string} kind @param {string} glyph @param {string} text @param {string} [title] */
function badge(kind, glyph, text, title) {
  return h(
    'span',
    { class: `ctxk-badge ctxk-is-${kind}`, title },
    glyph && h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph),
    text
  );
}

/**
 * The first line of code that is not blank and not only a comment or a magic's name, if there is one.
 * @param {unknown} source
 */
function headline(source) {
  const lines = marked(source)
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);
  return lines.find((line) => !line.startsWith('#')) ?? lines[0] ?? '(empty)';
}

/**
 * The run of a statement that a row is about: `s3.2`. Kernels that say no executions run each statement once.
 * @param {Named | null | undefined} row
 */
const keyOf = (row) => clean(row?.execution_id ?? `${row?.statement_id ?? '?'}.1`);

/**
 * What a reader calls a row: its statement, and from the second run on which run of it.
 * @param {Named | null | undefined} row
 */
function label(row) {
  const statement = clean(row?.statement_id ?? (number(row?.index) !== null ? `s${row?.index}` : '?'));
  const run = keyOf(row);
  return run.endsWith('.1') ? statement : run;
}

/** @param {Element} el */
const atBottom = (el) => el.scrollHeight - el.scrollTop - el.clientHeight < 24;

/** @param {() => void} job */
const whenIdle = (job) =>
  'requestIdleCallback' in window ? requestIdleCallback(job, { timeout: 300 }) : setTimeout(job, 16);
/** @param {number | undefined} id */
const cancelIdle = (id) => {
  if (id === undefined) return;
  if ('cancelIdleCallback' in window) cancelIdleCallback(id);
  else clearTimeout(id);
};

/** @param {number} share @param {string} kind */
function bar(share, kind) {
  const inner = h('span', { class: 'ctxk-barfill' });
  inner.style.width = `${Math.max(0, Math.min(100, 100 * share)).toFixed(1)}%`;
  return h('span', { class: `ctxk-bar ctxk-bar-${kind}`, 'aria-hidden': 'true' }, inner);
}

/** @param {Child} text */
const pre = (text) => h('pre', { class: 'ctxk-pre' }, text);

/**
 * The element that a selector finds: all of ours are HTML elements.
 * @param {ParentNode} root @param {string} selector
 */
const find = (root, selector) => /** @type {HTMLElement | null} */ (root.querySelector(selector));

/** @param {ParentNode} root @param {string} selector */
const findAll = (root, selector) => /** @type {HTMLElement[]} */ ([...root.querySelectorAll(selector)]);

/** Longest text that is drawn whole before the reader asks for the rest. */
const FOLDED_CHARS = 700;
const FOLDED_LINES = 10;

/**
 * A text, folded where it is long. `open` has the keys of those that the reader opened.
 * @param {Set<string>} open
 * @param {string} key
 * @param {unknown} raw
 */
function foldedText(open, key, raw) {
  const text = clean(raw);
  const long = text.length > FOLDED_CHARS || text.split('\n').length > FOLDED_LINES;
  const body = pre('');
  const more = h('button', { class: 'ctxk-link ctxk-showall', type: 'button' });
  const draw = () => {
    const all = !long || open.has(key);
    body.textContent = all ? text : text.slice(0, FOLDED_CHARS);
    body.classList.toggle('ctxk-clamped', !all);
    more.textContent = all ? 'less' : 'show all';
    more.setAttribute('aria-expanded', String(all));
  };
  more.addEventListener('click', () => {
    open[open.has(key) ? 'delete' : 'add'](key);
    draw();
  });
  draw();
  return text ? [body, long && more] : [];
}

/**
 * The picture that a model is shown, as it is sent: a PNG or JPEG in base64. Null for anything else.
 * @param {HandleFacts['picture'] | undefined} source
 */
function pictureOf(source) {
  const { media_type: type, data } = dict(source);
  if (!type || !['image/png', 'image/jpeg', 'image/webp', 'image/gif'].includes(type) || !/^[A-Za-z0-9+/=]+$/.test(data ?? '')) return null;
  return h('img', { class: 'ctxk-picture', alt: 'The picture that a model is shown', src: `data:${type};base64,${data}` });
}

/**
 * A part that opens. `open` has the keys of those that are; `fill` makes what is inside when it is first looked at.
 * @param {Set<string>} open
 * @param {string} key
 * @param {string} title
 * @param {(box: HTMLElement) => Child} fill
 */
function foldable(open, key, title, fill) {
  const box = h('div', { class: 'ctxk-folded' });
  const fold = h('details', { class: 'ctxk-fold' }, h('summary', { 'data-keep': key }, title), box);
  fold.open = open.has(key);
  const draw = () => {
    open[fold.open ? 'add' : 'delete'](key);
    if (fold.open && !box.childElementCount) put(box, fill(box));
  };
  fold.addEventListener('toggle', draw);
  draw();
  return fold;
}

/**
 * Scroll `section` so that `el` stands in its middle. Not scrollIntoView: that may scroll what the panel stands in, too.
 * @param {Element} section
 * @param {Element} el
 */
function bringToMiddle(section, el) {
  const [at, seen] = [el.getBoundingClientRect(), section.getBoundingClientRect()];
  section.scrollTop += at.top - seen.top - Math.max(0, (seen.height - at.height) / 2);
}

/**
 * What a response, or an ask, has cost: `4,120 tokens · $0.0041`.
 * @param {{tokens?: number | null, usd?: number | null}} row
 */
function spentTold(row) {
  const [tokens, usd] = [number(row.tokens), number(row.usd)];
  return [tokens ? `${count(tokens)} tokens` : '', usd === null ? '' : `$${usd.toFixed(usd < 1 ? 4 : 2)}`]
    .filter(Boolean)
    .join(' · ');
}

/**
 * Ask the kernel, where the host can. The answer never fails: where there is none, `error` says why.
 * @template {keyof Requests} Type
 * @param {Ask | undefined} ask
 * @param {Type} type
 * @param {Requests[Type]} request
 * @returns {Promise<Answers[Type] | {error: string}>}
 */
async function askKernel(ask, type, request) {
  if (!ask) return { error: 'This panel cannot ask the kernel.' };
  try {
    return await ask(type, request);
  } catch (error) {
    return { error: `The kernel did not answer: ${reasonOf(error)}` };
  }
}

/** What an error says. @param {unknown} error */
const reasonOf = (error) => (error instanceof Error ? error.message : String(error));

/** Draw the eye to an element. @param {HTMLElement} el */
function flash(el) {
  el.classList.remove('ctxk-flash');
  void el.offsetWidth; // so that it begins anew
  el.classList.add('ctxk-flash');
}

/**
 * The run, or else the statement, that an id of the model's history belongs to: `s3.1` of `s3.1:4~result`.
 * @param {unknown} id
 */
const runOf = (id) => clean(id).split(/[:~#]/)[0];

/**
 * A text as one word of a `%ctx` line: what a person types comes through unchanged, but for its line breaks.
 *
 * The kernel splits the line as a shell would; before that IPython fills in `{name}` and `$name`, which must not happen
 * to a text. `$$` stands for `$` only where an even number of `'` follows before the next brace, or the end.
 * @param {unknown} text
 */
function quoted(text) {
  const line = clean(text).replace(/\s+/g, ' ').trim();
  // What begins with a dash would be read as an option.
  const word = `${line.startsWith('-') ? ' ' : ''}${line.replace(/["\\]/g, '\\$&')}`;
  const filled = word
    .split(/(?<=[{}])/)
    .map((part) =>
      part
        .replace(/\$(?=[\p{L}\p{N}_.])/gu, (sign, at) => (part.slice(at).split("'").length % 2 ? '$$' : sign))
        .replace(/[{}]$/, '$&$&')
    )
    .join('');
  return `"${filled}"`;
}

/** @param {readonly (readonly any[])[]} pairs names and values */
function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== '');
  return shown.length
    ? h(
        'dl',
        { class: 'ctxk-facts' },
        shown.map(([k, v]) =>
          h('div', null, h('dt', null, k), h('dd', null, typeof v === 'object' ? JSON.stringify(v) : v))
        )
      )
    : null;
}

/** @param {string} title @param {string} [text] @param {string} [code] */
function emptyState(title, text, code) {
  return h(
    'div',
    { class: 'ctxk-empty' },
    h('strong', null, title),
    text && h('p', null, text),
    code && codeLine(code)
  );
}

/** A line to run, with a button that copies it. @param {string} code */
function codeLine(code) {
  const copy = h('button', { class: 'ctxk-link', type: 'button', title: 'Copy this line' }, 'copy');
  copy.addEventListener('click', async () => {
    copy.textContent = (await copyText(code)) ? 'copied' : 'not allowed';
    setTimeout(() => (copy.textContent = 'copy'), 2000);
  });
  return h('div', { class: 'ctxk-codeline' }, h('code', null, code), copy);
}

/** @param {string} text */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** @param {Child} text */
const heading = (text) => h('h4', { class: 'ctxk-h' }, text);

export {
  askKernel,
  reasonOf,
  find,
  findAll,
  h,
  put,
  clean,
  marked,
  escaped,
  textOf,
  list,
  dict,
  number,
  count,
  plural,
  duration,
  bytes,
  clock,
  icon,
  AUTHORS,
  STATUSES,
  statusOf,
  badge,
  headline,
  keyOf,
  label,
  atBottom,
  whenIdle,
  cancelIdle,
  bar,
  pre,
  foldedText,
  pictureOf,
  foldable,
  bringToMiddle,
  spentTold,
  flash,
  runOf,
  quoted,
  facts,
  emptyState,
  codeLine,
  copyText,
  heading
};
