// Mount the renderer on an empty page, with a host that notes what it is asked for. Arguments: the made-up session's maker.
async (make) => {
  const { mount } = await import('/render.js');
  const session = (0, eval)(`(${make})`)();
  document.getElementById('host').replaceChildren();
  window.S = session;
  window.host = { plan: 'easy', plans: [], gestures: [], cells: null, ran: [], refuses: null, holds: null, failsAt: null, went: [], answers: {} };
  window.view = mount(document.getElementById('host'), {
    version: session.snapshot.version,
    close() {},
    interrupt() {},
    goto: async (id) => host.went.push(id) > 0,
    ask: async (type, request) => {
      if (type !== 'plan') return host.answers[type](request);
      host.plans.push(request);
      if (host.plan instanceof Promise) await host.plan;
      return typeof host.plan === 'string'
        ? { plan: S.plans[host.plan], error: null }
        : { plan: null, error: host.plan.error };
    },
    gesture: async (code) => {
      host.gestures.push(code);
      await host.holds;
      return host.refuses ? { ok: false, text: host.refuses } : { ok: true, text: '' };
    },
    cellsFrom: () => host.cells,
    rerunCells: async (ids, told, stop) => {
      let ran = 0;
      for (const id of ids) {
        await new Promise((resolve) => setTimeout(resolve, 5));
        host.ran.push(id);
        ran += 1;
        told(ran);
        if (id === host.failsAt) return { ran, failed: id };
        if (stop.stopped) break;
      }
      return { ran, failed: null };
    }
  });
  view.kernelStatus('idle');
  view.title('residuals.ipynb');
  view.snapshot(session.snapshot);
};
