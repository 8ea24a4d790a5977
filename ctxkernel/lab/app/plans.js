/** What a person wants done with a state, and the plan for it, part by part. */

import { h } from './elements.js';
import { questionOf } from './rowparts.js';
import { clean, headline } from './text.js';
import { bytes, count, dict, duration, list, number, plural } from './values.js';

/** @import {Plan, PlanRequest, Step as ToldStep} from '../messages.js' */
/** @import {Child} from '../types.js' */

/**
 * A button for what may come next.
 * @typedef {{text: string, run: () => void}} Next
 */

/**
 * A cell or a statement that would run.
 * @typedef {object} Step
 * @property {string} [cell_id]
 * @property {string} id what a reader calls it; empty for one that leaves no statement
 * @property {string} gist
 * @property {number | null} expected_s
 * @property {boolean} [edited]
 * @property {boolean} asks it asks before it runs again
 * @property {boolean} [run] it is chosen
 * @property {boolean} [skipped]
 * @property {string} [told]
 */

/**
 * What a person wants done: the plan is asked for by `request`, and done by `code`.
 * @typedef {object} Job
 * @property {string} title
 * @property {string} [detail]
 * @property {string | (() => string)} confirm
 * @property {Omit<PlanRequest, 'type' | 'id'> | null} request null: there is nothing to restore
 * @property {string | null} code
 * @property {string} [done] what is said when it is done
 * @property {Next} [next]
 * @property {() => Promise<{plan: Partial<Plan>, error: null} | {error: string}>} [plan] makes the plan, in the place of `request`
 * @property {(plan: Partial<Plan>) => Child} [body] draws it
 * @property {Step[]} [steps] cells of the notebook that run after it
 * @property {() => unknown} [then]
 * @property {boolean} [asked] statements that ask run too
 */

/** A return that is planned to take longer is asked about. */
const AT_ONCE_S = 1;
/** Names that a part of the plan shows before it says how many more there are. */
const NAMES = 12;

/** Whether a return may go ahead without asking. @param {Partial<Plan>} p */
function isTrivial(p) {
  const runs = list(p.statements).some((one) => one?.action !== 'skip');
  const files = list(p.file_changes).some((one) => one?.action !== 'stays');
  const told = [p.connect, p.lost, p.as_now, p.rerun].some((names) => Object.keys(dict(names)).length);
  const costs = told || runs || files;
  return !costs && (number(p.seconds) ?? Infinity) < AT_ONCE_S;
}

/** How long cells take, as far as they have run before. @param {number} seconds @param {number} fresh those that have not */
function expectedTime(seconds, fresh) {
  const time = seconds < 0.1 ? 'at once' : `about ${duration(seconds * 1000)}`;
  return fresh ? `${time}, without the time of ${plural(fresh, 'new cell')}` : time;
}

/** What a plan says, part by part; parts that are empty are not there. @param {Partial<Plan>} p @param {Job} job */
function planBody(p, job) {
  const load = list(p.load).map((one) => dict(one));
  const kept = list(p.keep).length;
  const steps = job.steps ?? list(p.statements).map((step) => stepOf(dict(step)));
  const again = Object.entries(dict(p.rerun));
  const lost = Object.entries(dict(p.lost));
  const running = job.steps ? steps.reduce((sum, one) => sum + (number(one.expected_s) ?? 0), 0) : 0;
  const fresh = list(job.steps).filter((one) => one.expected_s === null && !one.skipped && !one.asks).length;
  const seconds = number(p.seconds) === null && !running ? null : (number(p.seconds) ?? 0) + running;
  const changes = list(p.file_changes).map(dict);
  const nothing = !load.length && !list(p.drop).length && !again.length && !lost.length && !changes.length && !Object.keys(dict(p.as_now)).length;
  return [
    job.detail && h('p', { class: 'ctxk-hint' }, job.detail),
    h(
      'p',
      { class: 'ctxk-expected' },
      seconds === null ? '' : h('b', null, expectedTime(seconds, fresh)),
      kept
        ? h('span', { class: 'ctxk-muted' }, `${plural(kept, 'name')} kept as ${kept === 1 ? 'it is' : 'they are'}`)
        : ''
    ),
    returnParts(p),
    steps.length > 0 && !job.steps && steps.some((one) => one.asks) && askBox(job),
    part(
      job.steps ? 'Cells' : 'Statements',
      'steps',
      steps.map((step) => stepLine(step, job))
    ),
    nothing && !steps.length && h('p', { class: 'ctxk-hint' }, 'Nothing has to be loaded: the state is the same.')
  ];
}

/** What a return restores, removes and loses. @param {Partial<Plan>} p */
function returnParts(p) {
  const load = list(p.load).map((one) => dict(one));
  const size = load.reduce((sum, one) => sum + (number(one.nbytes) ?? 0), 0);
  const again = Object.entries(dict(p.rerun));
  const lost = Object.entries(dict(p.lost));
  const changes = list(p.file_changes).map(dict);
  /** @param {Child} name @param {Child} said */
  const pair = (name, said) => h('li', null, h('code', null, name), h('span', { class: 'ctxk-muted' }, said));
  return [
    part(
      'Not restored',
      'lost',
      lost.map(([name, why]) => pair(name, why))
    ),
    part(
      'As it is now',
      'asnow',
      Object.entries(dict(p.as_now)).map(([name, why]) => pair(name, why))
    ),
    part(`Restored${size ? ` · ${bytes(size)}` : ''}`, 'load', names(load.flatMap((one) => list(one.names)))),
    part('Removed', 'drop', names(list(p.drop))),
    part(
      'Made again by running',
      'again',
      again.map(([name, ids]) => pair(name, list(ids).join(', ')))
    ),
    part('Also set back', 'ambient', names(list(p.ambient))),
    part(
      'Files brought back',
      'files-back',
      changes
        .filter((one) => one.action === 'back')
        .map((one) => pair(one.name, one.statement_id ? `as of ${one.statement_id}` : one.reason || 'as it was before'))
    ),
    part(
      'Files removed; their content is kept',
      'files-back',
      changes.filter((one) => one.action === 'remove').map((one) => pair(one.name, `written by ${one.statement_id}`))
    ),
    part(
      'Files written since: they stay as they are',
      'files',
      names([
        ...list(p.files).map((one) => dict(one).name ?? String(one)),
        ...changes.filter((one) => one.action === 'stays').map((one) => `${one.name}: ${one.reason}`)
      ])
    )
  ];
}

/** A statement of a plan, as the cells of a notebook are told. @param {Partial<ToldStep>} one @returns {Step} */
function stepOf(one) {
  return {
    id: clean(one.statement_id),
    gist: questionOf(one) || headline(one.source),
    expected_s: one.action === 'run' ? number(one.seconds) : null,
    asks: one.action === 'ask',
    skipped: one.action === 'skip',
    told: one.reason
  };
}

/** @param {Job} job */
function askBox(job) {
  const box = h('input', { type: 'checkbox' });
  box.addEventListener('change', () => (job.asked = box.checked));
  return h('label', { class: 'ctxk-filter' }, box, 'also run those that ask first');
}

/** @param {string} title @param {string} kind @param {HTMLElement[]} items */
function part(title, kind, items) {
  return items.length
    ? h(
        'section',
        { class: `ctxk-part ctxk-part-${kind}`, 'data-part': kind },
        h('h4', { class: 'ctxk-h' }, title),
        h('ul', null, items)
      )
    : null;
}

/** @param {readonly string[]} all */
function names(all) {
  const out = all.slice(0, NAMES).map((name) => h('li', { class: 'ctxk-chip' }, name));
  if (all.length > NAMES)
    out.push(
      h(
        'li',
        { class: 'ctxk-chip ctxk-muted', title: all.slice(NAMES, 200).join(', ') },
        `${count(all.length - NAMES)} more`
      )
    );
  return out;
}

/**
 * One statement that would run. Of one that asks, the answer is the box before it; without a tick it is left out.
 * @param {Step} step
 * @param {Job} job
 */
function stepLine(step, job) {
  const box =
    step.asks && job.steps && h('input', { type: 'checkbox', 'aria-label': `Run ${step.id || step.gist} again` });
  if (box) box.addEventListener('change', () => (step.run = box.checked));
  const tags = [step.skipped && 'skipped', step.asks && 'asks first', step.edited && 'edited'].filter(Boolean);
  return h(
    'li',
    { class: `ctxk-step${step.skipped ? ' ctxk-skip' : ''}`, title: step.told },
    h(
      'label',
      null,
      box || null,
      h('span', { class: 'ctxk-index' }, step.id),
      h('code', { class: 'ctxk-src' }, step.gist)
    ),
    tags.map((tag) => h('span', { class: 'ctxk-tag' }, tag)),
    h('span', { class: 'ctxk-time' }, step.expected_s === null ? '' : duration(step.expected_s * 1000))
  );
}

export { expectedTime, isTrivial, planBody, returnParts };
