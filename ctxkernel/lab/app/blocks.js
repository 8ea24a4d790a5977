/**
 * The blocks of a projection, as the messages of the request: who speaks, what it costs, why it is there. What a person
 * can do with one is in blockactions.js.
 */

import { askKernel } from './askkernel.js';
import { actionsOf, redactForm, whose } from './blockactions.js';
import { statementLink } from './blocklinks.js';
import { bar, foldedText, pictureOf } from './components.js';
import { h, put } from './elements.js';
import { icon } from './icons.js';
import { madeLater } from './lazylist.js';
import { priced } from './pricing.js';
import { AUTHORS } from './rownames.js';
import { clean } from './text.js';
import { count, dict, list, number, plural } from './values.js';

/** @import {Block, History, RedactionEntry, Violation} from '../messages.js' */
/** @import {PricedItem} from './pricing.js' */
/** @import {View} from './view.js' */

/**
 * What the blocks of one projection are drawn with.
 * @typedef {object} Drawing
 * @property {View} view
 * @property {Map<string, Partial<Violation>[]>} broken violations by block
 * @property {Map<string, string>} pins reasons by event
 * @property {Map<string, Partial<RedactionEntry>>} redactions by event
 * @property {number} widest tokens of the largest block
 * @property {number} total tokens
 * @property {number | null} price US dollars a token of an image that is not in the cache; null where it is not known
 * @property {string} words what is searched for, in lower case; empty for nothing
 *
 * @typedef {{role: string, at: number | null, blocks: Partial<Block>[], tokens: number}} Message
 * @typedef {'human' | 'model' | 'kernel'} Speaker
 */

/** Kinds of blocks that are an image: of a cell, or of a handle. */
const IMAGES = new Set(['image', 'picture']);
/** @type {Record<string, Speaker>} */
const SPEAKERS = { statement: 'human', question: 'human', answer: 'model', thinking: 'model', call: 'model' };
/** Pictures that are kept. */
const MOST_PICTURES = 40;
/** Lines of a found block that are shown. */
const FOUND_LINES = 12;
/** Characters of a line that are shown around what was found. */
const FOUND_CHARS = 240;

/** @type {Record<string, string>} */
const ROLES = { user: 'User message', assistant: 'Assistant message', system: 'System message' };

/**
 * The id of the event that a block shows: blocks of one event are told apart after a `#`.
 * @param {Partial<Block>} block
 */
const eventOf = (block) => clean(block.id).split('#')[0];

/**
 * What is recorded about the events of the history: by event, what is pinned, and the redaction that stands or waits.
 * @param {History | null} history
 */
function marksOf(history) {
  const told = dict(history);
  const redactions = list(told.entries)
    .map((one) => /** @type {Partial<RedactionEntry>} */ (dict(one)))
    .filter((one) => one.kind === 'redaction' && ['applied', 'waiting'].includes(one.state ?? ''));
  return {
    pins: new Map(list(told.pins).map((one) => [clean(one?.target), clean(one?.reason)])),
    redactions: new Map(redactions.map((one) => [clean(one.target), one]))
  };
}

/**
 * Blocks put together as the messages that they stand in; `at` is the index in the request, null for the system text.
 * @param {Partial<Block>[]} blocks
 */
function messagesOf(blocks) {
  /** @type {Message[]} */
  const messages = [];
  let at = -1;
  for (const block of blocks) {
    const isText = block.kind === 'system';
    const role = isText ? 'text' : clean(block.role) || 'user';
    let last = messages[messages.length - 1];
    if (last?.role !== role) {
      last = { role, at: isText ? null : (at += 1), blocks: [], tokens: 0 };
      messages.push(last);
    }
    last.blocks.push(block);
    last.tokens += number(block.tokens) ?? 0;
  }
  return messages;
}

/**
 * The messages that the chosen blocks are in.
 * @param {View} view
 * @param {Partial<Block>[]} blocks all blocks
 * @param {Set<Partial<Block>>} chosen
 * @param {Map<string, Partial<Violation>[]>} broken violations by block
 * @param {string} words what is searched for, in lower case
 */
function drawMessages(view, blocks, chosen, broken, words) {
  const images = dict(dict(view.projection).images);
  const usd = number(images.usd);
  /** @type {Drawing} */
  const drawing = {
    view,
    broken,
    words,
    price: usd !== null && images.tokens ? usd / images.tokens : null,
    ...marksOf(view.history),
    widest: Math.max(1, ...blocks.map((block) => number(block.tokens) ?? 0)),
    total: blocks.reduce((sum, block) => sum + (number(block.tokens) ?? 0), 0)
  };
  return messagesOf(blocks).map((message) => {
    const ol = h('ol', { class: 'ctxk-blocks' });
    let speaker = '';
    for (const block of message.blocks) {
      if (!chosen.has(block)) continue;
      const by = SPEAKERS[block.kind ?? ''] ?? 'kernel';
      ol.append(drawBlock(drawing, block, by, by !== speaker));
      speaker = by;
    }
    if (!ol.childElementCount) return null;
    return h(
      'section',
      { class: 'ctxk-message', 'data-role': message.role },
      h(
        'h3',
        { class: 'ctxk-role' },
        h('span', null, message.at === null ? 'System text' : (ROLES[message.role] ?? message.role)),
        message.at === null ? '' : h('code', { title: 'its place in the request' }, `messages[${message.at}]`),
        h('span', { class: 'ctxk-space' }),
        h('span', { class: 'ctxk-tokens' }, `~${count(message.tokens)}`)
      ),
      ol
    );
  });
}

/**
 * The images of a block, by their digests: each is asked for when it comes into view.
 * @param {View} view
 * @param {Partial<Block>} block
 */
function picturesOf(view, block) {
  const digests = list(block.images).map(clean);
  return digests.map((digest, n) => {
    const known = view.pictures.get(digest);
    const name = digests.length > 1 ? `image ${n + 1} of ${clean(block.id)}` : `image of ${clean(block.id)}`;
    if (known) return copyOf(known, name);
    const box = h('div', { class: 'ctxk-picturewait' }, h('span', { class: 'ctxk-hint' }, 'Reading the image…'));
    const root = view.sections.projection;
    const seen = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        seen.disconnect();
        void askKernel(view.actions.ask, 'image', { of: digest }).then((answer) => {
          const picture = 'image' in answer ? pictureOf(answer.image) : null;
          if (!picture)
            return void box.replaceChildren(h('span', { class: 'ctxk-hint' }, clean(answer.error) || 'It cannot be shown.'));
          view.pictures.set(digest, picture);
          while (view.pictures.size > MOST_PICTURES) view.pictures.delete([...view.pictures.keys()][0]);
          box.replaceWith(copyOf(picture, name));
        });
      },
      { root, rootMargin: '800px 0px' }
    );
    seen.observe(box);
    return box;
  });
}

/** @param {HTMLImageElement} picture @param {string} name */
function copyOf(picture, name) {
  const copy = picture.cloneNode();
  if (copy instanceof HTMLImageElement) copy.alt = name;
  return copy;
}

/**
 * The lines of a text that have what is searched for, with marks.
 * @param {unknown} text
 * @param {string} words in lower case
 */
function foundText(text, words) {
  const lines = clean(text).split('\n');
  const found = lines.map((line, n) => ({ line, n })).filter(({ line }) => line.toLowerCase().includes(words));
  const shown = found.slice(0, FOUND_LINES).map(({ line, n }) => {
    const first = line.toLowerCase().indexOf(words);
    const start = Math.max(0, first - FOUND_CHARS / 2);
    let rest = line.slice(start, start + FOUND_CHARS);
    const parts = /** @type {(string | HTMLElement)[]} */ ([start ? '…' : '']);
    for (let at = rest.toLowerCase().indexOf(words); at >= 0; at = rest.toLowerCase().indexOf(words)) {
      parts.push(rest.slice(0, at), h('mark', { class: 'ctxk-found' }, rest.slice(at, at + words.length)));
      rest = rest.slice(at + words.length);
    }
    return h('span', { class: 'ctxk-foundline' }, h('span', { class: 'ctxk-lineno' }, count(n + 1)), ...parts, rest, '\n');
  });
  if (!shown.length) return null;
  const more = found.length - shown.length;
  return [h('pre', { class: 'ctxk-pre' }, shown), more > 0 && h('p', { class: 'ctxk-hint' }, `… and ${plural(more, 'more line')}`)];
}

/**
 * A block; its content is made when it comes near to what is seen.
 * @param {Drawing} drawing
 * @param {Partial<Block>} block
 * @param {Speaker} by
 * @param {boolean} isNew whether another one spoke before
 */
function drawBlock(drawing, block, by, isNew) {
  const id = String(block.id ?? '');
  const li = h(
    'li',
    {
      class: `ctxk-block ctxk-by-${by}${block.cached ? ' ctxk-cached' : ''}${drawing.broken.has(id) ? ' ctxk-broken' : ''}`,
      'data-block': id,
      tabindex: '-1'
    },
    `${clean(id)} ~${count(block.tokens)}`
  );
  return madeLater(li, id, () => fillBlock(li, drawing, block, by, isNew));
}

/**
 * @param {HTMLElement} li
 * @param {Drawing} drawing
 * @param {Partial<Block>} block
 * @param {Speaker} by
 * @param {boolean} isNew
 */
function fillBlock(li, drawing, block, by, isNew) {
  const { view, broken, pins, redactions, widest, total, price, words } = drawing;
  const pictures = picturesOf(view, block);
  const isImage = IMAGES.has(block.kind ?? '');
  const id = String(block.id ?? '');
  const event = eventOf(block);
  const tokens = number(block.tokens) ?? 0;
  /** @param {string} what */
  const key = (what) => `${id}\0${what}`;
  const isOpen = view.openBlocks.has(key('why'));
  const why = h(
    'p',
    { class: 'ctxk-why', hidden: !isOpen },
    block.why || 'No reason was given.',
    block.origin && h('span', { class: 'ctxk-origin' }, 'from ', statementLink(view, block.origin))
  );
  const whyButton = h(
    'button',
    {
      class: 'ctxk-link',
      type: 'button',
      'aria-expanded': String(isOpen),
      'aria-label': `Why ${clean(id)} is here`,
      title: 'Why this block is here',
      'data-keep': key('whybutton'),
      onclick: () => {
        why.hidden = !why.hidden;
        whyButton.setAttribute('aria-expanded', String(!why.hidden));
        view.openBlocks[why.hidden ? 'delete' : 'add'](key('why'));
      }
    },
    'why'
  );
  const share = total ? Math.round((100 * tokens) / total) : 0;
  const redaction = redactions.get(event);
  const items = actionsOf(view, block, event, pins.has(event), redaction);
  const faults = broken.get(id) ?? [];
  put(
    li,
    isNew && h('p', { class: 'ctxk-speaker' }, icon(by), AUTHORS[by]),
    h(
      'div',
      { class: 'ctxk-blockline' },
      h('code', { class: 'ctxk-blockid', title: id }, id),
      block.kind && clean(block.kind) !== id && h('span', { class: 'ctxk-tag' }, block.kind),
      pins.has(event) &&
        h(
          'span',
          { class: 'ctxk-tag ctxk-pinned', title: `pinned${pins.get(event) && `: ${pins.get(event)}`}` },
          icon('pin'),
          'pinned'
        ),
      redaction &&
        h(
          'span',
          { class: 'ctxk-tag ctxk-redacted', title: `by ${whose(redaction.by)}: ${clean(redaction.summary)}` },
          redaction.state === 'waiting' ? 'note waits' : 'redacted'
        ),
      h('span', { class: 'ctxk-space' }),
      h(
        'span',
        {
          class: block.cached ? 'ctxk-cachemark' : 'ctxk-freshmark',
          title: block.cached
            ? 'same bytes as in the last projection: a provider’s cache can serve it'
            : 'new or changed since the last projection'
        },
        block.cached ? 'cached' : 'fresh'
      ),
      isImage &&
        price !== null &&
        h('span', { class: 'ctxk-tokens', title: 'Its cost where it is not in the cache' }, `~$${(price * tokens).toFixed(4)}`),
      h('span', { class: 'ctxk-tokens', title: `${share} % of the total` }, `~${count(tokens)}`),
      whyButton,
      items.length > 0 && moreButton(view, block, key, items)
    ),
    bar(tokens / widest, faults.length ? 'error' : 'plain'),
    faults.map((fault) => h('p', { class: 'ctxk-fault' }, h('b', null, fault.rule), `: ${clean(fault.message)}`)),
    why,
    view.drafts.has(event) && id === event && redactForm(view, event),
    isImage && pictures.length
      ? null
      : ((words ? foundText(block.text, words) : null) ?? foldedText(view.openBlocks, key('all'), block.text)),
    pictures
  );
}

/** @param {View} view @param {Partial<Block>} block @param {(what: string) => string} key @param {PricedItem[]} items */
function moreButton(view, block, key, items) {
  const button = h(
    'button',
    {
      class: 'ctxk-more ctxk-blockmore',
      type: 'button',
      'aria-haspopup': 'menu',
      'aria-expanded': 'false',
      'aria-label': `What can be done with ${clean(block.id)}`,
      title: 'What can be done with it',
      'data-keep': key('more')
    },
    icon('more')
  );
  button.addEventListener('click', () => view.menu.open(button, `Block ${clean(block.id)}`, priced(view, items)));
  return button;
}

export { drawMessages };
