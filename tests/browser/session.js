// Messages of a made-up session with checkpoints, branches and a re-run, as docs/panel-protocol.md has them.
// Returns {snapshot, plans, turn}: `plans` by action, `turn` a later statement's message.
() => {
  const evil = '<img src=x onerror=window.__pwned=1>';
  const start = 1764000000;
  const cp = (n, state = 'durable', more = {}) => ({
    state,
    bytes_new: n,
    time_ms: 1.2,
    missing: {},
    reason: '',
    ...more
  });
  const row = (id, parent, at, source, more = {}) => ({
    execution_id: id,
    statement_id: id.split('.')[0],
    index: Number(id.slice(1).split('.')[0]),
    parent_execution_id: parent,
    cell_id: `cell-${id.slice(1).split('.')[0]}`,
    author: 'human',
    kind: 'python',
    status: 'ok',
    source,
    timestamp: start + at,
    started_at: start + at,
    ended_at: start + at + 0.4,
    time_ms: 400,
    stdout: '',
    stderr: '',
    cut: {},
    late: {},
    exception: null,
    diff: { added: {}, changed: {}, deleted: [], incomplete: '' },
    artifacts: [],
    notices: [],
    nodes: [],
    checkpoint: cp(1200),
    comparison: null,
    moved: null,
    names: [],
    marks: { differs: false, asks: false },
    ...more
  });
  const added = (...names) => ({
    added: Object.fromEntries(names.map((n) => [n, { type: 'DataFrame', repr: '…', size: {} }])),
    changed: {},
    deleted: [],
    incomplete: ''
  });
  const against = (id, divergences, more = {}) => ({
    against: id,
    same: !divergences.some((d) => d.kind !== 'timing'),
    expected: false,
    divergences,
    time_ms: [1240, 1180],
    ...more
  });
  const differs = (kind, subject, summary, cause, before, after) => ({ kind, subject, summary, cause, before, after });
  const rows = [
    row('s1.1', null, 0, 'import numpy as np\nimport pandas as pd', { diff: added('np', 'pd'), time_ms: 612 }),
    row('s2.1', 's1.1', 10, "df = pd.read_csv('residuals.csv')", {
      diff: added('df'),
      time_ms: 2140,
      checkpoint: cp(48e6)
    }),
    row('s3.1', 's2.1', 20, "lines = (line for line in open('log.txt'))", {
      diff: added('lines'),
      checkpoint: cp(900, 'durable', { missing: { lines: 'a generator cannot be stored' } })
    }),
    row('s4.1', 's3.1', 30, 'clean = df.dropna().query("year > 2000")', {
      diff: added('clean'),
      names: ['baseline'],
      checkpoint: cp(31e6)
    }),
    row('s5.1', 's4.1', 40, 'model = fit(clean, seed=None)', {
      diff: added('model'),
      time_ms: 65000,
      marks: { differs: true, asks: false }
    }),
    row('s6.1', 's5.1', 50, 'model.plot_residuals()', {
      artifacts: [{ kind: 'display', name: 'fig', mime: 'image/png', size: 4e4 }]
    }),
    row('s7.1', 's6.1', 60, 'submit(model)', {
      marks: { differs: false, asks: true },
      status: 'error',
      exception: { type: 'ValueError', message: evil, trace_summary: '' }
    }),
    row('s8.1', 's4.1', 70, "clean = clean[clean.site != 'B']", {
      diff: { added: {}, changed: { clean: { type: 'DataFrame', repr: '…', size: {} } }, deleted: [] }
    }),
    row('s5.2', 's8.1', 80, 'model = fit(clean, seed=None)', {
      time_ms: 61000,
      marks: { differs: true, asks: false },
      comparison: against(
        's5.1',
        [differs('state', 'model', 'coef differs: 0.8311 → 0.8274', 'seed', '0.8311', '0.8274')],
        { expected: true, time_ms: [65000, 61000] }
      )
    }),
    row('s6.2', 's5.2', 90, 'model.plot_residuals()', {
      comparison: against('s6.1', [differs('artifact', 'fig', '3.1 % of pixels differ', 'upstream', '', '')])
    }),
    row('s9.1', 's6.2', 100, `summary = model.summary()\nprint(summary)  # ${evil}`, {
      diff: added('summary'),
      comparison: against('s9.1', [
        differs(
          'output',
          'stdout',
          '2 of 14 lines differ',
          'upstream',
          'R2    0.912\nN     1203\nAIC   88.1',
          'R2    0.934\nN     1190\nAIC   88.0'
        ),
        differs('file', 'residuals.csv', 'has changed since', 'file', 'sha256:1f0a', `sha256:${evil}`),
        differs('timing', 'time', '2.0× slower', '', '600 ms', '1.2 s')
      ])
    }),
    row('s10.1', 's9.1', 110, 'weights = np.zeros((2000, 2000, 20))', {
      comparison: against('s4.1', []),
      checkpoint: cp(640e6, 'writing'),
      diff: added('weights')
    }),
    row('s11.1', 's10.1', 120, 'big = load_everything()', {
      checkpoint: cp(0, 'skipped', { reason: '31 GB would not fit into the free memory (12 GB)' }),
      diff: added('big')
    }),
    row('s12.1', 's11.1', 130, 'old = 1', { checkpoint: cp(0, 'thinned', { reason: 'older than 30 days' }) }),
    row('s13.1', 's12.1', 140, 'gone = 2', { checkpoint: cp(0, 'damaged', { reason: 'a chunk of it is missing' }) })
  ];
  const state = {
    handles: [],
    deltas: [],
    projection: null,
    notices: [],
    branches: [
      { leaf: 's7.1', fork: 's4.1', statements: ['s5', 's6', 's7'], head: false },
      { leaf: 's13.1', fork: null, statements: [], head: true }
    ],
    storage: {
      bytes: 1.24e9,
      quota: 20e9,
      pending_bytes: 640e6,
      pending_s: 3.2,
      folder: '/home/user/.cache/ctxkernel'
    },
    resume: null
  };
  const snapshot = {
    type: 'snapshot',
    protocol: 1,
    version: '0.1.0',
    python: '3.11',
    session: 'made-up',
    path: null,
    head: 's13.1',
    running: null,
    statements: rows,
    sent: false,
    timeline_truncated: 0,
    ...state
  };
  const plan = {
    target: 's4.1',
    told: 's4',
    keep: Array.from({ length: 14 }, (_, i) => `kept_${i}`),
    load: [
      { names: ['clean', 'rows'], nbytes: 31e6 },
      { names: ['df'], nbytes: 48e6 }
    ],
    drop: ['model', 'summary', 'weights'],
    rerun: {},
    lost: {},
    ambient: ['numpy.random', 'matplotlib.rcParams'],
    files: [],
    statements: [],
    seconds: 0.04,
    nbytes: 79e6,
    again: []
  };
  const step = (statement_id, action, source, seconds, reason = '') => ({
    statement_id,
    action,
    reason,
    expected: false,
    seconds,
    source
  });
  const plans = {
    easy: plan,
    hard: {
      ...plan,
      rerun: { lines: ['s3'] },
      lost: { connection: `a network connection cannot be stored ${evil}`, worker: 'a running thread' },
      files: [
        { name: 'figures/residuals.png', statement_id: 's6', size: 4e4 },
        { name: 'out.parquet', statement_id: 's9', size: 9e6 }
      ],
      seconds: 4.2
    },
    rerun: {
      ...plan,
      statements: [
        step('s5', 'run', 'model = fit(clean, seed=None)', 61),
        step('s6', 'skip', 'model.plot_residuals()', 0, 'a credential in it was masked'),
        step('s7', 'ask', 'submit(model)', 2, 'marked as one that asks')
      ],
      seconds: 63
    }
  };
  const resume = {
    statements: 41,
    head: 's41.1',
    at: start,
    interrupted: 'model = fit(clean)',
    restorable: 's40.1',
    reason: 'The state after s41 was still being written.'
  };
  const turn = (id, parent, source, more = {}, of = {}) => ({
    type: 'turn',
    statement: row(id, parent, 200, source, more),
    head: id,
    ...state,
    ...of
  });
  return { snapshot, plans, resume, turn };
};
