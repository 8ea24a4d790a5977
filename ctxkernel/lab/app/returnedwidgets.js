/**
 * Draws the outputs of widgets anew that a kernel opens again, with their earlier ids, when it resumes a session.
 *
 * JupyterLab keeps drawing the models that the earlier kernel had: controls that reach nobody.
 */

import { dict, list } from './values.js';

/** @import {CellModel} from '../jupyterlab.js' */

const WIDGET_MIME = 'application/vnd.jupyter.widget-view+json';
/** A container is opened after its parts, and JupyterLab needs a moment to make the models of all. */
const TOGETHER_MS = 200;

class ReturnedWidgets {
  /** @param {() => Iterable<CellModel>} cells the cells of the notebook */
  constructor(cells) {
    this.cells = cells;
    /** The widgets that outputs showed before the kernel opened its first one; null until then. @type {Set<string> | null} */
    this.earlier = null;
    /** @type {Set<string>} */
    this.returned = new Set();
    this.timer = /** @type {number | undefined} */ (undefined);
  }

  /** Take in that another kernel runs: all widgets that are shown now are earlier ones. */
  forget() {
    this.earlier = null;
  }

  /** Take in that the kernel opened a comm. @param {Record<string, unknown>} content */
  opened({ target_name: target, comm_id: id }) {
    if (target !== 'jupyter.widget' || typeof id !== 'string') return;
    this.earlier ??= new Set([...this.cells()].flatMap(widgetsOf));
    if (!this.earlier.has(id)) return;
    this.returned.add(id);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), TOGETHER_MS);
  }

  /** Draw the outputs of the returned widgets. */
  draw() {
    const { returned } = this;
    this.returned = new Set();
    for (const { outputs } of this.cells()) if (widgetsOf({ outputs }).some((id) => returned.has(id))) outputs.fromJSON(outputs.toJSON());
  }

  /** The notebook was closed. */
  dispose() {
    clearTimeout(this.timer);
  }
}

/** The ids of the widgets that a cell's outputs show. @param {Pick<CellModel, 'outputs'>} model @returns {string[]} */
function widgetsOf({ outputs }) {
  return list(outputs?.toJSON()).flatMap((one) => {
    const id = dict(dict(dict(one).data)[WIDGET_MIME]).model_id;
    return typeof id === 'string' && id ? [id] : [];
  });
}

export { ReturnedWidgets };
