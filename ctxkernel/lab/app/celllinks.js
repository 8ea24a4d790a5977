/** Links of command outputs to the cells of their notebook: `%ctx timeline` and others name statements by their cells. */

/**
 * Follow the links that stand in a notebook.
 * @param {HTMLElement} notebook
 * @param {(cellId: string) => void} goto shows a cell; one that the notebook lacks is nothing
 */
function followCellLinks(notebook, goto) {
  notebook.addEventListener(
    'click',
    (event) => {
      const link = event.target instanceof Element ? event.target.closest('a[data-ctxk-cell]') : null;
      if (!link) return;
      // Lab's own handler would change the address of the page.
      event.preventDefault();
      event.stopPropagation();
      goto(link.getAttribute('data-ctxk-cell') ?? '');
    },
    true
  );
}

export { followCellLinks };
