/** The panel as a widget in the output of a cell (`%ctx panel`), for front ends without a side panel. */

import { h } from './elements.js';
import { mount } from './render.js';

/** @import {SnapshotMessage} from '../messages.js' */
/** @import {WidgetModel} from '../jupyterlab.js' */
/** @import {Ask} from '../types.js' */

/** How long the kernel may take to answer; it is busy with a cell where it takes longer. */
const ASK_MS = 10000;

/** anywidget's entry: the trait `state` holds a snapshot; all later messages, and answers, come as custom messages. */
const widget = {
  /** @param {{model: WidgetModel<{state: Partial<SnapshotMessage>}>, el: HTMLElement}} shown */
  render({ model, el }) {
    const host = h('div', { class: 'ctxk-inline' });
    el.append(host);
    /** @type {Map<string, (answer: any) => void>} */
    const asked = new Map();
    /** @type {Ask} */
    const ask = (type, request) =>
      new Promise((resolve) => {
        const id = Math.random().toString(36).slice(2);
        asked.set(id, resolve);
        model.send({ type, id, ...request });
        setTimeout(() => resolve({ error: 'No answer yet: the kernel is busy, or gone.' }), ASK_MS);
      });
    // No gestures here: a widget cannot send execute requests. What would be one is shown as a line to run.
    const view = mount(host, { ask });
    const whole = () => {
      const state = model.get('state');
      if (state && Object.keys(state).length) view.snapshot(state);
    };
    /** @param {any} msg */
    const one = (msg) => {
      const resolve = asked.get(msg?.id);
      if (resolve) {
        asked.delete(msg.id);
        resolve(msg);
      } else view.message(msg);
    };
    model.on('change:state', whole);
    model.on('msg:custom', one);
    view.kernelStatus('idle');
    whole();
    return () => {
      model.off('change:state', whole);
      model.off('msg:custom', one);
      view.dispose();
    };
  }
};

export { widget as default };
