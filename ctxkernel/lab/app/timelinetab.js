/** A tab of the main area with the timeline of a notebook, and room for details beside it. */

import { ICON } from './labparts.js';

/** @import {Parts} from './labparts.js' */
/** @import {Link} from './link.js' */

/** A tab with the timeline of a notebook. @param {Parts} lab @param {Link} link */
function timelineTab(lab, link) {
  class TimelineTab extends lab.Widget {
    drawn = link.view.wide(this.node);

    /** @override */
    onAfterShow() {
      this.drawn.shown();
    }

    /** @override */
    onActivateRequest() {
      this.drawn.focus();
    }

    /** @override */
    dispose() {
      this.drawn.dispose();
      link.tab = null;
      super.dispose();
    }
  }
  const tab = new TimelineTab();
  tab.id = `ctxkernel-timeline-${Math.random().toString(36).slice(2)}`;
  tab.addClass('ctxk-tabwidget');
  tab.title.label = `Timeline: ${link.notebook.title.label}`;
  tab.title.closable = true;
  link.owner.leaveByEscape(tab.node, () => link);
  tab.title.icon = new lab.LabIcon({ name: 'jupyter-ctxkernel:panel', svgstr: ICON });
  return tab;
}

export { timelineTab };
