/** How the connection to a kernel can stand where it is not live, and what the panel says of it. */

/**
 * What the panel says where there is nothing live to show.
 * @typedef {object} Phase
 * @property {string} name for tests and styles
 * @property {'wait' | 'info' | 'warn' | 'error'} tone
 * @property {string} title
 * @property {string} [text]
 * @property {string} [code] a line to run
 * @property {string} [after] text after the code
 * @property {string} [button] label of the button that reconnects
 */

/** What the panel says where it is not live. @satisfies {Record<string, (name: string) => Phase>} */
const PHASES = {
  connecting: () => ({ name: 'connecting', tone: 'wait', title: 'Connecting to the kernel…' }),
  busy: () => ({
    name: 'busy',
    tone: 'wait',
    title: 'The kernel is busy',
    text: 'A cell is running. The panel fills when it ends.'
  }),
  restarting: () => ({
    name: 'restarting',
    tone: 'wait',
    title: 'The kernel restarts…',
    text: 'The panel comes back with it.'
  }),
  disconnected: () => ({
    name: 'disconnected',
    tone: 'warn',
    title: 'The connection to the kernel is lost',
    text: 'It is being restored. What you see is the last known state.'
  }),
  dead: () => ({
    name: 'dead',
    tone: 'error',
    title: 'The kernel died',
    text: 'What you see is the last known state. Restart it: menu Kernel → Restart Kernel…'
  }),
  noKernel: () => ({
    name: 'no-kernel',
    tone: 'info',
    title: 'This notebook has no kernel',
    text: 'Choose “ctxkernel” in the kernel menu at the top right of the notebook.'
  }),
  closed: () => ({
    name: 'no-answer',
    tone: 'warn',
    title: 'The kernel closed the panel’s connection',
    text: 'Reconnect, or restart the kernel if that does not help.',
    button: 'Reconnect'
  }),
  noAnswer: () => ({
    name: 'no-answer',
    tone: 'warn',
    title: 'The kernel does not answer',
    text: 'It may lack ctxkernel. Load the extension in a cell, then reconnect:',
    code: '%load_ext ctxkernel',
    after: 'Or choose the kernel “ctxkernel” (menu Kernel → Change Kernel…).',
    button: 'Reconnect'
  }),
  shared: () => ({
    name: 'no-answer',
    tone: 'info',
    title: 'Another view of this kernel is open',
    text: 'JupyterLab lets one document per kernel have the panel’s connection. Go to the other one, or close it and reconnect.',
    button: 'Reconnect'
  }),
  other: (name) => ({
    name: 'other',
    tone: 'info',
    title: 'ctxkernel is not loaded here',
    text: `This notebook runs on “${name}”. Load ctxkernel in a cell, then connect:`,
    code: '%load_ext ctxkernel',
    after: 'Or choose the kernel “ctxkernel” (menu Kernel → Change Kernel…), which also opens this panel by itself.',
    button: 'Connect'
  })
};

/** The words of the header, by the name of the phase. @type {Record<string, string>} */
const PHASE_WORDS = {
  connecting: 'connecting',
  busy: 'busy',
  other: 'not ctxkernel',
  'no-answer': 'no answer',
  'no-kernel': 'no kernel',
  restarting: 'restarting',
  dead: 'kernel died',
  disconnected: 'disconnected'
};

export { PHASES, PHASE_WORDS };
