/** The line at the foot of the panel: how much the checkpoints take, and what is not on the disk yet. */

import { h, put } from './elements.js';
import { icon } from './icons.js';
import { clean } from './text.js';
import { bytes, list, number } from './values.js';

/** @import {Storage} from '../messages.js' */

/** From this share of the quota on the storage line warns. */
const NEARLY_FULL = 0.9;

/** @param {HTMLElement} el @param {Partial<Storage> | null | undefined} s */
function drawStorage(el, s) {
  const used = number(s?.bytes);
  const quota = number(s?.quota);
  const pending = number(s?.pending_bytes) ?? 0;
  const waited = number(s?.pending_s) ?? 0;
  const faults = list(s?.faults).map(String);
  const full = used !== null && quota ? used / quota : 0;
  el.replaceChildren();
  el.classList.toggle('ctxk-full', full >= NEARLY_FULL);
  if (!s || used === null) return;
  el.title = clean(
    [
      ...faults,
      `Checkpoints: ${bytes(used)}${quota ? ` of ${bytes(quota)} (${Math.round(100 * full)} %)` : ''}`,
      s.folder && `in ${s.folder}`,
      pending ? `${bytes(pending)} are not on the disk yet; until then they end with the kernel` : '',
      full >= NEARLY_FULL ? 'Nearly full: old large data will be deleted. ctxkernel gc, or CTXKERNEL_QUOTA_GB' : ''
    ]
      .filter(Boolean)
      .join('\n')
  );
  put(
    el,
    [
      faults.length > 0 && h('span', { class: 'ctxk-faulty' }, `▲ ${clean(faults.join(' · '))}`),
      pending > 0 &&
        h(
          'span',
          { class: 'ctxk-pending' },
          icon('writing'),
          `writing ${bytes(pending)}`,
          waited >= 1 ? h('span', { class: 'ctxk-wide' }, `, ${Math.round(waited)} s`) : ''
        ),
      h(
        'span',
        { class: 'ctxk-used' },
        bytes(used),
        quota ? h('span', { class: 'ctxk-wide' }, ` of ${bytes(quota)}`) : ''
      )
    ]
  );
}

export { drawStorage };
