/** The offer to go on with the session of an earlier kernel. */

import { codeLine } from './components.js';
import { h } from './elements.js';
import { clean, headline } from './text.js';
import { number, plural } from './values.js';

/** @import {Returning} from './returning.js' */

/** @param {Returning} returning */
function resumeBanner(returning) {
  const { view } = returning;
  const offer = view.resume;
  if (!offer) return null;
  const key = `${view.session}\0${offer.head}\0${offer.at}`;
  if (returning.turnedDown.has(key)) return null;
  const at = number(offer.at);
  const when =
    at === null
      ? ''
      : new Date(at * 1000).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
  const { resuming } = returning;
  const name = (/** @type {unknown} */ execution) => clean(execution).replace(/\.1$/, '');
  const begun = view.rows.size > 0;
  const whole = offer.restorable && offer.restorable === offer.head;
  const left = whole ? '' : `; what came after it, up to ${name(offer.head)}, is in the timeline only`;
  const since = begun ? ' What ran in this kernel stays in the timeline, on a branch of its own.' : '';
  const title = begun ? 'An earlier session is kept' : 'This notebook has an earlier session';
  return h(
    'div',
    { class: 'ctxk-banner ctxk-tone-info ctxk-resume', 'data-banner': 'resume' },
    h('strong', { role: 'status' }, resuming ? 'Resuming the session…' : title),
    h('p', null, [plural(number(offer.statements) ?? 0, 'statement'), when && `last at ${when}`].filter(Boolean).join(', '), '.'),
    h(
      'p',
      null,
      offer.restorable
        ? `Resume brings back variables, handles and timeline as they were after ${name(offer.restorable)}${left}.${since}`
        : `Resume brings back the timeline; the variables cannot be restored.${since}`,
      offer.reason ? ` (${offer.reason})` : ''
    ),
    offer.interrupted &&
      h('p', null, 'It was interrupted in ', h('code', null, headline(offer.interrupted)), ', which is not run again.'),
    h(
      'div',
      { class: 'ctxk-buttons' },
      view.actions.gesture
        ? h(
            'button',
            {
              class: begun ? 'ctxk-button' : 'ctxk-button ctxk-primary',
              type: 'button',
              disabled: resuming,
              onclick: () => returning.resume()
            },
            'Resume'
          )
        : codeLine('%ctx resume'),
      h(
        'button',
        {
          class: 'ctxk-button',
          type: 'button',
          disabled: resuming,
          title: 'Nothing is lost: `%ctx resume` goes on with it later',
          onclick: () => {
            returning.turnedDown.add(key);
            view.drawBanners();
          }
        },
        begun ? 'Dismiss' : 'Start fresh'
      )
    )
  );
}

export { resumeBanner };
