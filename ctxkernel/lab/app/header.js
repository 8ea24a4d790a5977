/** The head of the panel, which is always there, and the banners below it: drawn from what the view knows. */

import { badge, codeLine } from './components.js';
import { find, h, put } from './elements.js';
import { firstHint } from './firststeps.js';
import { historySize } from './history.js';
import { icon } from './icons.js';
import { PHASE_WORDS } from './phases.js';
import { costOf } from './projection.js';
import { label } from './rownames.js';
import { resumeBanner } from './resumebanner.js';
import { verdict } from './rowparts.js';
import { TABS } from './sections.js';
import { clean } from './text.js';
import { count, dict, duration, number, plural } from './values.js';
import { mismatch } from './versions.js';

/** @import {Offer} from './cellversions.js' */
/** @import {Phase} from './phases.js' */
/** @import {View} from './view.js' */

/** A cell that runs for longer has a button that stops it, in milliseconds. */
const LONG_MS = 500;

/** @param {View} view */
function drawState(view) {
  const isLong = view.running !== null && performance.now() - view.running.since > LONG_MS;
  if (view.frame.stop) view.frame.stop.hidden = !view.asking && !isLong;
  let shown;
  if (view.running) {
    const elapsed = performance.now() - view.running.since;
    // Under half a second a number would only flicker.
    shown = ['running', '●', `running ${label(view.running)}${elapsed > 500 ? ` · ${duration(elapsed)}` : ''}`];
  } else if (view.asking) {
    const elapsed = performance.now() - view.asking.since;
    shown = ['running', '●', `asking ${view.asking.model}${elapsed > 950 ? ` · ${Math.round(elapsed / 1000)} s` : ''}`];
  } else if (view.phaseNow)
    shown = [
      view.phaseNow.tone === 'error' ? 'error' : 'off',
      '○',
      PHASE_WORDS[view.phaseNow.name] ?? 'not connected'
    ];
  else if (view.status === 'idle') shown = ['idle', '○', 'idle'];
  else if (view.status === 'busy') shown = ['running', '●', 'busy'];
  else shown = ['off', '○', view.status];
  const [kind, glyph, text] = shown;
  if (view.frame.state.textContent === glyph + text) return;
  view.frame.state.className = `ctxk-state ctxk-is-${kind}`;
  view.frame.state.replaceChildren(h('span', { class: 'ctxk-glyph', 'aria-hidden': 'true' }, glyph), text);
  view.root.dataset.state = kind;
}

/** @param {View} view */
function drawHeader(view) {
  drawState(view);
  const name = view.heading || shortName(view.path) || shortName(view.session) || 'ctxkernel';
  view.frame.name.replaceChildren(clean(name));
  view.frame.name.title = clean(
    [
      view.heading,
      view.session && `session ${view.session}`,
      view.version && `ctxkernel ${view.version}`,
      view.python && `Python ${view.python}`
    ]
      .filter(Boolean)
      .join('\n')
  );
  const p = view.projection;
  const live = view.sent !== null;
  view.grown ||= Boolean(view.handles.length || view.sent || view.decisions.proposal || view.asking || (p && dict(p.report).ok === false));
  view.frame.meter.hidden = !live || !view.grown;
  view.frame.total.replaceChildren();
  if (p)
    put(
      view.frame.total,
      h('b', null, `~${count(p.tokens)} tokens`),
      number(p.budget) ? h('span', { class: 'ctxk-wide' }, ` of ${count(p.budget)}`) : '',
      costOf(p) && ` · ${costOf(p)}`
    );
  else put(view.frame.total, 'no projection yet');
  view.frame.checks.hidden = !p;
  if (p) {
    const report = dict(p.report);
    const n = number(report.count) ?? 0;
    view.frame.checks.replaceChildren(
      report.ok ? badge('ok', '✓', 'checks pass') : badge('error', '✕', plural(n || 1, 'violation'))
    );
    view.frame.checks.title = report.ok
      ? 'The projection keeps every rule of the model’s API'
      : 'The projection breaks rules of the model’s API; a red one is never sent';
  }
  view.frame.sentLine.hidden = !live;
  if (live)
    view.frame.sentLine.textContent =
      view.sent === false ? 'Nothing has been sent to any model.' : 'Parts of this session were sent to a model.';
  view.root.dataset.sent = String(view.sent);
  drawWork(view);
  const counts = {
    timeline: view.tree.nodes.size + view.truncated,
    handles: view.handles.length,
    projection: number(p?.blocks) ?? 0,
    cost: 0,
    history: historySize(view.history),
    changes: view.deltas.length,
    rerun: view.compared.filter((row) => verdict(row.comparison).word === 'differs').length,
    sweeps: view.sweeps.table?.rows?.length ?? 0
  };
  for (const tab of TABS) view.frame.counts[tab].textContent = counts[tab] ? count(counts[tab]) : '';
  view.frame.tabs.history.hidden = !view.history && view.tab !== 'history';
  view.frame.tabs.cost.hidden = !view.sent && view.tab !== 'cost';
  view.frame.tabs.rerun.hidden = !view.compared.length && view.tab !== 'rerun';
  view.frame.tabs.sweeps.hidden = !view.sweeps.exist && view.tab !== 'sweeps';
  view.returning.draw();
}

/** What is prepared in the background, in one line above the storage line, which tells what is written. @param {View} view */
function drawWork(view) {
  const told = view.work.map(clean);
  view.frame.workLine.hidden = !told.length;
  const text = told.length ? `In the background: ${told.join(' · ')}` : '';
  if (view.frame.workLine.textContent !== text) view.frame.workLine.textContent = text;
  view.frame.workLine.title = told.join('\n');
}

/** @param {View} view */
function drawBanners(view) {
  const out = [];
  const phase = view.phaseNow;
  // With rows on the screen the phase is a banner over them; without, it is the page (drawEmpty).
  if (phase && view.rows.size) out.push(phaseBox(view, phase, 'ctxk-banner'));
  const odd = view.sent === null ? null : mismatch(view.actions.version, view.version, view.protocol);
  if (odd) {
    out.push(
      h(
        'div',
        { class: 'ctxk-banner ctxk-tone-warn', role: 'alert', 'data-banner': 'version' },
        h('strong', null, odd.title),
        h('p', null, odd.text),
        codeLine(odd.command)
      )
    );
  }
  const resume = resumeBanner(view.returning);
  if (resume) out.push(resume);
  if (view.following) out.push(offerBox(view.following));
  for (const text of view.notices) {
    const close = h(
      'button',
      {
        class: 'ctxk-close',
        type: 'button',
        title: 'Dismiss',
        'aria-label': 'Dismiss this notice',
        onclick: () => {
          view.dismissed.add(text);
          view.addNotices([]);
          drawBanners(view);
        }
      },
      icon('close')
    );
    out.push(
      h(
        'div',
        { class: 'ctxk-banner ctxk-tone-info ctxk-notice', 'data-banner': 'notice' },
        h('p', null, text),
        close
      )
    );
  }
  if (!out.length) out.push(...hintBox(view));
  const { banners } = view.frame;
  const had = banners.contains(document.activeElement);
  banners.replaceChildren(...out);
  if (had) (find(banners, 'button:not([disabled])') ?? find(view.root, '[role=tab][aria-selected=true]'))?.focus();
}

/** The first-run hint, where nothing else is to be said. Who has asked or gone back is past it. @param {View} view */
function hintBox(view) {
  const { hint } = view.actions;
  if (view.sent === null || !hint?.wanted()) return [];
  if (!view.sent && view.wayToHead.length === view.tree.nodes.size) return [firstHint(hint, () => drawBanners(view))];
  hint.dismiss();
  return [];
}

/** @param {View} view @param {Phase} phase @param {string} cls */
function phaseBox(view, phase, cls) {
  return h(
    'div',
    {
      class: `${cls} ctxk-tone-${phase.tone}`,
      'data-phase': phase.name,
      role: phase.tone === 'error' ? 'alert' : null
    },
    h('strong', null, phase.title),
    phase.text && h('p', null, phase.text),
    phase.code && codeLine(phase.code),
    phase.after && h('p', null, phase.after),
    phase.button &&
      view.actions.reconnect &&
      h('button', { class: 'ctxk-button', type: 'button', onclick: () => view.actions.reconnect?.() }, phase.button)
  );
}

/** @param {Offer} offer */
function offerBox(offer) {
  return h(
    'div',
    { class: 'ctxk-banner ctxk-tone-info', 'data-banner': 'cells' },
    h('p', null, offer.text),
    h('button', { class: 'ctxk-link', type: 'button', onclick: offer.run }, offer.button)
  );
}

/** @param {string | null} session */
function shortName(session) {
  if (!session) return '';
  return (clean(session).split(/[\\/]/).pop() ?? '').replace(/\.sqlite$/, '');
}

export { drawBanners, drawHeader, drawState, drawWork, phaseBox };
