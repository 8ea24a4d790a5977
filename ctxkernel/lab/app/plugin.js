/**
 * The plugin that JupyterLab activates: takes the parts of Lab that it needs, and starts the panel.
 *
 * Rule 1: the front end opens the comm. One that a kernel opens before this page knows its target is closed by Lab.
 * Rule 2: it opens by itself for kernels whose kernel_info says `ctxkernel`, and never for another.
 * Rule 3: every part of Lab that this needs is optional: where one is missing (Notebook 7's file list has no
 *         notebooks), the plugin does less and nothing breaks.
 * Rule 4: nothing is sent from here but the comm's messages; gestures are execute requests (notebook.js).
 */

import { careful } from './careful.js';
import { HANDLE_MIME, handleOutput } from './handleoutput.js';
import { ID, highlighter, outputRenderer } from './labparts.js';
import { PROPOSAL_MIME } from './notebook.js';
import { Panel } from './panel.js';
import { proposalWidget } from './proposaloutput.js';
import { SWEEP_MIME, sweepOutput } from './sweepoutput.js';

/** @import {Application, Editors, NotebookTracker, Palette} from '../jupyterlab.js' */
/** @import {RenderMime, SettingRegistry, StateDB, StatusBar} from '../jupyterlab.js' */
/** @import {Parts} from './labparts.js' */

/** A MIME type of lower rank is preferred; Markdown, which a proposal has too, has 60. */
const RANK = 10;
/** … and that of widgets has -10; the output of a handle, which is one too, draws it itself where it can. */
const HANDLE_RANK = -20;

/**
 * Make the plugin of the packages that Lab shares.
 * @param {(name: string) => Promise<any>} shared
 * @param {string} version
 */
async function createPlugin(shared, version) {
  const [
    { INotebookTracker, NotebookActions },
    { ICommandPalette },
    { ISettingRegistry },
    { IStateDB },
    { Menu: PlainMenu, Panel: BoxOfWidgets, Widget },
    { LabIcon, MenuSvg },
    { KernelMessage },
    { CodeCell },
    { IRenderMimeRegistry },
    languages,
    bars
  ] = await Promise.all(
    [
      '@jupyterlab/notebook',
      '@jupyterlab/apputils',
      '@jupyterlab/settingregistry',
      '@jupyterlab/statedb',
      '@lumino/widgets',
      '@jupyterlab/ui-components',
      '@jupyterlab/services',
      '@jupyterlab/cells',
      '@jupyterlab/rendermime'
    ]
      .map(shared)
      // Only for colours.
      .concat(shared('@jupyterlab/codemirror').catch(() => ({})))
      // Notebook 7 has no status bar.
      .concat(shared('@jupyterlab/statusbar').catch(() => ({})))
  );
  return {
    id: ID,
    description: 'The side panel of ctxkernel: timeline, handles, projection, changes.',
    autoStart: true,
    requires: [],
    optional: [
      INotebookTracker,
      ICommandPalette,
      ISettingRegistry,
      IStateDB,
      IRenderMimeRegistry,
      ...[languages.IEditorLanguageRegistry, bars.IStatusBar].filter(Boolean)
    ],
    /**
     * @param {Application} app
     * @param {NotebookTracker | null} tracker
     * @param {Palette | null} palette
     * @param {SettingRegistry | null} settings
     * @param {StateDB | null} state
     * @param {RenderMime | null} rendermime
     * @param {...any} others the languages of editors and the status bar, as far as Lab has them
     */
    activate(app, tracker, palette, settings, state, rendermime, ...others) {
      if (!tracker) return;
      const editors = /** @type {Editors | undefined} */ (others.find((one) => one?.findByName));
      const statusBar = /** @type {StatusBar | undefined} */ (others.find((one) => one?.registerStatusItem));
      /** @type {Parts} */
      const lab = {
        app,
        tracker,
        palette,
        settings,
        state,
        version,
        Widget,
        Panel: BoxOfWidgets,
        // Only JupyterLab's own draws check marks.
        Menu: MenuSvg ?? PlainMenu,
        statusBar: statusBar ?? null,
        LabIcon,
        KernelMessage,
        CodeCell,
        NotebookActions,
        highlight: highlighter(editors),
        render: outputRenderer(rendermime)
      };
      const panel = new Panel(lab);
      // Now: a notebook takes a copy of what is registered when it is opened.
      rendermime?.addFactory(
        { safe: true, mimeTypes: [PROPOSAL_MIME], createRenderer: () => careful(proposalWidget(lab, panel)) },
        RANK
      );
      rendermime?.addFactory(
        { safe: true, mimeTypes: [HANDLE_MIME], createRenderer: () => careful(handleOutput(lab, (node) => panel.linkOf(node))) },
        HANDLE_RANK
      );
      rendermime?.addFactory({ safe: true, mimeTypes: [SWEEP_MIME], createRenderer: () => careful(sweepOutput(lab, panel)) }, RANK);
      void panel.start();
    }
  };
}

export { createPlugin };
