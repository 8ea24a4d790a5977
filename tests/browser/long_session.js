// Mount the renderer with `count` rows; tell how many rows the page has, how many elements the next turn and a return touch, and how
// many elements (`drawn`) the rows had before the return and after it. With `stay` return what runs more turns.
async (count, stay = false) => {
  const loaded = performance.getEntriesByType('resource').map((entry) => entry.name);
  const { mount } = await import(loaded.find((name) => /jupyter-ctxkernel\/app-[^/]+\/render\.js/.test(name)));
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
  const touched = new Set();
  const note = (records) => {
    for (const record of records)
      if (record.type === 'attributes') touched.add(record.target);
      else
        for (const node of [...record.addedNodes, ...record.removedNodes])
          for (const one of node.querySelectorAll ? [node, ...node.querySelectorAll('*')] : [node]) touched.add(one);
  };
  const observer = new MutationObserver(note);
  /** How many elements were made, removed or altered since it was asked last. */
  const touchedNow = () => {
    note(observer.takeRecords());
    const found = touched.size;
    touched.clear();
    return found;
  };

  view.snapshot({
    type: 'snapshot',
    protocol: 1,
    statements: Array.from({ length: Math.min(count, 200) }, (_, i) => row(count - Math.min(count, 200) + i + 1)),
    shape: {
      spans: [{ first: 's1.1', count, parent: null }],
      cells: {},
      cell: Array(count).fill(-1),
      time_ms: Array(count).fill(1),
      meta: [],
      moved: [],
      verdicts: {}
    },
    sent: false,
    head: `s${count}.1`,
    ...rest
  });
  do await painted();
  while (!host.querySelector('.ctxk-row')); // many rows are drawn in a task of their own
  await painted();
  const rows = host.querySelectorAll('.ctxk-row').length;
  /** The elements of the rows that are in the page. */
  const elements = () => host.querySelectorAll('.ctxk-row, .ctxk-row *').length;
  let at = count;
  if (stay)
    return {
      run: async (turns) => {
        for (let i = 0; i < turns; i += 1) {
          at += 1;
          view.begin({ type: 'begin', statement: { ...row(at), status: undefined }, head: `s${at - 1}.1` });
          view.turn({ type: 'turn', statement: row(at), head: `s${at}.1`, ...rest });
          if (i % 50 === 0) await painted();
        }
        await painted();
      },
      end: () => {
        view.dispose();
        host.remove();
      }
    };

  observer.observe(host, { subtree: true, childList: true, attributes: true, characterData: true });
  view.turn({ type: 'turn', statement: row(count + 1), head: `s${count + 1}.1`, ...rest });
  await painted();
  const turn = touchedNow();

  const before = elements();
  const moved = { ...row(count + 2), source: '%ctx goto s10', moved: { to: 's10.1', reason: 'goto' } };
  view.turn({ type: 'turn', statement: moved, head: 's10.1', ...rest });
  await painted();
  const move = touchedNow();
  const drawn = before + elements();
  const here = host.querySelector('.ctxk-here').getBoundingClientRect();
  const seen = here.height > 0 && here.top > 0 && here.bottom < 600;

  observer.disconnect();
  view.dispose();
  host.remove();
  return { rows, turn, move, drawn, seen };
};
