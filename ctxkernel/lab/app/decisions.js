/** What of the model's waits for the user: the card in the panel, and what becomes of a decision. */

import { nameOf } from './marks.js';
import { Card } from './proposal.js';
import { runOf } from './rownames.js';
import { clean } from './text.js';

/** @import {Proposal, ProposalMessage} from '../messages.js' */
/** @import {View} from './view.js' */

/** What tells one proposal from another. @type {(keyof Proposal)[]} */
const SAME = ['id', 'ask', 'kind', 'code'];

class Decisions {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** What waits, and the card that shows it. @type {Proposal | null} */
    this.proposal = null;
    /** @type {Card | null} */
    this.card = null;
    /** What was decided is being carried out; why the last decision was refused. */
    this.deciding = false;
    this.refused = '';
  }

  /**
   * Something of the model's waits for the user, or does not any more.
   * @param {Partial<Pick<ProposalMessage, 'proposal'>>} msg
   */
  take(msg) {
    const proposal = msg.proposal?.id ? msg.proposal : null;
    if (SAME.some((name) => proposal?.[name] !== this.proposal?.[name])) {
      this.refused = '';
      this.card = proposal && new Card(proposal, this.host);
      this.view.frame.waits.replaceChildren(...(this.card ? [this.card.el] : []));
      if (proposal) this.view.frame.live.textContent = clean(proposal.told);
    }
    this.proposal = proposal;
    this.draw();
  }

  /** What a card of this kernel's proposals needs, wherever it stands. */
  get host() {
    const { gesture, highlight } = this.view.actions;
    return {
      decide: gesture ? (/** @type {string} */ code) => void this.decide(code) : null,
      highlight,
      leave: () => this.view.tabs[this.view.tab].focus()
    };
  }

  /**
   * How a card stands: it can be decided on if it shows what waits. An id alone can stand in any saved output.
   * @param {Partial<Proposal> | null | undefined} proposal
   */
  stands(proposal) {
    const [now, known] = [this.proposal, this.view.sent !== null];
    const same = SAME.every((name) => now?.[name] === proposal?.[name]);
    const live = known ? Boolean(now) && same && this.view.phaseNow === null : null;
    const away = live ? this.away(runOf(now?.id)) : '';
    return { live, busy: this.deciding || this.view.busy || Boolean(away), told: live ? away || this.refused : '' };
  }

  /** Why nothing can be decided at the present place of the timeline; empty where it can. @param {string} run what proposed */
  away(run) {
    const { tree, wayToHead } = this.view;
    if (!tree.nodes.has(run) || wayToHead.some(({ key }) => key === run)) return '';
    return `It waits at ${nameOf(run)}, not at the present place: go to ${nameOf(run)} in the timeline to decide, or ask again.`;
  }

  draw() {
    this.view.frame.waits.hidden = !this.card;
    this.card?.update(this.stands(this.proposal));
    this.view.actions.decides?.();
  }

  /** Decide on what waits; what it leads to is shown by the cell that asked. @param {string} code */
  async decide(code) {
    const { gesture } = this.view.actions;
    if (this.deciding || !this.proposal || !gesture) return;
    const { id, ask } = this.proposal;
    this.deciding = true;
    this.refused = '';
    this.draw();
    const result = await gesture(code, clean(this.view.rows.get(clean(ask))?.cell_id) || undefined);
    this.deciding = false;
    if (!result.ok && this.proposal?.id === id) this.refused = clean(result.text).trim() || `${code} failed`;
    this.draw();
  }
}

export { Decisions };
