/**
 * The connection of one notebook to the panel's comm in its kernel: opens it, asks for what was lost, says how it stands.
 *
 * Rule 1: at most one comm is open; messages of an earlier comm are never told.
 * Rule 2: it opens by itself for kernels whose kernel_info says `ctxkernel`, for others only when the user asks. The kernel
 *         is asked anew after a restart, and after a cell that names ctxkernel: that may have loaded the extension.
 * Rule 3: nothing is sent from here but the comm's messages and requests on the control channel.
 */

import { PHASES } from './phases.js';
import { PROTOCOL } from './versions.js';

/** @import {Comm, Kernel, KernelInfo, Message, NotebookPanel} from '../jupyterlab.js' */
/** @import {Parts} from './labparts.js' */
/** @import {Phase} from './phases.js' */

const TARGET = 'ctxkernel.panel';
const CONTROL = 'ctxkernel_snapshot_request';
const IMPLEMENTATION = 'ctxkernel';
/** How long an idle kernel may take to answer the comm. */
const ANSWER_MS = 5000;
/** A state that comes and goes within this time is not shown. */
const SETTLE_MS = 1000;
/** JupyterLab gave the connection up: time until the next try. */
const RETRY_MS = 5000;

/**
 * Who is told of what comes, and asked what is known.
 * @typedef {object} Listener
 * @property {(phase: Phase) => void} say how the connection stands, where it is not live
 * @property {() => void} lost what is known may be old
 * @property {() => void} back the connection was lost, and is live again
 * @property {(status: string) => void} kernelStatus
 * @property {() => void} wanted the kernel is a ctxkernel
 * @property {(data: any) => void} snapshot
 * @property {(data: any) => void} message any other message of the comm
 * @property {() => void} dropped the comm is gone
 * @property {(content: Record<string, unknown>) => void} opened the kernel opened a comm
 * @property {(data: Record<string, unknown>) => void} redrawn an output of the notebook was drawn anew
 * @property {() => number} hole the index of a statement whose predecessor is not known; 0 where there is none
 * @property {() => boolean} isRunning whether a statement counts as running
 */

class Connection {
  /** @param {Parts} lab @param {NotebookPanel} notebook @param {Listener} listener */
  constructor(lab, notebook, listener) {
    this.lab = lab;
    this.context = notebook.sessionContext;
    this.listener = listener;
    /** The user asked for this kernel by command; it need not be a ctxkernel. */
    this.forced = false;
    /** Whether kernel_info says ctxkernel; null while that is not known. @type {boolean | null} */
    this.own = null;
    /** @type {Comm | null} */
    this.comm = null;
    this.live = false;
    this.disposed = false;
    /** The connection was lost. */
    this.wasLost = false;
    /** The kernel was restarted: a stock kernel has lost the extension. */
    this.restarted = false;
    /** The kernel has said, on its control channel, that a cell runs. */
    this.runs = false;
    /** The request of a cell that may load the extension. @type {string | undefined} */
    this.loads = undefined;
    /** When this page saw the last cell end. @type {number | null} */
    this.cellEnd = null;
    /** The hole that a snapshot was asked for. */
    this.hole = 0;
    /** Timers: for the first snapshot, for the next question, for a lost turn, for a lost connection, for the next try. */
    this.timer = this.asked = this.settle = this.lost = this.retry = /** @type {number | undefined} */ (undefined);
    this.onKernel = () => void this.changed();
    /** @param {unknown} _ @param {string} status */
    this.onStatus = (_, status) => this.status(status);
    /** @param {unknown} _ @param {string} status */
    this.onConnection = (_, status) => this.connection(status);
    /** @param {unknown} _ @param {Message} msg */
    this.onMessage = (_, msg) => this.watch(msg);
  }

  /** Follow the notebook's kernel from now on. */
  start() {
    this.context.kernelChanged.connect(this.onKernel);
    this.context.statusChanged.connect(this.onStatus);
    this.context.connectionStatusChanged.connect(this.onConnection);
    this.context.iopubMessage.connect(this.onMessage);
    void this.context.ready.then(() => this.changed()).catch(() => {});
  }

  get kernel() {
    return this.context.session?.kernel ?? null;
  }

  /** Another kernel, or none, or the first one. */
  async changed() {
    if (this.disposed) return;
    this.drop();
    if (this.own !== null) this.listener.kernelStatus('terminating'); // the one before, as far as this notebook goes
    this.own = null;
    this.restarted = false;
    const kernel = this.kernel;
    if (!kernel) return this.listener.say(PHASES.noKernel());
    this.listener.kernelStatus(kernel.status);
    this.listener.say(PHASES.connecting());
    let info;
    try {
      info = await Promise.any([kernel.info, this.infoByControl(kernel)]);
    } catch {
      return; // Disposed while it started; kernelChanged follows.
    }
    if (this.disposed || kernel !== this.kernel) return;
    await this.identified(info);
  }

  /** Connect to a ctxkernel, and say of another that it is none. @param {KernelInfo} info */
  async identified(info) {
    this.own = info.implementation === IMPLEMENTATION;
    if (this.own) {
      this.listener.wanted();
      this.open();
    } else {
      this.forced = false;
      this.listener.say(PHASES.other(await this.kernelName()));
    }
  }

  /** Ask the kernel anew what it is. JupyterLab has asked it only when it started. */
  async identify() {
    const kernel = this.kernel;
    if (!kernel || this.disposed) return;
    try {
      const info = await this.askInfo(kernel);
      if (this.disposed || kernel !== this.kernel || this.comm) return;
      this.restarted = false;
      await this.identified(info);
    } catch {
      // It went away meanwhile: it is asked again when it is idle.
    }
  }

  /**
   * What kernel_info says, asked on the control channel. A page that comes while a cell runs would otherwise not learn
   * until its end what kernel it has, since Lab asks on the shell channel. Rejects where that is not needed.
   * @param {Kernel} kernel
   */
  async infoByControl(kernel) {
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS / 2));
    if (kernel.isDisposed || kernel !== this.kernel || kernel.status === 'idle') throw new Error('not busy');
    return this.askInfo(kernel);
  }

  /** Ask what the kernel is on its control channel. @param {Kernel} kernel @returns {Promise<KernelInfo>} */
  async askInfo(kernel) {
    const reply = await kernel.sendControlMessage(this.controlMessage(kernel, 'kernel_info_request'), true).done;
    if (!reply?.content?.implementation) throw new Error('no answer');
    return reply.content;
  }

  /** @param {Kernel} kernel @param {string} msgType @param {object} [content] */
  controlMessage(kernel, msgType, content = {}) {
    return this.lab.KernelMessage.createMessage({
      msgType,
      channel: 'control',
      session: kernel.clientId,
      username: kernel.username,
      content
    });
  }

  async kernelName() {
    const name = this.context.kernelDisplayName || this.kernel?.name || 'another kernel';
    return String(name);
  }

  /** Open the comm; the kernel answers with a snapshot. */
  open() {
    const kernel = this.kernel;
    if (this.disposed || this.comm || !kernel || kernel.isDisposed) return;
    let comm;
    try {
      comm = kernel.createComm(TARGET);
    } catch {
      // Of several connections of one page to a kernel (two notebooks on it), only the first may have comms.
      return this.listener.say(PHASES.shared());
    }
    this.comm = comm;
    // A stock kernel has subshells; what answers us there must not run in the middle of a cell.
    if ('commsOverSubshells' in comm) comm.commsOverSubshells = 'disabled';
    comm.onMsg = (msg) => {
      if (comm === this.comm) this.receive(msg.content.data);
    };
    comm.onClose = () => {
      if (comm !== this.comm) return;
      this.comm = null;
      this.live = false;
      clearTimeout(this.timer);
      void this.kernelName().then((name) => {
        if (!this.comm) this.listener.say(this.own ? PHASES.closed() : PHASES.other(name));
      });
    };
    comm.open({ protocol: PROTOCOL, version: this.lab.version });
    this.expectAnswer();
  }

  /** Wait for the first snapshot. A busy kernel answers when its cell ends, so only idle time counts. */
  expectAnswer() {
    clearTimeout(this.timer);
    let left = ANSWER_MS;
    let asked = false;
    let peeked = false;
    this.runs = false;
    const step = 500;
    const comm = this.comm;
    const look = () => {
      if (this.live || this.comm !== comm || this.disposed) return;
      // `unknown` is what Lab calls a kernel that it found in the middle of a cell.
      const { status } = this.kernel ?? {};
      if (status === 'busy' || status === 'unknown') {
        left = ANSWER_MS;
        if (!asked) {
          asked = peeked = true;
          this.listener.say(PHASES.busy());
          if (this.own) void this.peek(comm);
        }
      } else if (this.runs) left = ANSWER_MS;
      else if (this.own && !peeked && left <= ANSWER_MS - 2 * step) {
        // JupyterLab 4.4 calls a kernel idle that has answered on its control channel in the middle of a cell.
        peeked = true;
        void this.peek(comm);
      } else if ((left -= step) <= 0) {
        this.listener.say(PHASES.noAnswer());
        return;
      }
      this.timer = setTimeout(look, step);
    };
    this.timer = setTimeout(look, step);
  }

  /** A cell runs, so the comm waits in the kernel's queue; its control channel does not. @param {Comm | null} comm */
  async peek(comm) {
    const kernel = this.kernel;
    if (!kernel) return;
    try {
      const reply = await kernel.sendControlMessage(this.controlMessage(kernel, CONTROL), true).done;
      if (this.live || this.comm !== comm || reply?.content?.type !== 'snapshot') return;
      this.runs = Boolean(reply.content.running);
      this.listener.snapshot(reply.content);
    } catch {
      // The kernel went away, or knows no such message: the comm's snapshot will do.
    }
  }

  /** @param {any} data */
  receive(data) {
    try {
      if (data?.type === 'snapshot') {
        this.live = true;
        clearTimeout(this.timer);
        this.listener.snapshot(data);
        return;
      }
      this.listener.message(data);
      // A statement that this page never saw (a message was lost): ask for all, once for each such hole.
      const hole = data?.type === 'turn' ? this.listener.hole() : 0;
      if (hole && hole !== this.hole) {
        this.hole = hole;
        this.ask();
      }
    } catch (error) {
      // Lab awaits this handler: a fault here must not hold up the notebook's other messages.
      console.error('ctxkernel panel', error);
    }
  }

  /** Ask for a snapshot, at most once a second. */
  ask() {
    if (!this.comm || this.asked) return;
    this.asked = setTimeout(() => {
      this.asked = undefined;
      try {
        this.comm?.send({ type: 'snapshot' });
      } catch {
        this.drop();
        this.open();
      }
    }, 1000);
  }

  /** @param {string} status */
  status(status) {
    this.listener.kernelStatus(status);
    if (status === 'restarting' || status === 'autorestarting') {
      this.drop();
      this.restarted = true;
      this.listener.say(PHASES.restarting());
    } else if (status === 'dead') {
      this.drop();
      this.listener.say(PHASES.dead());
    } else if (status === 'idle') {
      if (this.restarted && !this.comm) void this.identify();
      else if (!this.comm && (this.own || this.forced)) this.open();
      else this.checkRunning();
    }
  }

  /** The kernel is idle: if a statement still counts as running then its turn was lost. */
  checkRunning() {
    clearTimeout(this.settle);
    this.settle = setTimeout(() => {
      if (this.live && this.kernel?.status === 'idle' && this.listener.isRunning()) this.ask();
    }, SETTLE_MS);
  }

  /** @param {string} status */
  connection(status) {
    if (status === 'connected') {
      if (!this.wasLost) return;
      this.wasLost = false;
      clearTimeout(this.lost);
      // Messages may have been dropped meanwhile; the snapshot has them all.
      if (this.comm) {
        if (this.live) this.listener.back();
        this.ask();
      } else if (this.own) this.open();
      return;
    }
    if (this.live) {
      this.wasLost = true;
      clearTimeout(this.lost);
      this.lost = setTimeout(() => this.isLost(), SETTLE_MS);
    }
    if (status === 'disconnected' && this.own) this.tryAgain();
  }

  /** The connection has been lost for a while. */
  isLost() {
    if (!this.wasLost || !this.live) return;
    this.listener.say(PHASES.disconnected());
    this.listener.lost();
  }

  /** JupyterLab has given the connection up, but the kernel may be there: try until it is. */
  tryAgain() {
    clearTimeout(this.retry);
    this.retry = setTimeout(() => {
      const kernel = this.kernel;
      if (this.disposed || kernel?.connectionStatus !== 'disconnected' || kernel.isDisposed) return;
      void kernel.reconnect().catch(() => {});
    }, RETRY_MS);
  }

  /**
   * Note when this page sees a cell end, to measure how long its turn takes to be seen; what became of a proposal; which
   * widgets were opened; and whether a cell may have loaded the extension.
   * @param {Message} msg
   */
  watch(msg) {
    const { msg_type: type } = msg.header;
    const request = msg.parent_header;
    if (type === 'comm_open') this.listener.opened(msg.content);
    if (type === 'update_display_data') this.listener.redrawn(msg.content.data);
    if (type === 'execute_input' && this.own === false && String(msg.content.code).includes('ctxkernel'))
      this.loads = request?.msg_id;
    if (type !== 'status' || msg.content.execution_state !== 'idle' || request?.msg_type !== 'execute_request') return;
    this.cellEnd = performance.now();
    if (!this.loads || this.loads !== request.msg_id) return;
    this.loads = undefined;
    void this.identify();
  }

  /** The user asks: try again, whatever the kernel is. */
  reconnect() {
    this.forced = true;
    this.drop(true);
    const { kernel } = this;
    if (!kernel) return this.listener.say(PHASES.noKernel());
    this.listener.say(PHASES.connecting());
    if (kernel.connectionStatus === 'disconnected') void kernel.reconnect().catch(() => {});
    this.open();
  }

  /** Forget the comm. `tell` also closes it in the kernel, which must be alive for that. @param {boolean} [tell] */
  drop(tell = false) {
    clearTimeout(this.timer);
    clearTimeout(this.asked);
    clearTimeout(this.settle);
    this.asked = undefined;
    const comm = this.comm;
    this.comm = null;
    this.live = false;
    this.listener.dropped();
    if (!comm || comm.isDisposed) return;
    try {
      if (tell) comm.close();
      else comm.dispose();
    } catch {
      // Its kernel is gone already.
    }
  }

  dispose() {
    this.drop(true);
    this.disposed = true;
    clearTimeout(this.lost);
    clearTimeout(this.retry);
    this.context.kernelChanged.disconnect(this.onKernel);
    this.context.statusChanged.disconnect(this.onStatus);
    this.context.connectionStatusChanged.disconnect(this.onConnection);
    this.context.iopubMessage.disconnect(this.onMessage);
  }
}

export { Connection };
