/**
 * The notebook's cells as they were at the kernel's place: offered after a move, shown first, put into the notebook on a yes.
 *
 * Rule 1: nothing in the notebook is changed without a yes, and a text that goes is kept with its cell (kepttexts.js).
 * Rule 2: no cell is deleted. One that has not run on the way to HEAD stays and is marked.
 * Rule 3: what is shown comes from the kernel's timeline and is untrusted: text is set as text. Outputs enter the notebook as
 *         the outputs of a cell do.
 */

import { askKernel } from './askkernel.js';
import { h, put } from './elements.js';
import { setMetadata } from './kepttexts.js';
import { fingerprint, nameOf } from './marks.js';
import { openSheet } from './sheet.js';
import { clean } from './text.js';
import { drawDiff } from './textdiff.js';
import { count, dict, list, plural } from './values.js';

/** @import {Cell, CellModel, NotebookContent} from '../jupyterlab.js' */
/** @import {CellVersion} from '../messages.js' */
/** @import {Ask} from '../types.js' */
/** @import {Gutter} from './gutter.js' */
/** @import {KeptTexts} from './kepttexts.js' */

/**
 * A cell that would change.
 * @typedef {object} Change
 * @property {Cell | null} cell null: it is not in the notebook any more
 * @property {Partial<CellVersion>} version
 * @property {boolean} text whether its text would change
 * @property {boolean} output whether it shows another execution, or not all of it
 * @property {boolean} typed whether its text did not run as it is
 * @property {string} now its text
 * @property {boolean} chosen
 *
 * What a cell was before.
 * @typedef {{model: CellModel, source: string, outputs: any[], count: number | null, said: object}} Before
 *
 * An offer to follow a move.
 * @typedef {{text: string, button: string, run: () => void}} Offer
 */

/** Characters of a cell's output that the preview shows. */
const SHOWN_CHARS = 2000;

class CellVersions {
  /**
   * @param {NotebookContent} content @param {Gutter} gutter @param {KeptTexts} kept
   * @param {{ask: Ask, offer(offer: Offer | null): void}} host `offer` shows an offer, or takes it away
   */
  constructor(content, gutter, kept, host) {
    this.content = content;
    this.gutter = gutter;
    this.kept = kept;
    this.host = host;
    this.enabled = true;
    /** What the last change replaced. @type {Before[]} */
    this.replaced = [];
  }

  /**
   * A message of the kernel came, and the marks are up to date: offer to follow a move, and stop when work goes on.
   * @param {any} msg
   */
  take(msg) {
    if (msg?.type === 'snapshot' || (msg?.type === 'turn' && msg.statement?.moved)) this.consider();
    else if (msg?.type === 'begin' && msg.statement?.kind !== 'meta') this.host.offer(null);
    if (msg?.type === 'turn') this.ran(msg.statement?.cell_id);
  }

  /** A cell has run: it shows its newest execution, so its metadata need not say another. @param {string | null | undefined} id */
  ran(id) {
    const cell = id ? this.content.widgets.find((one) => one.model.id === id) : undefined;
    const { shows, ...said } = dict(cell?.model.getMetadata('ctxkernel'));
    if (cell && shows && dict(shows).newest !== this.gutter.marks.cells.get(cell.model.id)?.execution_id)
      setMetadata(cell.model, said);
  }

  /** Offer what can be shown here; take an offer away that is nothing any more. */
  consider() {
    const { marks, foreign } = this.gutter;
    const here = foreign.filter((cell) => marks.cells.get(cell.model.id)?.on_head);
    if (!this.enabled || !here.length) return this.host.offer(null);
    const away = foreign.length - here.length;
    this.host.offer({
      text:
        `Kernel at ${marks.here}: ${plural(here.length, 'cell shows another run', 'cells show other runs')}` +
        (away ? `, ${count(away)} did not run here.` : '.'),
      button: `Show ${here.length === 1 ? 'it' : 'them'} as at ${marks.here}…`,
      run: () => void this.preview()
    });
  }

  /** Show what would change, in all cells or in one. @param {Cell | null} [only] */
  async preview(only = null) {
    const { here } = this.gutter.marks;
    const title = `Show ${only ? 'the cell' : 'the cells'} as at ${here}`;
    const answer = await askKernel(this.host.ask, 'cells', { at: null, ...(only ? { cell: only.model.id } : {}) });
    if (!('cells' in answer) || !answer.cells)
      return void openSheet({ title, body: [h('p', null, answer.error || 'The kernel gave no cells.')], cancel: 'Close' });
    const { at } = answer.cells;
    const versions = list(answer.cells.cells).map(dict);
    const changes = this.changes(versions, only);
    const away = only ? [] : this.gutter.foreign.filter((cell) => !versions.some((one) => one.cell_id === cell.model.id));
    if (!changes.length)
      return void openSheet({
        title,
        body: [h('p', null, `The cells show what ran on the way to ${here}: nothing would change.`), this.awayLine(away)],
        cancel: 'Close'
      });
    const chosen = () => changes.filter((one) => one.chosen);
    openSheet({
      title,
      body: [
        h('p', { class: 'ctxk-sheethint' }, 'Text and output come from the timeline; nothing runs. A text that is replaced is kept with its cell.'),
        this.awayLine(away),
        ...changes.map((one) => this.drawChange(one))
      ],
      confirm: () => (chosen().length ? `Show ${plural(chosen().length, 'cell')} as at ${here}` : ''),
      // The kernel may have moved since: then this is not what its place holds.
      run: () => void (at === this.gutter.marks.head ? this.apply(chosen()) : this.preview(only))
    });
  }

  /** @param {Cell[]} cells */
  awayLine(cells) {
    return cells.length
      ? h('p', { class: 'ctxk-sheethint' }, `${plural(cells.length, 'cell has', 'cells have')} not run on this branch: ${cells.length === 1 ? 'it stays and is' : 'they stay and are'} marked.`)
      : null;
  }

  /** What would change, in the notebook's order. @param {Partial<CellVersion>[]} versions @param {Cell | null} only */
  changes(versions, only) {
    const { marks } = this.gutter;
    const byId = new Map(versions.map((one) => [one.cell_id, one]));
    /** @type {Change[]} */
    const found = [];
    for (const cell of only ? [only] : this.content.widgets) {
      const version = byId.get(cell.model.id);
      const runs = marks.running === cell.model.id || marks.queued.has(cell.model.id);
      if (!version || cell.model.type !== 'code') continue;
      byId.delete(cell.model.id);
      const mark = marks.cells.get(cell.model.id) ?? {};
      const now = cell.model.sharedModel.getSource();
      const shown = this.gutter.shownBy(cell, mark);
      const text = fingerprint(now) !== version.digest;
      const bare = cell.model.executionCount === null && !cell.model.outputs.length && list(version.outputs).length > 0;
      const output = shown !== version.execution_id || bare || this.gutter.misses(cell);
      const typed = text && Boolean(this.gutter.look(cell)?.edited);
      if (!runs && (text || output)) found.push({ cell, version, text, output, typed, now, chosen: output });
    }
    // What ran here and is in the notebook no more: it comes back only where it is asked for.
    if (!only)
      for (const version of byId.values())
        found.push({ cell: null, version, text: true, output: true, typed: false, now: '', chosen: false });
    return found;
  }

  /** @param {Change} change */
  drawChange(change) {
    const { version, cell } = change;
    const name = nameOf(String(version.execution_id));
    const box = h('input', { type: 'checkbox', onchange: () => (change.chosen = box.checked) });
    box.checked = change.chosen;
    const tags = [
      !cell && 'not in the notebook: put it back',
      cell && change.text && 'text differs',
      change.output && cell && `output of ${name}`,
      change.typed && 'you edited it: your text is kept',
      version.masked && change.text && 'a secret in the text is masked: the text stays',
      version.cut && clean(version.cut)
    ].filter(Boolean);
    return h(
      'section',
      { class: 'ctxk-change' },
      h('label', { class: 'ctxk-changehead' }, box, h('b', null, name), tags.map((tag) => h('span', { class: 'ctxk-changetag' }, tag))),
      change.text && version.source !== null && drawDiff(change.now, String(version.source ?? '')),
      change.output && drawOutputs(list(version.outputs))
    );
  }

  /** Put versions into the notebook. @param {Change[]} changes */
  async apply(changes) {
    const { here } = this.gutter.marks;
    /** @type {Before[]} */
    const replaced = [];
    for (const one of changes) {
      const version = await this.whole(one.version);
      if (one.cell && !one.cell.isDisposed) replaced.push(this.show(one.cell, version));
      else if (!one.cell) this.putBack(version);
    }
    this.replaced = replaced;
    this.gutter.draw(null);
    this.host.offer({
      text: `${plural(changes.length, 'cell is', 'cells are')} shown as at ${here}.`,
      button: 'Take it back',
      run: () => this.takeBack()
    });
  }

  /** A version with what was left out of the answer for all cells. @param {Partial<CellVersion>} version */
  async whole(version) {
    if (!version.cut || (version.source !== null && list(version.outputs).length)) return version;
    const answer = await askKernel(this.host.ask, 'cells', {
      at: version.execution_id ?? null,
      cell: String(version.cell_id)
    });
    return ('cells' in answer && answer.cells?.cells[0]) || version;
  }

  /** Show a version in a cell. Returns what was there. @param {Cell} cell @param {Partial<CellVersion>} version @returns {Before} */
  show(cell, version) {
    const { model } = cell;
    const mark = this.gutter.marks.cells.get(model.id) ?? {};
    const { sharedModel } = model;
    const now = sharedModel.getSource();
    const look = this.gutter.look(cell);
    const before = { model, source: now, outputs: model.outputs.toJSON(), count: model.executionCount, said: dict(model.getMetadata('ctxkernel')) };
    const replaces = !version.masked && typeof version.source === 'string' && fingerprint(now) !== version.digest;
    // Without a prompt the cell does not count as edited by JupyterLab's mark.
    model.executionCount = null;
    if (replaces) {
      this.kept.add(model, now, look?.edited ? '' : (look?.name ?? ''));
      setText(model, String(version.source));
    }
    model.outputs.fromJSON(list(version.outputs));
    model.executionCount = version.count ?? null;
    settle(model);
    const { shows: _, ...said } = dict(model.getMetadata('ctxkernel'));
    const shows = { execution: version.execution_id, newest: mark.execution_id, digest: version.digest };
    setMetadata(model, version.execution_id === mark.execution_id ? said : { ...said, shows });
    return before;
  }

  /** Insert a cell that ran here and was deleted: after the cell that ran before it. @param {Partial<CellVersion>} version */
  putBack(version) {
    const { model } = this.content;
    if (!model || version.masked || typeof version.source !== 'string') return;
    const { sharedModel } = model;
    const at = Math.max(0, this.content.activeCellIndex) + 1;
    const mark = this.gutter.marks.cells.get(String(version.cell_id)) ?? {};
    const shows = { execution: version.execution_id, newest: mark.execution_id, digest: version.digest };
    sharedModel.insertCell(Math.min(at, sharedModel.cells.length), {
      cell_type: 'code',
      id: version.cell_id,
      source: version.source,
      outputs: version.outputs,
      execution_count: version.count,
      metadata: version.execution_id === mark.execution_id ? { trusted: true } : { trusted: true, ctxkernel: { shows } }
    });
  }

  /** Undo the last change of cells: texts, outputs and prompts as they were. */
  takeBack() {
    for (const { model, source, outputs, count, said } of this.replaced) {
      if (!this.content.widgets.some((cell) => cell.model === model)) continue;
      const now = model.sharedModel.getSource();
      // What was typed since is kept, too.
      if (now !== source) {
        const shown = dict(dict(model.getMetadata('ctxkernel')).shows);
        if (fingerprint(now) !== shown.digest) this.kept.add(model, now, '');
        setText(model, source);
      }
      model.outputs.fromJSON(outputs);
      model.executionCount = count;
      setMetadata(model, said);
      this.kept.remove(model, source);
    }
    this.replaced = [];
    this.gutter.draw(null);
    this.consider();
  }

  /** Compare the texts that are kept with a cell, and take one back. @param {Cell} cell */
  compareKept(cell) {
    const { model } = cell;
    const texts = this.kept.of(model);
    const now = model.sharedModel.getSource();
    openSheet({
      title: texts.length ? 'Texts that are kept with this cell' : 'No text is kept with this cell',
      body: texts.map((one) => {
        const when = new Date(one.at * 1000).toLocaleString([], { dateStyle: 'short', timeStyle: 'short' });
        const part = h('section', { class: 'ctxk-change' });
        /** @param {string} text @param {() => void} run */
        const act = (text, run) => {
          const onclick = () => {
            run();
            const next = part.closest('[role=dialog]');
            part.remove();
            if (next instanceof HTMLElement) next.focus();
          };
          return h('button', { class: 'ctxk-linkbutton', type: 'button', onclick }, text);
        };
        put(
          part,
          h(
            'p',
            { class: 'ctxk-changehead' },
            h('b', null, one.of ? `Ran as ${clean(one.of)}` : 'Typed, did not run'),
            h('span', { class: 'ctxk-changetag' }, `kept ${when}`)
          ),
          drawDiff(now, one.source),
          h(
            'p',
            { class: 'ctxk-changehead' },
            act('Take it back', () => {
              const text = model.sharedModel.getSource();
              setText(model, one.source);
              this.kept.remove(model, one.source);
              this.kept.add(model, text, '');
            }),
            act('Forget it', () => this.kept.remove(model, one.source))
          )
        );
        return part;
      }),
      cancel: 'Close'
    });
  }
}

/**
 * Set a cell's text as one step that the user's undo takes back. Only what differs is replaced: what others type into the
 * rest at the same time stays where it is.
 * @param {CellModel} model @param {string} source
 */
function setText(model, source) {
  const { sharedModel } = model;
  const now = sharedModel.getSource();
  const most = Math.min(now.length, source.length);
  let start = 0;
  while (start < most && now[start] === source[start]) start += 1;
  let end = 0;
  while (end < most - start && now[now.length - 1 - end] === source[source.length - 1 - end]) end += 1;
  // Not between the two halves of a character.
  if (start && isHigh(now.charCodeAt(start - 1))) start -= 1;
  if (end && isLow(now.charCodeAt(now.length - end))) end -= 1;
  sharedModel.undoManager?.stopCapturing?.();
  sharedModel.updateSource(start, now.length - end, source.slice(start, source.length - end));
  sharedModel.undoManager?.stopCapturing?.();
}

/** Whether a code unit is the first or the second half of a character. @param {number} code */
const isHigh = (code) => code >= 0xd800 && code < 0xdc00;
/** @param {number} code */
const isLow = (code) => code >= 0xdc00 && code < 0xe000;

/** Have JupyterLab take the text for the one that ran; older versions do so by themselves. @param {CellModel} model */
function settle(model) {
  try {
    if ('isDirty' in model) model.isDirty = false;
  } catch {
    // It cannot be set there.
  }
}

/** Outputs for a look at them: their text, and pictures. @param {readonly any[]} outputs */
function drawOutputs(outputs) {
  if (!outputs.length) return h('p', { class: 'ctxk-sheethint' }, 'no output');
  return h('div', { class: 'ctxk-changeoutput' }, outputs.map((one) => drawOutput(dict(one))));
}

/** @param {any} one */
function drawOutput(one) {
  if (one.output_type === 'error') return h('pre', null, clean(`${one.ename}: ${one.evalue}`).slice(0, SHOWN_CHARS));
  const data = dict(one.data);
  const picture = Object.entries(data).find(
    ([mime, value]) => /^image\/(png|jpeg|gif)$/.test(mime) && typeof value === 'string' && /^[A-Za-z0-9+/=\s]+$/.test(value)
  );
  if (picture) return h('img', { alt: 'Picture of the output', src: `data:${picture[0]};base64,${picture[1].replace(/\s/g, '')}` });
  const raw = one.text ?? data['text/plain'] ?? `(${Object.keys(data).join(', ') || 'no text'})`;
  const text = clean(Array.isArray(raw) ? raw.join('') : raw);
  return h('pre', null, text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}\n… ${text.length - SHOWN_CHARS} more characters` : text);
}

export { CellVersions };
