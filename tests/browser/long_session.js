// Mount the renderer with `count` rows; tell how long the first paint and the next turn's take, in milliseconds.
async (count) => {
  const loaded = performance.getEntriesByType('resource').map((entry) => entry.name);
  const { mount } = await import(loaded.find((name) => name.includes('jupyter-ctxkernel/app/render.js')));
  const host = document.createElement('div');
  host.style.cssText =
    'position: fixed; inset: 0 auto auto 0; z-index: 9999; width: 360px; height: 600px; background: #fff';
  document.body.append(host);
  const row = (n) => ({
    statement_id: `s${n}`,
    index: n,
    status: 'ok',
    author: 'human',
    kind: 'python',
    source: `x${n} = f(${n})`,
    time_ms: 1,
    started_at: 0,
    ended_at: 1,
    diff: { added: { [`x${n}`]: { type: 'int', repr: String(n), size: {} } }, changed: {}, deleted: [] },
    artifacts: []
  });
  const rest = { handles: [], deltas: [], projection: null, notices: [] };
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
  const view = mount(host, {});

  let start = performance.now();
  view.snapshot({
    type: 'snapshot',
    protocol: 1,
    statements: Array.from({ length: count }, (_, i) => row(i + 1)),
    sent: false,
    ...rest
  });
  await painted();
  const open = performance.now() - start;

  while (host.querySelectorAll('.ctxk-row').length < count) await new Promise((resolve) => setTimeout(resolve, 20));
  const rows = host.querySelectorAll('.ctxk-row').length;

  start = performance.now();
  view.turn({ type: 'turn', statement: row(count + 1), ...rest });
  await painted();
  const turn = performance.now() - start;

  view.dispose();
  host.remove();
  return { open, rows, turn };
};
