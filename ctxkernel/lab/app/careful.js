/**
 * Outputs of ours that do not fail.
 *
 * Rule: a saved output may hold anything. JupyterLab builds the cells of a notebook one after the other, and one error
 *       while it draws an output leaves out all cells below it.
 */

/** @import {Renderer} from '../jupyterlab.js' */

/** Show a sentence in place of an output that cannot be drawn. @template {Renderer} T @param {T} renderer @returns {T} */
function careful(renderer) {
  const render = renderer.renderModel.bind(renderer);
  renderer.renderModel = async (model) => {
    try {
      await render(model);
    } catch (fault) {
      console.error('ctxkernel: an output cannot be drawn', fault);
      const told = document.createElement('p');
      told.className = 'ctxk-hint';
      told.textContent = 'This output cannot be shown: it is not as ctxkernel wrote it. Run the cell again.';
      renderer.node.append(told);
    }
  };
  return renderer;
}

export { careful };
