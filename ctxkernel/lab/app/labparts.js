/** The parts of JupyterLab that the plugin has, and what is made of them alone: colours of code, outputs, icons. */

/** @import {Application, CodeCell, CommandArgs, Editors, KernelMessages, LabIcon} from '../jupyterlab.js' */
/** @import {NotebookActions, NotebookTracker, Palette, RenderMime} from '../jupyterlab.js' */
/** @import {SettingRegistry, StateDB, StatusBar} from '../jupyterlab.js' */

/**
 * The parts of JupyterLab that we have.
 * @typedef {object} Parts
 * @property {Application} app
 * @property {NotebookTracker} tracker
 * @property {Palette | null} palette
 * @property {SettingRegistry | null} settings
 * @property {StateDB | null} state
 * @property {string} version
 * @property {typeof import('../jupyterlab.js').Widget} Widget
 * @property {typeof import('../jupyterlab.js').BoxOfWidgets} Panel
 * @property {typeof import('../jupyterlab.js').Menu} Menu
 * @property {StatusBar | null} statusBar
 * @property {LabIcon} LabIcon
 * @property {KernelMessages} KernelMessage
 * @property {CodeCell} CodeCell
 * @property {NotebookActions} NotebookActions
 * @property {((code: string, el: HTMLElement) => void) | undefined} highlight
 * @property {((data: Record<string, unknown>, el: HTMLElement) => boolean) | undefined} render
 */

const ID = 'jupyter-ctxkernel:plugin';
const PANEL_ID = 'ctxkernel-panel';
/** Outputs that JupyterLab draws in the details of a statement, the best first. */
const RENDERED = ['text/html', 'text/markdown', 'text/latex'];

/**
 * The palette lists a command among those of all extensions; in our menu its place says enough.
 * @param {string} label @returns {(args: CommandArgs) => string}
 */
const labelOf = (label) => (args) => (args.isPalette ? `ctxkernel: ${label}` : label);

const RERUN_ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3" fill="#616161">
    <path d="M5.2 4.5 2 7.7l3.2 3.2 1.2-1.2-1.2-1.1H9V7H5.2l1.2-1.2zM10.5 5v14l11-7z"/>
  </g></svg>`;

const AFFECTED_ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3" fill="#616161">
    <path d="M3 4h8v2.5H3zM3 10.75h5v2.5H3zM3 17.5h8V20H3zM12 6v12l9-6z"/>
  </g></svg>`;

const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3" fill="#616161">
    <path d="M5 3h2v18H5z"/>
    <circle cx="6" cy="6" r="3"/><circle cx="6" cy="12.5" r="2.2"/><circle cx="6" cy="19" r="2.2"/>
    <path d="M11 5h10v2H11zM11 11.5h7v2h-7zM11 18h9v2h-9z"/>
  </g></svg>`;

/**
 * What adds Python code to an element in JupyterLab's colours, as text; undefined where Lab has none to give.
 * @param {Editors | undefined} editors
 */
function highlighter(editors) {
  if (!editors?.highlight) return undefined;
  const highlight = editors.highlight.bind(editors);
  /** @param {string} code @param {HTMLElement} el */
  return (code, el) => {
    const whole = document.createTextNode(code);
    el.append(whole);
    const box = document.createElement('code');
    void Promise.resolve(highlight(code, editors.findByName('python'), box))
      .then(() => box.textContent === code && whole.replaceWith(box))
      .catch(() => {});
  };
}

/**
 * What shows an output of a session in an element, as JupyterLab shows outputs of a notebook that is not trusted: HTML
 * without scripts, and nothing that could run.
 * @param {RenderMime | null} rendermime
 */
function outputRenderer(rendermime) {
  if (!rendermime?.createRenderer) return undefined;
  /** @param {Record<string, unknown>} data @param {HTMLElement} el */
  return (data, el) => {
    const mime = RENDERED.find((one) => typeof data[one] === 'string');
    if (!mime) return false;
    const model = rendermime.createModel({ data, trusted: false });
    const renderer = rendermime.createRenderer(mime);
    void renderer.renderModel(model).catch(() => {});
    el.append(renderer.node);
    return true;
  };
}

export { AFFECTED_ICON, ICON, ID, PANEL_ID, RERUN_ICON, highlighter, outputRenderer, labelOf };
