/** A cell that begins with `%%ask` holds text: JupyterLab would colour it as Python. */

/** @import {Cell, NotebookContent} from '../jupyterlab.js' */

const ASK = /^\s*%%ask\b/;
const TEXT = 'text/plain';

class AskCells {
  /** @param {NotebookContent} content of a notebook */
  constructor(content) {
    this.content = content;
    this.changed = () => {
      const cell = content.activeCell;
      if (cell) this.look(cell);
    };
    content.modelContentChanged?.connect(this.changed);
  }

  /** Look at all cells: the notebook or its kernel is new. */
  lookAtAll() {
    for (const cell of this.content.widgets) this.look(cell);
  }

  /** @param {Cell} cell */
  look(cell) {
    const { model } = cell;
    if (model.type !== 'code' || model.mimeType === undefined) return;
    const isAsk = ASK.test(model.sharedModel.getSource());
    if (isAsk === (model.mimeType === TEXT)) return;
    const code = this.content.codeMimetype;
    if (isAsk) model.mimeType = TEXT;
    else if (code) model.mimeType = code;
  }

  dispose() {
    this.content.modelContentChanged?.disconnect(this.changed);
  }
}

export { AskCells };
