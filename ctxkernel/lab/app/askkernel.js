/** Questions to the kernel. */

import { reasonOf } from './text.js';

/** @import {Answers, Ask, Requests} from '../types.js' */

/**
 * Ask the kernel, where the host can. The answer never fails: where there is none, `error` says why.
 * @template {keyof Requests} Type
 * @param {Ask | undefined} ask
 * @param {Type} type
 * @param {Requests[Type]} request
 * @returns {Promise<Answers[Type] | {error: string}>}
 */
async function askKernel(ask, type, request) {
  if (!ask) return { error: 'This panel cannot ask the kernel.' };
  try {
    return await ask(type, request);
  } catch (error) {
    return { error: `The kernel did not answer: ${reasonOf(error)}` };
  }
}

export { askKernel };
