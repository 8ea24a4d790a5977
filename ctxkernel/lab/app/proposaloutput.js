/**
 * Outputs of cells that are proposals of the model: each shows a card, drawn by the panel of the notebook that it stands in.
 *
 * Rule: a card of a proposal that does not wait can decide nothing; the view of the notebook says which one waits.
 */

import { PROPOSAL_MIME } from './notebook.js';
import { makeCard } from './render.js';

/** @import {MimeModel, Widget as LabWidget} from '../jupyterlab.js' */
/** @import {Proposal} from '../messages.js' */
/** @import {Parts} from './labparts.js' */
/** @import {Link} from './link.js' */
/** @import {Panel} from './panel.js' */
/** @import {Card} from './proposal.js' */

/**
 * An output that is a proposal; `card` is drawn by the panel of the notebook that it stands in.
 * @typedef {LabWidget & {proposal: Partial<Proposal> | undefined, card: Card | null, draw(): void}} ProposalOutput
 */

/** An output that is a proposal, or what became of one. @param {Parts} lab @param {Panel} panel */
function proposalWidget(lab, panel) {
  class ProposalWidget extends lab.Widget {
    /** @type {Partial<Proposal> | undefined} */
    proposal = undefined;
    /** @type {Card | null} */
    card = null;
    /** The notebook's link that the card is for. @type {Link | null} */
    link = null;

    /** @param {MimeModel} model */
    renderModel(model) {
      this.proposal = model.data[PROPOSAL_MIME];
      this.card = null;
      this.draw();
      return Promise.resolve();
    }

    /** The notebook that it stands in may be another one, or not known yet. */
    draw() {
      const link = panel.linkOf(this.node);
      if (!this.card || this.link !== link) {
        this.link = link;
        this.card = makeCard(this.proposal, {
          decide: (code) => void link?.view.decide(code),
          leave: () => link?.notebook.content.activate(),
          highlight: lab.highlight
        });
        this.node.replaceChildren(this.card.el);
      }
      this.card.update(link ? link.view.stands(this.proposal) : { live: null, busy: true, told: '' });
    }

    /** @override */
    onAfterAttach() {
      panel.cards.add(this);
      if (this.proposal) this.draw();
    }

    /** @override */
    onBeforeDetach() {
      panel.cards.delete(this);
    }

    /** @override */
    dispose() {
      panel.cards.delete(this);
      super.dispose();
    }
  }
  panel.styles();
  const widget = new ProposalWidget();
  widget.addClass('ctxk');
  widget.addClass('ctxk-output');
  return widget;
}

export { proposalWidget };
