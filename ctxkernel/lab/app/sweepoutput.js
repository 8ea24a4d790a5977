/**
 * The output of a cell that is the table of a sweep, drawn as in the panel; a row goes to its state.
 *
 * Rule: a saved output may be of another session, whose states have the same names: it goes nowhere.
 */

import { h } from './elements.js';
import { SweepTable } from './sweeptable.js';
import { clean } from './text.js';
import { dict } from './values.js';

/** @import {MimeModel} from '../jupyterlab.js' */
/** @import {SweepOutput} from '../messages.js' */
/** @import {Parts} from './labparts.js' */
/** @import {Panel} from './panel.js' */

const SWEEP_MIME = 'application/vnd.ctxkernel.sweep+json';

/** @param {Parts} lab @param {Panel} panel */
function sweepOutput(lab, panel) {
  class SweepWidget extends lab.Widget {
    /** @param {MimeModel} model */
    renderModel(model) {
      /** @type {Partial<SweepOutput>} */
      const given = dict(model.data[SWEEP_MIME]);
      const note = h('p', { class: 'ctxk-hint', role: 'status' });
      const table = new SweepTable((branch, told) => {
        const goes = panel.linkOf(this.node)?.view.goToRow(clean(given.session), branch, told);
        if (goes) panel.show();
        else note.textContent = `${branch} is a state of another session than that of this notebook's kernel.`;
      });
      table.show(dict(given.sweep));
      this.node.replaceChildren(table.el, note);
      return Promise.resolve();
    }
  }
  panel.styles();
  const widget = new SweepWidget();
  widget.addClass('ctxk');
  widget.addClass('ctxk-output');
  return widget;
}

export { SWEEP_MIME, sweepOutput };
