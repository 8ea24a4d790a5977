/**
 * The renderer of the panel: draws what the kernel sends (docs/panel-protocol.md), knows nothing of JupyterLab.
 *
 * Rule 1: every text is untrusted (cells, reprs, exceptions, models). It enters the page as a text node or as the
 *         `title` property, never as HTML, never as an attribute that does something.
 * Rule 2: no imports: the same file is the `_esm` of the inline widget (`%ctx panel`), which must be self-contained.
 * Rule 3: a missing or odd field is drawn as nothing; a fault in one section never takes the others down.
 * Rule 4: only the visible section is drawn; the others are marked stale and drawn when they come to the front.
 */

/** The wire protocol that this file speaks. */
export const PROTOCOL = 1;

const TABS = /** @type {const} */ (['timeline', 'handles', 'projection', 'changes']);
const TAB_LABELS = { timeline: 'Timeline', handles: 'Handles', projection: 'Projection', changes: 'Changes' };

/** Rows that are drawn at once; older ones follow in idle time, so that a long session opens as fast as a short one. */
const FIRST_ROWS = 60;
const ROWS_A_STEP = 120;
/** Longest text of a block that is drawn before the reader asks for the rest. */
const BLOCK_CHARS = 700;
/** Change items that are kept; a day of work stays well below. */
const MAX_DELTAS = 2000;

/**
 * What the host (JupyterLab plugin or widget) can do for the renderer.
 * @typedef {object} Actions
 * @property {string} [version] the front end's version; without it there is no version handshake
 * @property {(cellId: string) => Promise<boolean>} [goto] scroll the notebook to a cell; false where it has none of that id
 * @property {() => void} [reconnect]
 * @property {() => void} [close]
 * @property {string} [tab] the section to start with
 * @property {(tab: string) => void} [onTab]
 * @property {(mark: {statement_id: string, ended_at: number | null}) => void} [painted] a turn is on the screen
 */

/* ---------------------------------------------------------------- small things */

/**
 * Make an element. Strings become text nodes; `on*` keys are listeners; the rest of `props` are attributes of OUR making.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...any} children
 * @returns {any}
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

/** Append children; nothing for null, undefined and false. */
function put(el, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    el.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return el;
}

// ESC sequences: CSI, OSC and other strings up to their terminator, and two-byte ones.
const ANSI = /[\x1b\x9b](?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)|[ -/]*[0-~])?/g;
// Other control characters, and the bidirectional ones that make code read otherwise than it runs.
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff]/g;

/** Text as it may be shown: no terminal codes, no invisible tricks; of a line that was overwritten, its last state. */
export function clean(value) {
  if (value === null || value === undefined) return '';
  const text = typeof value === 'string' ? value : String(value);
  return text
    .replace(ANSI, '')
    .replace(/\r+\n/g, '\n')
    .replace(/^.*\r(?=[^\n])/gm, '')
    .replace(CONTROL, '\ufffd');
}

const list = (value) => (Array.isArray(value) ? value : []);
const dict = (value) => (value && typeof value === 'object' && !Array.isArray(value) ? value : {});
const number = (value) => (typeof value === 'number' && Number.isFinite(value) ? value : null);
const integer = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const count = (value) => integer.format(number(value) ?? 0);
const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** Milliseconds for people: `0.4 ms`, `120 ms`, `1.24 s`, `2 m 05 s`, `1 h 02 m`. */
export function duration(ms) {
  if (number(ms) === null) return '';
  if (ms < 1) return '<1 ms';
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9995) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 59950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} m ${String(s % 60).padStart(2, '0')} s`;
  return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, '0')} m`;
}

/** Bytes for people. */
function bytes(n) {
  if (number(n) === null) return '';
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) {
    n /= 1000;
    i += 1;
  }
  return `${i && n < 9.95 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

/** A time of day, in the reader's zone. */
function clock(unix) {
  if (number(unix) === null) return '';
  return new Date(unix * 1000).toLocaleTimeString([], { hour12: false });
}

const ICONS = {
  human: ['M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6Z', 'M2.5 14a5.5 5.5 0 0 1 11 0Z'],
  model: [
    'M8 1l1.6 4.4L14 7l-4.4 1.6L8 13 6.4 8.6 2 7l4.4-1.6Z',
    'M13 11l.7 1.8 1.8.7-1.8.7L13 16l-.7-1.8-1.8-.7 1.8-.7Z'
  ],
  panel: ['M2 2h12v12H2Zm1.5 1.5v9h5v-9Zm6.5 0v9h2.5v-9Z'],
  chevron: ['M6 4l4 4-4 4V4Z'],
  pin: ['M5 1.5h6v1.4l-1 .8v3.6l2 2v1.4H8.7V15h-1.4v-4.3H4V9.3l2-2V3.7l-1-.8Z'],
  close: ['M3.4 2.4 8 7l4.6-4.6 1 1L9 8l4.6 4.6-1 1L8 9l-4.6 4.6-1-1L7 8 2.4 3.4Z']
};

/** @param {keyof typeof ICONS} name */
function icon(name, label) {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', `ctxk-icon ctxk-icon-${name}`);
  if (label) {
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', label);
    const title = document.createElementNS(ns, 'title');
    title.textContent = label;
    svg.append(title);
  } else {
    svg.setAttribute('aria-hidden', 'true');
  }
  for (const d of ICONS[name]) {
    const path = document.createElementNS(ns, 'path');
    path.setAttribute('d', d);
    svg.append(path);
  }
  return svg;
}

const AUTHORS = { human: 'you', model: 'the model', panel: 'the panel' };
const STATUSES = {
  ok: ['✓', 'ok'],
  error: ['✕', 'error'],
  cancelled: ['■', 'cancelled'],
  timeout: ['◷', 'timeout'],
  running: ['●', 'running']
};
const statusOf = (row) => (row.status in STATUSES ? row.status : 'ok');

function badge(kind, glyph, text, title) {
  return h(
    'span',
    { class: `ctxk-badge ctxk-is-${kind}`, title },
    glyph && h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph),
    text
  );
}

/** The first line of code that is not blank and not only a comment or a magic's name, if there is one. */
function headline(source) {
  const lines = clean(source)
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);
  return lines.find((line) => !line.startsWith('#')) ?? lines[0] ?? '(empty)';
}

/** Split `1.2.3` for comparing; anything else sorts low. */
function newer(a, b) {
  const parts = (v) =>
    String(v)
      .split('.')
      .map((p) => parseInt(p, 10) || 0);
  const [x, y] = [parts(a), parts(b)];
  for (let i = 0; i < Math.max(x.length, y.length); i += 1) {
    if ((x[i] ?? 0) !== (y[i] ?? 0)) return (x[i] ?? 0) > (y[i] ?? 0);
  }
  return false;
}

/**
 * What to say where kernel and front end do not fit; null where they do.
 * @returns {{title: string, text: string, command: string} | null}
 */
export function mismatch(mine, theirs, protocol) {
  if (!mine || !theirs || (mine === theirs && protocol === PROTOCOL)) return null;
  const command = 'pip install -U jupyter-ctxkernel';
  const title = 'The panel and the kernel are of different versions';
  const both = `The panel (JupyterLab) has ${mine}, the kernel has ${theirs}`;
  const speak =
    protocol === PROTOCOL ? '' : `; they speak protocols ${PROTOCOL} and ${protocol}, so parts may be missing`;
  const where =
    mine === theirs
      ? 'in both environments, JupyterLab’s and the kernel’s, then restart the kernel and reload this page'
      : newer(theirs, mine)
        ? 'in the environment of JupyterLab, then reload this page'
        : 'in the environment of the kernel, then restart the kernel';
  return { title, text: `${both}${speak}. Run this ${where}:`, command };
}

/* ---------------------------------------------------------------- the view */

/**
 * Mount a panel for one notebook into `el`.
 *
 * Holds: messages may come in any order and at any rate; every method is cheap while its section is not in front.
 * @param {HTMLElement} el
 * @param {Actions} [actions]
 */
export function mount(el, actions = {}) {
  const view = new View(el, actions);
  return {
    snapshot: (msg) => view.snapshot(msg),
    begin: (msg) => view.begin(msg),
    turn: (msg) => view.turn(msg),
    notice: (msg) => view.notice(msg),
    /** Any message of the protocol. */
    message: (msg) => view.message(msg),
    /** What the kernel does, in Jupyter's words (`idle`, `busy`, `restarting`, `dead`, …). */
    kernelStatus: (status) => view.kernelStatus(status),
    /** How the connection stands; `null` when it is live. @type {(p: Phase | null) => void} */
    phase: (phase) => view.phase(phase),
    title: (text) => view.title(text),
    /** The panel came to the front: things that only work on a shown element are done again. */
    shown: () => view.shown(),
    /** The index of a statement that is known while the one before it is not; 0 where there is no such hole. */
    hole: () => view.hole(),
    isRunning: () => view.running !== null,
    dispose: () => view.dispose()
  };
}

/**
 * What the panel says where there is nothing live to show.
 * @typedef {object} Phase
 * @property {string} name for tests and styles
 * @property {'wait' | 'info' | 'warn' | 'error'} tone
 * @property {string} title
 * @property {string} [text]
 * @property {string} [code] a line to run
 * @property {string} [after] text after the code
 * @property {string} [button] label of the button that reconnects
 */

class View {
  constructor(el, actions) {
    this.actions = actions;
    /** @type {Map<string, any>} rows by statement, in the order of the timeline */
    this.rows = new Map();
    /** @type {Map<string, HTMLElement>} */
    this.items = new Map();
    /** Ids of statements whose details are open; kept by id so that a redraw keeps them open. */
    this.open = new Set();
    this.openHandles = new Set();
    this.openBlocks = new Set();
    this.session = null;
    this.handles = [];
    this.deltas = [];
    this.projection = null;
    this.notices = [];
    this.dismissed = new Set();
    this.truncated = 0;
    this.sent = null;
    this.head = null;
    /** @type {{statement_id: string, index: any, source: string, since: number} | null} */
    this.running = null;
    this.status = 'unknown';
    this.phaseNow = null;
    this.heading = '';
    this.stale = new Set(TABS);
    this.stuck = true;
    this.unseen = 0;
    this.pendingRows = [];
    this.disposed = false;

    this.build(el);
    this.select(TABS.includes(actions.tab) ? actions.tab : 'timeline', false);
    this.drawHeader();
  }

  /* ------------------------------------------------------------ frame */

  build(el) {
    this.name = h('span', { class: 'ctxk-name' }, 'ctxkernel');
    this.state = h('span', { class: 'ctxk-state' });
    this.total = h('span', { class: 'ctxk-total' });
    this.checks = h('button', { class: 'ctxk-checks', type: 'button', onclick: () => this.select('projection') });
    this.sentLine = h('p', { class: 'ctxk-sent' });
    this.banners = h('div', { class: 'ctxk-banners' });
    this.live = h('div', { class: 'ctxk-sr', role: 'status', 'aria-live': 'polite' });
    this.tabs = {};
    this.sections = {};
    const id = `ctxk-${Math.random().toString(36).slice(2)}`;
    const tablist = h('div', {
      class: 'ctxk-tabs',
      role: 'tablist',
      'aria-label': 'Parts of the panel',
      onkeydown: (e) => this.tabKey(e)
    });
    const body = h('div', { class: 'ctxk-body' });
    for (const tab of TABS) {
      this.tabs[tab] = h(
        'button',
        {
          class: 'ctxk-tab',
          type: 'button',
          role: 'tab',
          id: `${id}-${tab}`,
          'aria-controls': `${id}-${tab}-panel`,
          'data-tab': tab,
          onclick: () => this.select(tab)
        },
        TAB_LABELS[tab],
        h('span', { class: 'ctxk-count' })
      );
      this.sections[tab] = h('div', {
        class: `ctxk-section ctxk-${tab}`,
        role: 'tabpanel',
        id: `${id}-${tab}-panel`,
        'aria-labelledby': `${id}-${tab}`,
        tabindex: '0',
        hidden: true
      });
      tablist.append(this.tabs[tab]);
      body.append(this.sections[tab]);
    }
    const close =
      this.actions.close &&
      h(
        'button',
        {
          class: 'ctxk-close',
          type: 'button',
          title: 'Close the panel',
          'aria-label': 'Close the panel',
          onclick: () => this.actions.close()
        },
        icon('close')
      );
    this.root = h(
      'div',
      { class: 'ctxk' },
      h(
        'header',
        { class: 'ctxk-head' },
        h('div', { class: 'ctxk-line' }, this.name, this.state, close),
        h('div', { class: 'ctxk-line ctxk-line2' }, this.total, this.checks),
        this.sentLine
      ),
      this.banners,
      tablist,
      body,
      this.live
    );
    this.buildTimeline();
    el.append(this.root);
  }

  buildTimeline() {
    this.older = h('p', { class: 'ctxk-hint', hidden: true });
    this.ol = h('ol', { class: 'ctxk-rows' });
    this.empty = h('div', { class: 'ctxk-empty' });
    this.newest = h('button', { class: 'ctxk-newest', type: 'button', hidden: true, onclick: () => this.toBottom() });
    const section = this.sections.timeline;
    section.append(this.older, this.empty, this.ol, this.newest);
    section.addEventListener(
      'scroll',
      () => {
        this.stuck = atBottom(section);
        if (this.stuck) this.seen();
      },
      { passive: true }
    );
    // Rows off the screen have estimated heights (content-visibility). As real ones replace them the list grows
    // without a scroll event, so "at the bottom" has to be held, not only set once.
    this.resize = new ResizeObserver(() => {
      if (this.stuck && this.tab === 'timeline') section.scrollTop = section.scrollHeight;
    });
    this.resize.observe(this.ol);
  }

  /** Arrow keys move between tabs, as the ARIA pattern for tabs has it. */
  tabKey(event) {
    const at = TABS.indexOf(this.tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const tab = TABS[(to + TABS.length) % TABS.length];
    this.select(tab);
    this.tabs[tab].focus();
  }

  select(tab, tell = true) {
    this.tab = tab;
    for (const name of TABS) {
      const on = name === tab;
      this.tabs[name].setAttribute('aria-selected', String(on));
      this.tabs[name].tabIndex = on ? 0 : -1;
      this.sections[name].hidden = !on;
    }
    if (tell) this.actions.onTab?.(tab);
    this.drawSection();
    this.shown();
  }

  /** Mark sections as out of date and draw the one in front. */
  refresh(...tabs) {
    for (const tab of tabs) this.stale.add(tab);
    this.drawSection();
  }

  drawSection() {
    if (!this.stale.delete(this.tab)) return;
    const section = this.sections[this.tab];
    const top = section.scrollTop;
    try {
      if (this.tab === 'timeline') this.drawTimeline();
      else
        section.replaceChildren(
          ...[
            { handles: this.drawHandles, projection: this.drawProjection, changes: this.drawChanges }[this.tab].call(
              this
            )
          ].flat()
        );
    } catch (error) {
      console.error('ctxkernel panel', error);
      section.replaceChildren(
        emptyState('This part could not be drawn', `${error}. Reconnect, or report it with this text.`)
      );
    }
    if (this.tab !== 'timeline') section.scrollTop = top;
  }

  shown() {
    if (this.tab !== 'timeline') return;
    const section = this.sections.timeline;
    if (this.stuck) section.scrollTop = section.scrollHeight;
  }

  /* ------------------------------------------------------------ messages */

  message(msg) {
    const handler = { snapshot: this.snapshot, begin: this.begin, turn: this.turn, notice: this.notice }[msg?.type];
    if (handler) handler.call(this, msg);
  }

  snapshot(msg) {
    this.phaseNow = null;
    this.session = msg.session ?? null;
    this.path = msg.path ?? null;
    this.head = msg.head ?? null;
    this.version = msg.version ?? null;
    this.protocol = msg.protocol ?? null;
    this.python = msg.python ?? null;
    this.truncated = number(msg.timeline_truncated) ?? 0;
    this.sent = msg.sent ?? null;
    this.rows = new Map(list(msg.statements).map((row) => [row.statement_id, row]));
    const known = new Set(this.deltas.map(deltaKey));
    // A reconnect to the same session must not lose the feed that this page has already seen.
    if (this.feedOf !== this.session) {
      this.deltas = [];
      known.clear();
    }
    this.feedOf = this.session;
    this.addDeltas(list(msg.deltas).filter((d) => !known.has(deltaKey(d))));
    this.handles = list(msg.handles);
    this.projection = msg.projection ?? null;
    this.notices = [];
    this.addNotices(msg.notices);
    // The running statement: its id, or what `begin` says of it (it has no row of its own yet).
    const running =
      typeof msg.running === 'string' ? { ...this.rows.get(msg.running), statement_id: msg.running } : msg.running;
    this.run(null);
    if (running?.statement_id) {
      if (!this.rows.has(running.statement_id)) this.rows.set(running.statement_id, { ...running, status: 'running' });
      // Started before this page knew of it: only the kernel's clock can tell how long ago.
      this.run(running, number(running.started_at) === null ? 0 : Math.max(0, Date.now() - running.started_at * 1000));
    }
    this.refresh(...TABS);
    this.drawHeader();
    this.drawBanners();
  }

  begin(msg) {
    const s = dict(msg.statement);
    if (!s.statement_id) return;
    const row = { status: 'running', ...s };
    this.setRow(row);
    this.run(s, 0);
    this.drawHeader();
    this.live.textContent = `running ${label(s)}`;
  }

  turn(msg) {
    const row = dict(msg.statement);
    if (!row.statement_id) return;
    this.head = msg.head ?? this.head;
    // Names that changed between two cells make a statement of their own, before this one.
    if (msg.outside?.statement_id) this.setRow(msg.outside);
    this.setRow(row);
    this.handles = list(msg.handles);
    this.projection = msg.projection ?? null;
    this.addDeltas(list(msg.deltas));
    this.addNotices(msg.notices);
    if (
      !this.running ||
      this.running.statement_id === row.statement_id ||
      number(row.index) >= (number(this.running.index) ?? 0)
    )
      this.run(null);
    this.refresh('handles', 'projection', 'changes');
    this.drawHeader();
    this.drawBanners();
    this.live.textContent = `${label(row)} ${STATUSES[statusOf(row)][1]}`;
    this.afterPaint(() =>
      this.actions.painted?.({ statement_id: String(row.statement_id), ended_at: number(row.ended_at) })
    );
  }

  notice(msg) {
    this.addNotices([msg?.text]);
    this.drawBanners();
  }

  /** Each turn repeats the notices that still hold; one that the reader dismissed does not come back. */
  addNotices(texts) {
    const fresh = list(texts).filter(Boolean).map(String);
    this.notices = [...new Set([...this.notices, ...fresh])].filter((text) => !this.dismissed.has(text)).slice(-5);
  }

  addDeltas(items) {
    this.deltas.push(...items.map(dict));
    if (this.deltas.length > MAX_DELTAS) this.deltas.splice(0, this.deltas.length - MAX_DELTAS);
  }

  kernelStatus(status) {
    this.status = String(status ?? 'unknown');
    if (['restarting', 'autorestarting', 'dead', 'terminating'].includes(this.status)) {
      this.run(null);
      // What ran has died with its kernel. The next start records it so; until then the panel must not say that it runs.
      for (const row of [...this.rows.values()])
        if (row.status === 'running') this.setRow({ ...row, status: 'cancelled' });
    }
    this.drawHeader();
  }

  phase(phase) {
    this.phaseNow = phase;
    if (phase) this.run(null);
    this.drawHeader();
    this.drawBanners();
    this.drawEmpty();
  }

  title(text) {
    this.heading = clean(text);
    this.drawHeader();
  }

  hole() {
    const known = [...this.rows.values()].map((row) => row.index).slice(-50);
    const at = known.findIndex((index, i) => i > 0 && index > known[i - 1] + 1);
    return at < 0 ? 0 : known[at];
  }

  /** Run `done` when what was just drawn has been painted; at once where the page is in the background. */
  afterPaint(done) {
    if (document.hidden) return void done();
    requestAnimationFrame(() => {
      // A frame callback runs BEFORE its paint; the next task runs after it.
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        channel.port1.close();
        if (!this.disposed) done();
      };
      channel.port2.postMessage(0);
    });
  }

  dispose() {
    this.disposed = true;
    clearInterval(this.ticker);
    this.resize.disconnect();
    this.root.remove();
  }

  /* ------------------------------------------------------------ header */

  run(statement, ago = 0) {
    clearInterval(this.ticker);
    this.running = statement && { ...statement, since: performance.now() - ago };
    if (statement) this.ticker = setInterval(() => this.drawState(), 250);
  }

  drawState() {
    let view;
    if (this.running) {
      const elapsed = performance.now() - this.running.since;
      // Under half a second a number would only flicker.
      view = ['running', '●', `running ${label(this.running)}${elapsed > 500 ? ` · ${duration(elapsed)}` : ''}`];
    } else if (this.phaseNow)
      view = [
        this.phaseNow.tone === 'error' ? 'error' : 'off',
        '○',
        PHASE_WORDS[this.phaseNow.name] ?? 'not connected'
      ];
    else if (this.status === 'idle') view = ['idle', '○', 'idle'];
    else if (this.status === 'busy') view = ['running', '●', 'busy'];
    else view = ['off', '○', this.status];
    const [kind, glyph, text] = view;
    if (this.state.textContent === glyph + text) return;
    this.state.className = `ctxk-state ctxk-is-${kind}`;
    this.state.replaceChildren(h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph), text);
    this.root.dataset.state = kind;
  }

  drawHeader() {
    this.drawState();
    const name = this.heading || shortName(this.path) || shortName(this.session) || 'ctxkernel';
    this.name.replaceChildren(clean(name));
    this.name.title = clean(
      [
        this.heading,
        this.session && `session ${typeof this.session === 'string' ? this.session : JSON.stringify(this.session)}`,
        this.version && `ctxkernel ${this.version}`,
        this.python && `Python ${this.python}`
      ]
        .filter(Boolean)
        .join('\n')
    );
    const p = this.projection;
    const live = this.sent !== null;
    this.total.parentElement.hidden = !live;
    this.total.replaceChildren();
    if (p)
      put(
        this.total,
        h('b', null, `~${count(p.tokens)} tokens`),
        number(p.budget) ? h('span', { class: 'ctxk-wide' }, ` of ${count(p.budget)}`) : ''
      );
    else put(this.total, 'no projection yet');
    this.checks.hidden = !p;
    if (p) {
      const report = dict(p.report);
      const n = list(report.violations).length;
      this.checks.replaceChildren(
        report.ok ? badge('ok', '✓', 'checks ok') : badge('error', '✕', plural(n || 1, 'violation'))
      );
      this.checks.title = report.ok
        ? 'The projection keeps every rule of the model’s API'
        : 'The projection breaks rules of the model’s API; a red one is never sent';
    }
    this.sentLine.hidden = !live;
    if (live)
      this.sentLine.textContent =
        this.sent === false ? 'Nothing has been sent to any model.' : 'Parts of this session were sent to a model.';
    this.root.dataset.sent = String(this.sent);
    const counts = {
      timeline: this.rows.size + this.truncated,
      handles: this.handles.length,
      projection: list(p?.blocks).length,
      changes: this.deltas.length
    };
    for (const tab of TABS)
      this.tabs[tab].querySelector('.ctxk-count').textContent = counts[tab] ? count(counts[tab]) : '';
  }

  drawBanners() {
    const out = [];
    const phase = this.phaseNow;
    // With rows on the screen the phase is a banner over them; without, it is the page (drawEmpty).
    if (phase && this.rows.size) out.push(this.phaseBox(phase, 'ctxk-banner'));
    const odd = this.sent === null ? null : mismatch(this.actions.version, this.version, this.protocol);
    if (odd) {
      out.push(
        h(
          'div',
          { class: 'ctxk-banner ctxk-tone-warn', role: 'alert', 'data-banner': 'version' },
          h('strong', null, odd.title),
          h('p', null, odd.text),
          codeLine(odd.command)
        )
      );
    }
    for (const text of this.notices) {
      const close = h(
        'button',
        {
          class: 'ctxk-close',
          type: 'button',
          title: 'Dismiss',
          'aria-label': 'Dismiss this notice',
          onclick: () => {
            this.dismissed.add(text);
            this.addNotices([]);
            this.drawBanners();
          }
        },
        icon('close')
      );
      out.push(
        h(
          'div',
          { class: 'ctxk-banner ctxk-tone-info ctxk-notice', 'data-banner': 'notice' },
          h('p', null, text),
          close
        )
      );
    }
    this.banners.replaceChildren(...out);
  }

  phaseBox(phase, cls) {
    return h(
      'div',
      {
        class: `${cls} ctxk-tone-${phase.tone}`,
        'data-phase': phase.name,
        role: phase.tone === 'error' ? 'alert' : null
      },
      h('strong', null, phase.title),
      phase.text && h('p', null, phase.text),
      phase.code && codeLine(phase.code),
      phase.after && h('p', null, phase.after),
      phase.button &&
        this.actions.reconnect &&
        h('button', { class: 'ctxk-button', type: 'button', onclick: () => this.actions.reconnect() }, phase.button)
    );
  }

  /* ------------------------------------------------------------ timeline */

  setRow(row) {
    const id = String(row.statement_id);
    const before = this.rows.get(id);
    this.rows.set(id, row);
    if (this.stale.has('timeline')) return;
    const item = this.drawRow(row);
    const old = this.items.get(id);
    this.items.set(id, item);
    if (old) old.replaceWith(item);
    else if (before) this.refresh('timeline');
    else {
      const next = this.sortIn(row);
      if (next) next.before(item);
      else this.ol.append(item);
      if (!this.stuck) {
        this.unseen += 1;
        this.newest.hidden = false;
        this.newest.textContent = `${count(this.unseen)} new ↓`;
      }
    }
    this.drawEmpty();
    if (this.stuck && this.tab === 'timeline') this.sections.timeline.scrollTop = this.sections.timeline.scrollHeight;
  }

  /** Rows come in order but for one that is told late. Returns the item that a new row stands before. */
  sortIn(row) {
    const index = number(row.index);
    const later = [...this.rows.values()].slice(-10).find((other) => index !== null && other.index > index);
    if (!later) return null;
    this.rows = new Map([...this.rows].sort(([, a], [, b]) => a.index - b.index));
    return this.items.get(String(later.statement_id)) ?? null;
  }

  seen() {
    this.unseen = 0;
    this.newest.hidden = true;
  }

  toBottom() {
    this.stuck = true;
    this.sections.timeline.scrollTop = this.sections.timeline.scrollHeight;
    this.seen();
  }

  drawTimeline() {
    cancelIdle(this.idle);
    const rows = [...this.rows.values()];
    this.pendingRows = rows.slice(0, Math.max(0, rows.length - FIRST_ROWS));
    this.items.clear();
    this.ol.replaceChildren(...rows.slice(-FIRST_ROWS).map((row) => this.drawItem(row)));
    this.older.hidden = !this.truncated;
    this.older.textContent = `${plural(this.truncated, 'older statement')} in the session: %ctx timeline shows them.`;
    this.drawEmpty();
    this.shown();
    this.drawMore();
  }

  /** Add the older rows above, some at a time. The place that the reader looks at stays where it is. */
  drawMore() {
    if (!this.pendingRows.length) return;
    this.idle = whenIdle(() => {
      if (this.disposed) return;
      const section = this.sections.timeline;
      const fromBottom = section.scrollHeight - section.scrollTop;
      const some = this.pendingRows.splice(-ROWS_A_STEP);
      this.ol.prepend(...some.map((row) => this.drawItem(row)));
      section.scrollTop = section.scrollHeight - fromBottom;
      this.drawMore();
    });
  }

  drawItem(row) {
    const item = this.drawRow(this.rows.get(String(row.statement_id)) ?? row);
    this.items.set(String(row.statement_id), item);
    return item;
  }

  drawEmpty() {
    this.empty.hidden = this.rows.size > 0;
    if (this.rows.size) return;
    if (this.phaseNow) this.empty.replaceChildren(this.phaseBox(this.phaseNow, 'ctxk-phase'));
    else if (this.sent === null) this.empty.replaceChildren(emptyState('Connecting to the kernel…'));
    else
      this.empty.replaceChildren(
        emptyState('No cell has run yet', 'Run a cell with Shift+Enter: it appears here with what it changed.')
      );
  }

  drawRow(row) {
    const id = String(row.statement_id);
    const status = statusOf(row);
    const isOpen = this.open.has(id);
    const details = h('div', { class: 'ctxk-details', hidden: !isOpen });
    const toggle = h(
      'button',
      {
        class: 'ctxk-toggle',
        type: 'button',
        'aria-expanded': String(isOpen),
        'aria-label': `Details of ${label(row)}`,
        title: 'Details'
      },
      icon('chevron')
    );
    const flip = () => {
      const now = !this.open.has(id);
      if (now) this.open.add(id);
      else this.open.delete(id);
      toggle.setAttribute('aria-expanded', String(now));
      // The reader is looking here now: following the newest row would carry this one away.
      this.stuck = false;
      if (now && !details.childElementCount) fillDetails(details, row);
      details.hidden = !now;
      requestAnimationFrame(() => (this.stuck = atBottom(this.sections.timeline)));
    };
    toggle.addEventListener('click', flip);
    if (isOpen) fillDetails(details, row);
    const [glyph, word] = STATUSES[status];
    const author = row.author in AUTHORS ? row.author : 'human';
    const missing = h('p', { class: 'ctxk-missing', role: 'status', hidden: true });
    const go = async () => {
      if (!this.actions.goto) return flip();
      const found = row.cell_id ? await this.actions.goto(String(row.cell_id)) : false;
      missing.hidden = found;
      missing.textContent = found
        ? ''
        : row.cell_id
          ? 'Its cell is not in this notebook any more. The details have its source.'
          : 'It was not run from a cell. The details have its source.';
    };
    const time = status === 'running' ? '' : duration(row.time_ms);
    const line = h(
      'button',
      {
        class: 'ctxk-go',
        type: 'button',
        onclick: go,
        title: this.actions.goto
          ? `${clean(row.source).slice(0, 600)}\n\nClick: go to the cell`
          : clean(row.source).slice(0, 600)
      },
      h('span', { class: 'ctxk-index' }, label(row)),
      icon(author, `by ${AUTHORS[author]}`),
      h('code', { class: 'ctxk-src' }, headline(row.source)),
      row.kind === 'meta' && h('span', { class: 'ctxk-tag' }, 'meta'),
      h(
        'span',
        { class: `ctxk-status ctxk-is-${status}` },
        h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph),
        word
      ),
      h('span', { class: 'ctxk-time' }, time)
    );
    return h(
      'li',
      { class: `ctxk-row ctxk-row-${status}`, 'data-statement': id },
      h('div', { class: 'ctxk-rowline' }, toggle, line),
      this.chips(row),
      missing,
      details
    );
  }

  /** One line on what the statement did: names that came, changed and went; the error; what it left. */
  chips(row) {
    const diff = dict(row.diff);
    const out = [];
    const sets = [
      ['added', '+', Object.keys(dict(diff.added))],
      ['changed', '~', Object.keys(dict(diff.changed))],
      ['deleted', '−', list(diff.deleted)]
    ];
    for (const [kind, sign, names] of sets) {
      for (const name of names.slice(0, 6))
        out.push(h('span', { class: `ctxk-chip ctxk-${kind}`, title: `${kind}: ${name}` }, `${sign}${name}`));
      if (names.length > 6) out.push(h('span', { class: `ctxk-chip ctxk-${kind}` }, `${sign}${names.length - 6} more`));
    }
    // Handles that a call or the tick changed; one that is new has its chip as a new name already.
    const fresh = new Set(sets[0][2]);
    const nodes = list(row.nodes).map(dict).filter((n) => !fresh.has(n.name));
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

  /* ------------------------------------------------------------ handles */

  drawHandles() {
    if (!this.handles.length) {
      return emptyState(
        'No handles yet',
        'A handle is a live look at something, and decides what the model sees of it. Make one in a cell:',
        'v = view("data.csv")'
      );
    }
    return h(
      'ul',
      { class: 'ctxk-cards' },
      this.handles.map((raw) => this.drawHandle(dict(raw)))
    );
  }

  drawHandle(x) {
    const id = String(x.obj_id ?? x.name);
    const isOpen = this.openHandles.has(id);
    const used = number(x.rendered_tokens) ?? 0;
    const budget = number(x.tokens);
    const paused = String(x.mode ?? '').toLowerCase() === 'paused';
    const body = h('div', { class: 'ctxk-details', hidden: !isOpen });
    const fill = () => {
      if (body.childElementCount) return;
      put(
        body,
        facts([
          ['id', x.obj_id],
          ['target', x.target],
          ['position', x.pos],
          ['revision', x.revision]
        ]),
        list(x.notes).map((note) => h('p', { class: 'ctxk-note' }, note)),
        x.text ? pre(x.text) : h('p', { class: 'ctxk-hint' }, 'Nothing is rendered for it.')
      );
    };
    const toggle = h(
      'button',
      {
        class: 'ctxk-toggle',
        type: 'button',
        'aria-expanded': String(isOpen),
        'aria-label': `Rendering of ${clean(x.name)}`
      },
      icon('chevron')
    );
    const flip = () => {
      const now = !this.openHandles.has(id);
      this.openHandles[now ? 'add' : 'delete'](id);
      if (now) fill();
      body.hidden = !now;
      toggle.setAttribute('aria-expanded', String(now));
    };
    toggle.addEventListener('click', flip);
    if (isOpen) fill();
    return h(
      'li',
      { class: 'ctxk-card', 'data-handle': x.name },
      h(
        'div',
        { class: 'ctxk-cardline' },
        toggle,
        h(
          'button',
          { class: 'ctxk-open', type: 'button', onclick: flip, tabindex: '-1' },
          h('b', { class: 'ctxk-mono' }, x.name),
          h('span', { class: 'ctxk-tag' }, x.obj_type),
          x.pinned && h('span', { class: 'ctxk-tag ctxk-pinned' }, icon('pin'), 'pinned'),
          x.changed && h('span', { class: 'ctxk-tag ctxk-mark' }, '● changed')
        ),
        h(
          'span',
          {
            class: 'ctxk-tokens',
            title: `its rendering has ~${count(used)} tokens${budget ? `, its budget is ${count(budget)}` : ''}`
          },
          `~${count(used)}`,
          budget ? ` / ${count(budget)}` : '',
          h('span', { class: 'ctxk-wide' }, ' tokens')
        )
      ),
      budget ? bar(used / budget, used > budget ? 'error' : 'plain') : null,
      x.target &&
        !list(x.members).length &&
        h('p', { class: 'ctxk-target ctxk-tail', title: x.target }, h('bdi', null, x.target)),
      list(x.members).length > 0 &&
        h('p', { class: 'ctxk-target' }, `${plural(x.members.length, 'member')}: ${x.members.join(', ')}`),
      h(
        'p',
        { class: 'ctxk-policy' },
        h(
          'span',
          { title: LODS[x.lod] ? `level of detail ${x.lod}: ${LODS[x.lod]}` : 'level of detail' },
          `LOD ${x.lod ?? '?'}${LODS[x.lod] ? ` ${LODS[x.lod]}` : ''}`
        ),
        x.freq !== undefined && x.freq !== null && h('span', null, freqText(x.freq)),
        h('span', { class: paused ? 'ctxk-paused' : null }, paused ? '❚❚ paused' : '▶ running')
      ),
      body
    );
  }

  /* ------------------------------------------------------------ projection */

  drawProjection() {
    const p = this.projection;
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
      ol.append(this.drawBlock(block, widest, total));
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
    out.push(this.rawRequest(p));
    return out;
  }

  drawBlock(block, widest, total) {
    const id = String(block.id ?? '');
    const text = clean(block.text);
    const tokens = number(block.tokens) ?? 0;
    const key = (what) => `${id}\0${what}`;
    const why = h(
      'p',
      { class: 'ctxk-why', hidden: !this.openBlocks.has(key('why')) },
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
          this.openBlocks[why.hidden ? 'delete' : 'add'](key('why'));
        }
      },
      'why'
    );
    const long = text.length > BLOCK_CHARS || text.split('\n').length > 10;
    const body = pre('');
    const more = h('button', { class: 'ctxk-link ctxk-more', type: 'button' });
    const draw = () => {
      const all = !long || this.openBlocks.has(key('all'));
      body.textContent = all ? text : text.slice(0, BLOCK_CHARS);
      body.classList.toggle('ctxk-clamped', !all);
      more.textContent = all ? 'less' : 'show all';
    };
    more.addEventListener('click', () => {
      this.openBlocks[this.openBlocks.has(key('all')) ? 'delete' : 'add'](key('all'));
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

  rawRequest(p) {
    const box = h('div', { class: 'ctxk-raw' });
    const fold = h('details', { class: 'ctxk-fold' }, h('summary', null, 'Raw request'), box);
    fold.open = Boolean(this.rawOpen);
    const fill = () => {
      this.rawOpen = fold.open;
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

  /* ------------------------------------------------------------ changes */

  drawChanges() {
    if (!this.deltas.length)
      return emptyState(
        'No changes yet',
        'Variables, handles and files that a cell changes are listed here, newest first.'
      );
    /** @type {Map<string, any[]>} */
    const groups = new Map();
    for (const item of this.deltas) {
      const id = String(item.statement_id ?? '');
      if (!groups.has(id)) groups.set(id, []);
      groups.get(id).push(item);
    }
    return [...groups.entries()].reverse().map(([id, items]) => {
      const row = this.rows.get(id);
      return h(
        'section',
        { class: 'ctxk-group', 'data-group': id },
        h(
          'h3',
          { class: 'ctxk-grouphead' },
          h('span', { class: 'ctxk-index' }, id || 'outside'),
          row && h('code', { class: 'ctxk-src' }, headline(row.source))
        ),
        h(
          'ul',
          { class: 'ctxk-deltas' },
          items.map((item) =>
            h(
              'li',
              null,
              h(
                'span',
                { class: `ctxk-kind ctxk-kind-${item.kind in DELTA_WORDS ? item.kind : 'other'}` },
                DELTA_WORDS[item.kind] ?? item.kind
              ),
              h(
                'span',
                { class: 'ctxk-summary' },
                h('code', { class: 'ctxk-subject' }, item.subject),
                ' ',
                item.summary
              )
            )
          )
        )
      );
    });
  }
}

/* ---------------------------------------------------------------- parts */

const LODS = { 0: 'raw', 1: 'structure', 2: 'summary', 3: 'diff' };
const DELTA_WORDS = {
  variable: 'var',
  node: 'handle',
  tick: 'tick',
  error: 'error',
  file: 'file',
  late: 'late',
  notice: 'note'
};
const PHASE_WORDS = {
  connecting: 'connecting',
  busy: 'busy',
  other: 'not ctxkernel',
  'no-answer': 'no answer',
  'no-kernel': 'no kernel',
  restarting: 'restarting',
  dead: 'kernel died',
  disconnected: 'disconnected'
};

const label = (row) => clean(row?.statement_id ?? (number(row?.index) !== null ? `s${row.index}` : '?'));
const deltaKey = (d) => [d?.statement_id, d?.kind, d?.subject, d?.summary].join('\0');
const atBottom = (el) => el.scrollHeight - el.scrollTop - el.clientHeight < 24;
const whenIdle = (job) =>
  window.requestIdleCallback ? requestIdleCallback(job, { timeout: 300 }) : setTimeout(job, 16);
const cancelIdle = (id) => (window.cancelIdleCallback ? cancelIdleCallback(id) : clearTimeout(id));

function shortName(session) {
  if (!session) return '';
  const text = typeof session === 'string' ? session : String(session.name ?? session.id ?? '');
  return (text.split(/[\\/]/).pop() ?? '').replace(/\.sqlite$/, '');
}

function shortMime(mime) {
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
    names[mime] ??
    clean(mime ?? '')
      .replace(/^application\/(vnd\.)?/, '')
      .slice(0, 24)
  );
}

function freqText(freq) {
  if (typeof freq === 'string') return freq.toLowerCase();
  const x = dict(freq);
  return clean(x.kind ?? x.name ?? JSON.stringify(freq));
}

const originText = (origin) =>
  typeof origin === 'string' ? origin : Array.isArray(origin) ? origin.join(', ') : JSON.stringify(origin);

function bar(share, kind) {
  const inner = h('span', { class: 'ctxk-barfill' });
  inner.style.width = `${Math.max(0, Math.min(100, 100 * share)).toFixed(1)}%`;
  return h('span', { class: `ctxk-bar ctxk-bar-${kind}`, 'aria-hidden': 'true' }, inner);
}

const pre = (text) => h('pre', { class: 'ctxk-pre' }, text);

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

function emptyState(title, text, code) {
  return h(
    'div',
    { class: 'ctxk-empty' },
    h('strong', null, title),
    text && h('p', null, text),
    code && codeLine(code)
  );
}

/** A line to run, with a button that copies it. */
function codeLine(code) {
  const copy = h('button', { class: 'ctxk-link', type: 'button', title: 'Copy this line' }, 'copy');
  copy.addEventListener('click', async () => {
    copy.textContent = (await copyText(code)) ? 'copied' : 'not allowed';
    setTimeout(() => (copy.textContent = 'copy'), 2000);
  });
  return h('div', { class: 'ctxk-codeline' }, h('code', null, code), copy);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function sizeText(size) {
  const s = dict(size);
  return [
    Array.isArray(s.shape) ? s.shape.join('×') : number(s.len) !== null ? `len ${count(s.len)}` : '',
    bytes(s.bytes)
  ]
    .filter(Boolean)
    .join(', ');
}

/** Fill the details of one statement: what ran, what it said, how it failed, what it changed, what it left. */
function fillDetails(el, row) {
  const cut = dict(row.cut);
  const late = dict(row.late);
  put(el, heading('Source'), pre(row.source || '(empty)'));
  for (const stream of ['stdout', 'stderr']) {
    const text = row[stream];
    const lost = number(cut[stream]);
    if (!text && !lost) continue;
    put(el, heading(stream), text && h('pre', { class: `ctxk-pre ctxk-${stream}` }, text));
    if (lost) put(el, h('p', { class: 'ctxk-cut' }, `✂ ${plural(lost, 'byte')} of ${stream} were cut from the record`));
    else if (typeof text === 'string' && text.length >= 2000)
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
      h('ul', { class: 'ctxk-diff' }, nodes.map((n) => h('li', null, h('b', null, n.name), ` ${n.summary ?? ''}`)))
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
  for (const text of list(row.notices)) put(el, h('p', { class: 'ctxk-note' }, text));
  put(
    el,
    facts([
      ['run', row.execution_id],
      ['at', clock(row.started_at ?? row.timestamp)],
      ['took', duration(row.time_ms)],
      ['by', AUTHORS[row.author] ?? row.author]
    ])
  );
}

const heading = (text) => h('h4', { class: 'ctxk-h' }, text);

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

/* ---------------------------------------------------------------- the inline widget */

/** anywidget's entry: the trait `state` holds a snapshot; begin, turn and notice come as custom messages. */
export default {
  render({ model, el }) {
    const host = h('div', { class: 'ctxk-inline' });
    el.append(host);
    const view = mount(host, {});
    const whole = () => {
      const state = model.get('state');
      if (state && Object.keys(state).length) view.snapshot(state);
    };
    const one = (msg) => view.message(msg);
    model.on('change:state', whole);
    model.on('msg:custom', one);
    view.kernelStatus('idle');
    whole();
    return () => {
      model.off('change:state', whole);
      model.off('msg:custom', one);
      view.dispose();
    };
  }
};
