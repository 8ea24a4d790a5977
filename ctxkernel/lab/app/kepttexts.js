/**
 * Texts of cells that were replaced when a cell was shown as at another state: none that somebody typed is lost.
 *
 * Rule 1: a text is kept in the metadata of its cell, so it is saved with the notebook and others who edit it have it too.
 *         Each has a key of its own: of two values for one key, set on two pages at a time, only one remains.
 * Rule 2: until the notebook is saved, the browser's own storage has it as well: a page can be reloaded without saving.
 */

import { dict, list, textOf } from './values.js';

/** @import {CellModel} from '../jupyterlab.js' */

/**
 * @typedef {object} KeptText
 * @property {string} source
 * @property {string} of the execution that ran it, as a reader calls it; empty: it was typed and did not run
 * @property {number} at Unix time
 */

/** Texts that are kept with a cell, the newest ones. */
const MOST = 5;
/** Prefix of the keys in the metadata. */
const KEY = 'ctxkernel-kept-';
/** Prefix of the browser's items. */
const PREFIX = 'ctxkernel:kept:';

class KeptTexts {
  /** @param {() => string} path of the notebook */
  constructor(path) {
    this.path = path;
  }

  /** Those of a cell, the newest first. @param {CellModel} model @returns {KeptText[]} */
  of(model) {
    const own = [...keptIn(model).map(([, one]) => one), ...list(this.unsaved()[model.id])];
    /** @type {Map<string, KeptText>} */
    const found = new Map();
    for (const one of own.map(dict)) {
      const source = textOf(one.source);
      if (source && !found.has(source)) found.set(source, { source, of: textOf(one.of), at: Number(one.at) || 0 });
    }
    return [...found.values()].sort((a, b) => b.at - a.at);
  }

  /** Keep a text. @param {CellModel} model @param {string} source @param {string} of */
  add(model, source, of) {
    if (!source.trim()) return;
    const others = this.of(model).filter((one) => one.source !== source);
    this.replace(model, [{ source, of, at: Date.now() / 1000 }, ...others].slice(0, MOST));
  }

  /** Forget a text. @param {CellModel} model @param {string} source */
  remove(model, source) {
    this.replace(
      model,
      this.of(model).filter((one) => one.source !== source)
    );
  }

  /** @param {CellModel} model @param {KeptText[]} texts */
  replace(model, texts) {
    const { sharedModel } = model;
    const known = keptIn(model);
    /** @param {KeptText} one @param {Record<string, any>} other */
    const same = (one, other) => one.source === other.source && one.at === other.at;
    for (const [key, one] of known) if (!texts.some((text) => same(text, one))) sharedModel.deleteMetadata(key);
    for (const text of texts)
      if (!known.some(([, one]) => same(text, one)))
        sharedModel.setMetadata(KEY + Math.random().toString(36).slice(2, 10), text);
    const { [model.id]: _, ...others } = this.unsaved();
    this.store(texts.length ? { ...others, [model.id]: texts } : others);
  }

  /** The notebook is saved: the file has them all. */
  saved() {
    this.store({});
  }

  /** @returns {Record<string, any>} */
  unsaved() {
    try {
      return dict(JSON.parse(localStorage.getItem(PREFIX + this.path()) ?? '{}'));
    } catch {
      return {};
    }
  }

  /** @param {Record<string, any>} texts */
  store(texts) {
    try {
      if (Object.keys(texts).length) localStorage.setItem(PREFIX + this.path(), JSON.stringify(texts));
      else localStorage.removeItem(PREFIX + this.path());
    } catch {
      // No storage, or a full one: the metadata of the cells have them.
    }
  }
}

/** The keys and values of the texts in the metadata of a cell. @param {CellModel} model @returns {[string, Record<string, any>][]} */
function keptIn({ sharedModel }) {
  return Object.entries(dict(sharedModel.getMetadata()))
    .filter(([key]) => key.startsWith(KEY))
    .map(([key, one]) => [key, dict(one)]);
}

/** Set our metadata of a cell; none where there is nothing to say. @param {CellModel} model @param {object} said */
function setMetadata(model, said) {
  const { sharedModel } = model;
  if (Object.keys(said).length) sharedModel.setMetadata('ctxkernel', said);
  else if (model.getMetadata('ctxkernel') !== undefined) sharedModel.deleteMetadata('ctxkernel');
}

export { KeptTexts, setMetadata };
