// Mount the renderer with `count` rows; tell how long the first paint, the next turn's and that of a return take (milliseconds).
async (count) => {
  const loaded = performance.getEntriesByType('resource').map((entry) => entry.name);
  const { mount } = await import(loaded.find((name) => name.includes('jupyter-ctxkernel/app/render.js')));
  const host = document.createElement('div');
  host.style.cssText =
    'position: fixed; inset: 0 auto auto 0; z-index: 9999; width: 360px; height: 600px; background: #fff';
  document.body.append(host);
  const row = (n) => ({
    statement_id: `s${n}`,
    execution_id: `s${n}.1`,
    parent_execution_id: n > 1 ? `s${n - 1}.1` : null,
    index: n,
    status: 'ok',
    author: 'human',
    kind: 'python',
    source: `x${n} = f(${n})`,
    time_ms: 1,
    started_at: n,
    ended_at: n,
    checkpoint: { state: 'durable', bytes_new: 1000, time_ms: 1, missing: {}, reason: '' },
    diff: { added: { [`x${n}`]: { type: 'int', repr: String(n), size: {} } }, changed: {}, deleted: [] },
    artifacts: []
  });
  const storage = { bytes: 1e9, quota: 2e10, pending_bytes: 0, pending_s: 0, folder: '' };
  const rest = { handles: [], deltas: [], projection: null, notices: [], storage };
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
  const view = mount(host, {});

  let start = performance.now();
  view.snapshot({
    type: 'snapshot',
    protocol: 1,
    statements: Array.from({ length: count }, (_, i) => row(i + 1)),
    sent: false,
    head: `s${count}.1`,
    ...rest
  });
  await painted();
  const open = performance.now() - start;

  while (host.querySelectorAll('.ctxk-row').length < count) await new Promise((resolve) => setTimeout(resolve, 20));
  const rows = host.querySelectorAll('.ctxk-row').length;

  start = performance.now();
  view.turn({ type: 'turn', statement: row(count + 1), head: `s${count + 1}.1`, ...rest });
  await painted();
  const turn = performance.now() - start;

  start = performance.now();
  const moved = { ...row(count + 2), source: '%ctx goto s10', moved: { to: 's10.1', reason: 'goto' } };
  view.turn({ type: 'turn', statement: moved, head: 's10.1', ...rest });
  await painted();
  const move = performance.now() - start;
  const here = host.querySelector('.ctxk-here').getBoundingClientRect();
  const seen = here.height > 0 && here.top > 0 && here.bottom < 600;

  view.dispose();
  host.remove();
  return { open, rows, turn, move, seen };
};
