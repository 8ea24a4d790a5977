/** Which versions of the front end and of the kernel fit each other, and what to say where they do not. */

import { clean } from './text.js';

/** The wire protocol that this front end speaks. */
const PROTOCOL = 1;

/**
 * Whether version `a` is newer than `b`; a part that is no number counts as 0.
 * @param {string} a @param {string} b
 */
function newer(a, b) {
  /** @param {string} v */
  const parts = (v) =>
    clean(v)
      .split('.')
      .map((p) => parseInt(p, 10) || 0);
  const [x, y] = [parts(a), parts(b)];
  for (let i = 0; i < Math.max(x.length, y.length); i += 1) {
    if ((x[i] ?? 0) !== (y[i] ?? 0)) return (x[i] ?? 0) > (y[i] ?? 0);
  }
  return false;
}

/**
 * What to say where kernel and front end do not fit; null where they do.
 * @param {string | null | undefined} mine @param {string | null | undefined} theirs @param {number | null} protocol
 * @returns {{title: string, text: string, command: string} | null}
 */
function mismatch(mine, theirs, protocol) {
  if (!mine || !theirs || (mine === theirs && protocol === PROTOCOL)) return null;
  const command = 'pip install -U jupyter-ctxkernel';
  const title = 'The panel and the kernel are of different versions';
  const both = `The panel (JupyterLab) has ${mine}, the kernel has ${theirs}`;
  const speak =
    protocol === PROTOCOL ? '' : `; they speak protocols ${PROTOCOL} and ${protocol}, so parts may be missing`;
  const where =
    mine === theirs
      ? 'in both environments, JupyterLab’s and the kernel’s, then restart the kernel and reload this page'
      : newer(theirs, mine)
        ? 'in the environment of JupyterLab, then reload this page'
        : 'in the environment of the kernel, then restart the kernel';
  return { title, text: `${both}${speak}. Run this ${where}:`, command };
}

export { PROTOCOL, mismatch };
