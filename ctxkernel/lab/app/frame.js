/** The frame of the panel: head, banners, tabs and sections, all still empty. */

import { h } from './elements.js';
import { icon } from './icons.js';
import { TABS, TAB_LABELS } from './sections.js';

/** @import {Tab} from './sections.js' */
/** @import {View} from './view.js' */

class Frame {
  /** @param {View} view */
  constructor(view) {
    const { actions } = view;
    this.view = view;
    this.name = h('span', { class: 'ctxk-name' }, 'ctxkernel');
    this.state = h('span', { class: 'ctxk-state' });
    this.total = h('span', { class: 'ctxk-total' });
    this.checks = h('button', { class: 'ctxk-checks', type: 'button', onclick: () => view.showChecks() });
    this.meter = h('div', { class: 'ctxk-line ctxk-line2' }, this.total, this.checks);
    this.sentLine = h('p', { class: 'ctxk-sent' });
    this.workLine = h('p', { class: 'ctxk-work', hidden: true });
    this.banners = h('div', { class: 'ctxk-banners' });
    this.waits = h('div', { class: 'ctxk-waits', hidden: true });
    this.stop =
      actions.interrupt &&
      h(
        'button',
        {
          class: 'ctxk-button ctxk-stop',
          type: 'button',
          title: 'Stop what runs: interrupts the kernel',
          hidden: true,
          onclick: () => actions.interrupt?.()
        },
        'Stop'
      );
    this.live = h('div', { class: 'ctxk-sr', role: 'status', 'aria-live': 'polite' });
    this.tabs = /** @type {Record<Tab, HTMLElement>} */ ({});
    this.sections = /** @type {Record<Tab, HTMLElement>} */ ({});
    this.counts = /** @type {Record<Tab, HTMLElement>} */ ({});
    const id = (this.id = `ctxk-${Math.random().toString(36).slice(2)}`);
    const tablist = h('div', {
      class: 'ctxk-tabs',
      role: 'tablist',
      'aria-label': 'Parts of the panel',
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event)
    });
    const body = h('div', { class: 'ctxk-body' });
    for (const tab of TABS) {
      this.tabs[tab] = h(
        'button',
        {
          class: 'ctxk-tab',
          type: 'button',
          role: 'tab',
          id: `${id}-${tab}`,
          'aria-controls': `${id}-${tab}-panel`,
          'data-tab': tab,
          onclick: () => view.select(tab)
        },
        TAB_LABELS[tab],
        (this.counts[tab] = h('span', { class: 'ctxk-count' }))
      );
      this.sections[tab] = h('div', {
        class: `ctxk-section ctxk-${tab}`,
        role: 'tabpanel',
        id: `${id}-${tab}-panel`,
        'aria-labelledby': `${id}-${tab}`,
        tabindex: '0',
        hidden: true
      });
      tablist.append(this.tabs[tab]);
      body.append(this.sections[tab]);
    }
    const close =
      actions.close &&
      h(
        'button',
        {
          class: 'ctxk-close',
          type: 'button',
          title: 'Close the panel',
          'aria-label': 'Close the panel',
          onclick: () => actions.close?.()
        },
        icon('close')
      );
    this.root = h(
      'div',
      { class: 'ctxk' },
      h(
        'div',
        { class: 'ctxk-head' },
        h('div', { class: 'ctxk-line' }, this.name, this.state, this.stop, close),
        this.meter,
        this.sentLine
      ),
      this.waits,
      this.banners,
      tablist,
      body,
      this.workLine,
      this.live
    );
  }

  /** Arrow keys move between tabs, as the ARIA pattern for tabs has it. @param {KeyboardEvent} event */
  key(event) {
    const shown = TABS.filter((name) => !this.tabs[name].hidden);
    const at = shown.indexOf(this.view.tab);
    /** @type {Record<string, number>} */
    const places = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: shown.length - 1 };
    const to = places[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const tab = shown[(to + shown.length) % shown.length];
    this.view.select(tab);
    this.tabs[tab].focus();
  }
}

export { Frame };
