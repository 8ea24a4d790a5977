/**
 * The output of a cell that shows a handle: the live widget where this kernel has it, else what was saved, as it was.
 *
 * Rule 1: JupyterLab's own renderer of widgets would say that it knows no such widget, in a notebook that was opened
 *         again say; the text beside it in the same output is better.
 * Rule 2: a widget that lives is not drawn anew when the text beside it changes: somebody may have a slider in hand.
 */

/** @import {MimeModel} from '../jupyterlab.js' */
/** @import {Parts} from './labparts.js' */
/** @import {Link} from './link.js' */

const HANDLE_MIME = 'application/vnd.ctxkernel.handle+json';
const WIDGET_MIME = 'application/vnd.jupyter.widget-view+json';
const HTML = 'text/html';
const NOT_LIVE = 'As it was saved. Run the cell to have it live.';

/**
 * @param {Parts} lab JupyterLab's parts
 * @param {(node: Node) => Link | null} linkOf the notebook that an element stands in
 */
function handleOutput(lab, linkOf) {
  class HandleOutput extends lab.Panel {
    /** @type {MimeModel | null} */
    model = null;
    live = false;

    /** @param {MimeModel} model */
    async renderModel(model) {
      this.model = model;
      if (this.live) return;
      const link = linkOf(this.node);
      if (!link) return; // Not in the page yet: onAfterAttach comes.
      const said = model.data[HANDLE_MIME]?.model_id;
      const id = typeof said === 'string' ? said : ''; // A saved output may hold anything.
      const widget = model.trusted && id && WIDGET_MIME in model.data;
      if (widget && link.kernel?.hasComm?.(id)) return this.widget(link, model);
      await this.saved(link, model);
      if (!widget || !(await knows(link, id)) || this.isDisposed || this.live) return;
      await this.widget(link, this.model);
    }

    /** The widget, drawn by whatever this notebook draws widgets with. @param {Link} link @param {MimeModel} model */
    async widget(link, model) {
      this.live = true;
      this.show(link, WIDGET_MIME, model);
    }

    /** Text, and why there is no more. @param {Link} link @param {MimeModel} model */
    async saved(link, model) {
      await this.show(link, HTML, model);
      const note = new lab.Widget();
      note.node.textContent = NOT_LIVE;
      note.node.style.cssText = 'color: var(--jp-ui-font-color2); font-size: var(--jp-ui-font-size1); padding: 0 0 4px';
      this.addWidget(note);
    }

    /** @param {Link} link @param {string} mime @param {MimeModel} model */
    show(link, mime, model) {
      for (const one of [...this.widgets]) one.dispose();
      const one = link.notebook.content.rendermime.createRenderer(mime);
      this.addWidget(one);
      return one.renderModel(model);
    }

    /** @override @param {unknown} msg */
    onAfterAttach(msg) {
      super.onAfterAttach(msg);
      if (this.model && !this.widgets.length) void this.renderModel(this.model);
    }
  }
  return new HandleOutput();
}

/**
 * Whether the kernel of a notebook has that widget; it answers when the cells that it was given have ended.
 * @param {Link} link
 * @param {string} id
 */
async function knows(link, id) {
  try {
    await link.connection.context.ready; // A notebook is drawn before its kernel is found.
    const found = await link.kernel?.requestCommInfo({ target_name: 'jupyter.widget' });
    return id in (found?.content.comms ?? {});
  } catch {
    return false; // There is none, or it went away.
  }
}

export { HANDLE_MIME, handleOutput };
