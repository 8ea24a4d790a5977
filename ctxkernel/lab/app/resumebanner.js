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
  const whole = offer.restorable && offer.restorable === offer.head;
  return h(
    'div',
    { class: 'ctxk-banner ctxk-tone-info ctxk-resume', 'data-banner': 'resume' },
    h('strong', { role: 'status' }, resuming ? 'Resuming the session…' : 'This notebook has a session to go on with'),
    h(
      'p',
      null,
      [`${plural(number(offer.statements) ?? 0, 'statement')}`, when && `last at ${when}`].filter(Boolean).join(', '),
      '.'
    ),
    h(
      'p',
      null,
      offer.restorable
        ? `Resume brings back variables, handles and timeline as they were after ${clean(offer.restorable).replace(/\.1$/, '')}${whole ? '' : `; what came after it, up to ${clean(offer.head).replace(/\.1$/, '')}, is in the timeline only`}.`
        : 'Resume brings back the timeline; the variables cannot be restored.',
      offer.reason ? ` (${offer.reason})` : ''
    ),
    offer.interrupted &&
      h(
        'p',
        null,
        'It was interrupted in ',
        h('code', null, headline(offer.interrupted)),
        ', which is not run again.'
      ),
    h(
      'div',
      { class: 'ctxk-buttons' },
      view.actions.gesture
        ? h(
            'button',
            {
              class: 'ctxk-button ctxk-primary',
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
          title: 'Nothing is lost: the old timeline stays in the session',
          onclick: () => {
            returning.turnedDown.add(key);
            view.drawBanners();
          }
        },
        'Start fresh'
      )
    )
  );
}

export { resumeBanner };
