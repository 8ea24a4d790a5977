/** The icons of the panel and of the marks. */

/** @satisfies {Record<string, string[]>} */
const ICONS = {
  human: ['M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6Z', 'M2.5 14a5.5 5.5 0 0 1 11 0Z'],
  agent: ['M7.25 1.5h1.5V4H13v9H3V4h4.25Zm-2.75 4v6h7v-6Zm1.5 1.75h1.5v2H6Zm2.5 0H10v2H8.5Z'],
  model: [
    'M8 1l1.6 4.4L14 7l-4.4 1.6L8 13 6.4 8.6 2 7l4.4-1.6Z',
    'M13 11l.7 1.8 1.8.7-1.8.7L13 16l-.7-1.8-1.8-.7 1.8-.7Z'
  ],
  panel: ['M2 2h12v12H2Zm1.5 1.5v9h5v-9Zm6.5 0v9h2.5v-9Z'],
  kernel: [
    'M5 1.5h1.3v1.8h3.4V1.5H11v1.8h1.7V5h1.8v1.3h-1.8v3.4h1.8V11h-1.8v1.7H11v1.8H9.7v-1.8H6.3v1.8H5v-1.8H3.3V11H1.5V9.7h1.8V6.3H1.5V5h1.8V3.3H5Z'
  ],
  redact: ['M2 3.6h12v1.3H2Zm0 3h12v2.8H2Zm0 4.5h7v1.3H2Z'],
  fold: ['M7.3 1.5h1.4v3l1.6-1.5.9 1L8 6.9 4.8 4l.9-1 1.6 1.5Zm0 13h1.4v-3l1.6 1.5.9-1L8 9.1 4.8 12l.9 1 1.6-1.5Z'],
  chevron: ['M6 4l4 4-4 4V4Z'],
  pin: ['M5 1.5h6v1.4l-1 .8v3.6l2 2v1.4H8.7V15h-1.4v-4.3H4V9.3l2-2V3.7l-1-.8Z'],
  search: ['M6.7 1.8a4.9 4.9 0 1 0 3 8.8l3.3 3.3 1-1-3.3-3.3a4.9 4.9 0 0 0-4-7.8Zm0 1.4a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7Z'],
  close: ['M3.4 2.4 8 7l4.6-4.6 1 1L9 8l4.6 4.6-1 1L8 9l-4.6 4.6-1-1L7 8 2.4 3.4Z'],
  more: [
    'M3.2 6.7a1.3 1.3 0 1 0 0 2.6 1.3 1.3 0 0 0 0-2.6Zm4.8 0a1.3 1.3 0 1 0 0 2.6 1.3 1.3 0 0 0 0-2.6Zm4.8 0a1.3 1.3 0 1 0 0 2.6 1.3 1.3 0 0 0 0-2.6Z'
  ],
  undo: ['M6.2 2.2 2 6.4l4.2 4.2 1-1-2.5-2.5h4.6a2.7 2.7 0 0 1 0 5.4H6V14h3.3a4.2 4.2 0 0 0 0-8.4H4.7l2.5-2.4Z'],
  fork: [
    'M4 1.6a1.9 1.9 0 0 0-.7 3.7v5.4a1.9 1.9 0 1 0 1.4 0V9.2c.5.3 1.2.4 2 .4h1.6c1.6 0 2.5-.7 2.7-2.3a1.9 1.9 0 1 0-1.4 0c-.1.7-.5.9-1.3.9H6.7c-1.3 0-2-.6-2-1.6V5.3A1.9 1.9 0 0 0 4 1.6Z'
  ],
  play: ['M4.5 3 13 8l-8.5 5Z'],
  flag: ['M3.4 1.6h1.3v.8h7.5l-1.7 3.1 1.7 3.1H4.7v5.8H3.4Z'],
  durable: ['M8 5.4a2.6 2.6 0 1 0 0 5.2 2.6 2.6 0 0 0 0-5.2Z'],
  partial: [
    'M8 4.2a3.8 3.8 0 1 0 0 7.6 3.8 3.8 0 0 0 0-7.6Zm0 1.3a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5Z',
    'M8 5.5a2.5 2.5 0 0 1 0 5Z'
  ],
  thinned: ['M8 4.2a3.8 3.8 0 1 0 0 7.6 3.8 3.8 0 0 0 0-7.6Zm0 1.3a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5Z'],
  writing: ['M8 3.6a4.4 4.4 0 1 0 4.4 4.4h-1.5A2.9 2.9 0 1 1 8 5.1Z'],
  skipped: ['M4.6 7.3h6.8v1.4H4.6Z'],
  damaged: ['M8 2.6 14.2 13.4H1.8Zm-.7 4v3.3h1.4V6.6Zm0 4.2v1.4h1.4v-1.4Z']
};

/** @typedef {keyof typeof ICONS} Icon */

/** Icons that were made: a copy costs less than a new one. @type {Map<Icon, SVGSVGElement>} */
const made = new Map();

/** @param {Icon} name */
function makeIcon(name) {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', `ctxk-icon ctxk-icon-${name}`);
  for (const d of ICONS[name]) {
    const path = document.createElementNS(ns, 'path');
    path.setAttribute('d', d);
    svg.append(path);
  }
  made.set(name, svg);
  return svg;
}

/** @param {Icon} name @param {string} [label] */
function icon(name, label) {
  const svg = /** @type {SVGSVGElement} */ ((made.get(name) ?? makeIcon(name)).cloneNode(true));
  if (label) {
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', label);
    const title = document.createElementNS('http://www.w3.org/2000/svg', 'title');
    title.textContent = label;
    svg.prepend(title);
  } else {
    svg.setAttribute('aria-hidden', 'true');
  }
  return svg;
}

export { icon };
