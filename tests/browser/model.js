// What a made-up session with a model would send, as docs/panel-protocol.md has it.
// Returns {projection, blocks, history, events, compare, whatif, request}; every text from outside would do harm as HTML.
() => {
  const evil = '<img src=x onerror=window.__pwned=1>';
  const block = (id, kind, role, tokens, text, more = {}) => ({
    id,
    kind,
    role,
    tokens,
    text,
    origin: id.split(/[.:~]/)[0],
    cached: true,
    why: `${kind} of ${id} ${evil}`,
    images: [],
    ...more
  });
  const long = Array.from({ length: 80 }, (_, i) => `line ${i} of a long output`).join('\n');
  const blocks = {
    receipt: 'sha256:0',
    blocks: [
      block('system', 'system', 'system', 900, 'You share a kernel with a person.', { origin: 'ctxkernel' }),
      block('s1.1', 'statement', 'user', 400, `rows = load()\n${evil}`),
      block('s2.1', 'statement', 'user', 1200, `print(rows)\n${long}`),
      block('s3.1:1', 'question', 'user', 20, 'Why do the residuals drift?'),
      block('s3.1:2#thinking1', 'thinking', 'assistant', 30, 'hm'),
      block('s3.1:2#said', 'answer', 'assistant', 12, 'I look at the means.'),
      block('s3.1:2', 'call', 'assistant', 40, "rows.groupby('year').mean()"),
      block('s3.1:3', 'result', 'user', 300, long),
      block('s3.1:4', 'answer', 'assistant', 25, `The sensor was replaced. ${evil}`),
      block('s4.1:1~summary1', 'summary', 'user', 60, 'Summary of 3 events'),
      block('variables', 'variables', 'user', 500, 'rows: DataFrame', { origin: 's9', cached: false }),
      block('status', 'status', 'system', 20, 'The newest statement is s9.', { origin: 'ctxkernel', cached: false })
    ],
    violations: [
      {
        rule: 'blank_text',
        path: 'messages[0].content[1].text',
        message: `a text is blank ${evil}`,
        fix: `leave it out ${evil}`,
        block: 's2.1',
        origin: 's2'
      },
      { rule: 'max_tokens', path: 'max_tokens', message: 'too many', fix: 'fewer', block: null, origin: null }
    ],
    betas: [],
    left_out: [{ id: 'variables', why: `18 more ${evil}` }]
  };
  const projection = {
    model: 'claude-sonnet-5-5',
    messages: 5,
    blocks: 12,
    left_out: 1,
    report: { ok: false, count: 2 },
    parts: { system: 900, history: 2087, handles: 0, variables: 500, groups: 0, deltas: 20 },
    cached: 2987,
    broke: '',
    images: { count: 0, tokens: 0, usd: 0, told: '' },
    cost: { usd: 0.0123, units: 4100, told: '~$0.0123', as_of: '2026-11-22' },
    tokens: 3507,
    budget: 32000,
    receipt: 'sha256:0'
  };
  const history = {
    entries: [
      { id: 's2.1~repair-added', kind: 'repair', fix: 'added', target: 's2.1:4~result', reason: `no result ${evil}` },
      {
        id: 's4.1:1',
        kind: 'condensation',
        events: 3,
        first: 's1.2',
        last: 's1.4',
        summary: `Summary of 3 events ${evil}`,
        reason: 'the history came to its 16,000 tokens',
        state: 'applied'
      },
      { id: 's5.1:1', kind: 'redaction', target: 's3.1:3', by: 'model', summary: `34 means ${evil}`, state: 'waiting' },
      { id: 's6.1:1', kind: 'redaction', target: 's2.1', by: 'human', summary: 'the rows', state: 'applied' },
      { id: 's7.1:1', kind: 'redaction', target: 's1.1', by: 'human', summary: 'x', state: 'undone' },
      { id: 's8.1:1', kind: 'batch', redactions: 2, reason: 'the cache was cold' },
      { id: 's8.1:2', kind: 'condensation', events: 0, first: null, last: null, summary: '', reason: 'too short', state: 'applied' }
    ],
    more: 4,
    pins: [{ target: 's1.1', reason: `the data ${evil}` }],
    waiting: [{ event_id: 's9.1:1', tool: `run_cell ${evil}` }],
    asked: true
  };
  const events = {
    events: [
      { id: 's1.2', kind: 'statement', text: `secret = 1 ${evil}` },
      { id: 's1.3', kind: 'result', text: long }
    ],
    more: 1
  };
  const cost = (usd) => ({ usd, units: 1, told: `~$${usd}`, as_of: '' });
  const compare = {
    changes: [
      { id: 's4.1:1~summary1', kind: 'summary', origin: 's4', before: null, after: 60 },
      { id: `s1.2${evil}`, kind: 'statement', origin: 's1', before: 700, after: null },
      { id: 'variables', kind: 'variables', origin: 's9', before: 480, after: 500 }
    ],
    more: 7,
    sizes: [4100, 3507],
    tokens: -593,
    prefix_tokens: 1300,
    breaks_at: 's2.1',
    costs: [cost(0.0141), cost(0.0123)],
    cost_after: cost(0.0051)
  };
  const price = (change, tokens, usd, more = {}) => ({
    change,
    error: null,
    tokens,
    total: 3507 + tokens,
    budget: 32000,
    before: cost(0.01),
    after: cost(usd),
    rewritten: 0,
    violations: 0,
    ...more
  });
  const whatif = (changes) => ({
    prices: changes.split('\n').map((one) =>
      one.startsWith('leave')
        ? price(one, 0, 0.01, { error: `not possible ${evil}` })
        : price(one, one.startsWith('redact') ? -1140 : 40, one.startsWith('redact') ? 0.0125 : 0.0101)
    )
  });
  const request = {
    receipt: 'sha256:0',
    body: JSON.stringify({ model: 'claude-sonnet-5-5', messages: [{ role: 'user', content: `it's ${evil}` }] }),
    url: 'https://api.anthropic.com/v1/messages',
    headers: { 'content-type': 'application/json' }
  };
  return { projection, blocks, history, events, compare, whatif, request };
};
