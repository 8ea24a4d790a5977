/**
 * *Save session as HTML*: the kernel makes the page, and the browser downloads it.
 *
 * Rule 1: the page comes by the control channel: Jupyter servers drop messages of other channels above a rate.
 */

import { h } from './elements.js';
import { openSheet } from './sheet.js';
import { reasonOf } from './text.js';
import { list, plural } from './values.js';

/** @import {Link} from './link.js' */

const TITLE = 'Save session as HTML';
/** A page that takes longer has a dialog that says so, in milliseconds. */
const SOON_MS = 500;
/** Lines on what the page leaves out that are shown. */
const LINES = 20;

/** @param {Link} link */
async function savePage(link) {
  const job = { stopped: false, ended: false };
  setTimeout(() => {
    if (job.ended) return;
    openSheet({
      title: TITLE,
      body: h('p', { role: 'status' }, 'The kernel makes the page…'),
      cancel: 'Stop',
      closed: () => (job.stopped = !job.ended)
    });
  }, SOON_MS);
  const { context } = link.notebook;
  // The page has the notebook's Markdown cells, which the kernel reads from the file.
  if (context.model.dirty && !context.model.readOnly) await context.save();
  const answer = await link.hands.askByControl('export', {}).catch((/** @type {unknown} */ error) => ({ error: reasonOf(error) }));
  job.ended = true;
  if (job.stopped) return;
  const page = 'export' in answer ? answer.export : null;
  if (!page) return openSheet({ title: TITLE, body: h('p', null, answer.error || 'The kernel gave no page.'), cancel: 'Close' });
  download(page.name, page.text);
  const left = list(page.left_out);
  openSheet({
    title: TITLE,
    body: [
      h('p', { role: 'status' }, `${page.name} is in the browser’s downloads.`),
      left.length > 0 && h('p', null, `It leaves out ${plural(left.length, 'thing')}:`),
      left.length > 0 && h('ul', null, left.slice(0, LINES).map((line) => h('li', null, line)))
    ],
    cancel: 'Close'
  });
}

/** @param {string} name @param {string} text */
function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/html' }));
  h('a', { href: url, download: name }).click();
  // Not at once: the browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export { savePage };
