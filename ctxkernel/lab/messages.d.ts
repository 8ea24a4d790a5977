/**
 * The messages between the kernel and the front end.
 *
 * Generated from ctxkernel/kernel/messages by tests/frontend/message_types.py: do not edit.
 */

/** Tags that only the statement of a model or of an agent has. */
export interface Tags {
  agent?: string;
  ask?: string;
  response?: any;
  round?: any;
  model?: string;
  receipt?: string;
  request_id?: string;
  usage?: Readonly<Record<string, any>>;
  stop_reason?: string;
  held?: boolean;
  fenced?: boolean;
  replayed?: boolean;
}

/** A statement that runs now. */
export interface BegunStatement {
  statement_id: string;
  execution_id: string;
  parent_execution_id: string | null;
  index: number;
  source: string;
  author: 'human' | 'model' | 'panel' | 'agent';
  kind: 'python' | 'meta' | 'parameters' | 'injected-parameters';
  cell_id: string | null;
  started_at: number;
  tags: Tags;
}

/** The size of a value, as far as it is known. */
export interface Size {
  shape?: readonly number[];
  len?: number;
  bytes?: number;
}

/** The change of one name by a statement; only a changed name has `how` and `before`. */
export interface NameChange {
  type: string;
  repr: string;
  size: Size;
  how?: string;
  before?: string;
}

/** The changes of the user's names by a statement. */
export interface NamespaceDiff {
  added: Readonly<Record<string, NameChange>>;
  changed: Readonly<Record<string, NameChange>>;
  deleted: readonly string[];
  incomplete: string;
  more?: NameCounts;
}

/** The number of names that a shortened row leaves out. */
export interface NameCounts {
  added: number;
  changed: number;
  deleted: number;
}

/** The exception of a statement. */
export interface Failure {
  type: string;
  message: string;
  trace_summary: string;
}

/** A rich output or a written file. */
export interface Artifact {
  kind: string;
  name: string;
  mime: string;
  size: number;
}

/** A handle that changed in a turn. */
export interface NodeNote {
  name: string;
  summary: string;
}

/** The checkpoint after an execution. */
export interface Checkpoint {
  state: 'writing' | 'durable' | 'skipped' | 'thinned' | 'damaged';
  bytes_new: number;
  time_ms: number;
  missing: Readonly<Record<string, string>>;
  reason: string;
}

/** One difference between an execution and its re-run; a page asks for its `detail` (`difference`). */
export interface Divergence {
  kind: 'output' | 'state' | 'artifact' | 'error' | 'file' | 'timing' | 'unknown';
  subject: string;
  summary: string;
  cause: string;
  before: string;
  after: string;
  detail: null;
}

/** The result of a re-run, compared with the execution `against`. */
export interface Comparison {
  execution_id: string;
  against: string;
  divergences: readonly Divergence[];
  expected: boolean;
  time_ms: readonly number[];
  same: boolean;
}

/** A move of HEAD; `to` is null before all executions, and where an earlier kernel moved it. */
export interface Move {
  to: string | null;
  reason: string;
}

/** The marks that a person set. */
export interface Marks {
  differs: boolean;
  asks: boolean;
}

/** The end of an ask, or that it waits; `told` says it to a person. */
export interface AskState {
  result: 'answered' | 'parked' | 'bound' | 'failed' | 'stopped' | 'asking' | 'ended';
  seconds: number;
  rounds: number;
  text: string;
  told: string;
}

/** The fields of a row that can change after it was sent: names and marks of a person, the state of an ask. */
export interface Said {
  names: readonly string[];
  marks: Marks;
  ask: AskState | null;
}

/** The changes of a row that was sent before. */
export interface AmendedRow {
  names: readonly string[];
  marks: Marks;
  ask: AskState | null;
  execution_id: string;
}

/** The fields of a row that depend on the execution alone. */
export interface ExecutionRow {
  statement_id: string;
  execution_id: string;
  parent_execution_id: string | null;
  index: number;
  source: string;
  author: 'human' | 'model' | 'panel' | 'agent';
  kind: 'python' | 'meta' | 'parameters' | 'injected-parameters';
  cell_id: string | null;
  started_at: number;
  tags: Tags;
  status: 'running' | 'ok' | 'error' | 'timeout' | 'cancelled' | 'imported';
  timestamp: number;
  ended_at: number | null;
  time_ms: number;
  tokens: number | null;
  usd: number | null;
  stdout: string;
  stderr: string;
  cut: Readonly<Record<string, number>>;
  late: Readonly<Record<string, string>>;
  exception: Failure | null;
  diff: NamespaceDiff;
  artifacts: readonly Artifact[];
  notices: readonly string[];
  nodes: readonly NodeNote[];
}

/** One execution. */
export interface Row {
  statement_id: string;
  execution_id: string;
  parent_execution_id: string | null;
  index: number;
  source: string;
  author: 'human' | 'model' | 'panel' | 'agent';
  kind: 'python' | 'meta' | 'parameters' | 'injected-parameters';
  cell_id: string | null;
  started_at: number;
  tags: Tags;
  status: 'running' | 'ok' | 'error' | 'timeout' | 'cancelled' | 'imported';
  timestamp: number;
  ended_at: number | null;
  time_ms: number;
  tokens: number | null;
  usd: number | null;
  stdout: string;
  stderr: string;
  cut: Readonly<Record<string, number>>;
  late: Readonly<Record<string, string>>;
  exception: Failure | null;
  diff: NamespaceDiff;
  artifacts: readonly Artifact[];
  notices: readonly string[];
  nodes: readonly NodeNote[];
  names: readonly string[];
  marks: Marks;
  ask: AskState | null;
  moved: Move | null;
  checkpoint: Checkpoint | null;
  comparison: Comparison | null;
  brief?: boolean;
}

/** `count` executions from `first` on: each is the same run of the next statement, and follows the one before. */
export interface Span {
  first: string;
  count: number;
  parent: string | null;
}

/** The tokens of a response, and the execution that asked. */
export interface SpentByAsk {
  ask: string;
  tokens: number;
}

/** The tree of all executions that have ended, in the order in which they began, without their content. */
export interface Shape {
  spans: readonly Span[];
  cells: Readonly<Record<string, number>>;
  cell: readonly number[];
  time_ms: readonly number[];
  meta: readonly number[];
  moved: readonly number[];
  usd: Readonly<Record<string, number>>;
  responses: Readonly<Record<string, SpentByAsk>>;
  verdicts: Readonly<Record<string, string>>;
}

/** One execution in full. */
export interface Details {
  row: ExecutionRow;
  outputs: readonly (Readonly<Record<string, any>>)[];
  outputs_more: number;
  events: readonly (Readonly<Record<string, string>>)[];
  events_more: number;
}

/** The executions that a search found, oldest first: the newest of `total`. */
export interface Found {
  runs: readonly string[];
  total: number;
}

/** The tokens that a group gives to a member. */
export interface Share {
  name: string;
  tokens: number;
}

/** A handle; its text comes on request. `shares` are those of a group. */
export interface Handle {
  name: string;
  obj_id: string;
  obj_type: string;
  target: any;
  kind: any;
  mode: any;
  freq: any;
  lod: any;
  tokens: any;
  pos: any;
  pinned: boolean;
  pin_reason: string;
  changed: boolean;
  revision: any;
  members: readonly string[];
  rendered_tokens: number;
  shares: readonly Share[];
  notes: readonly string[];
}

/** One line of the feed of changes. */
export interface DeltaItem {
  statement_id: string;
  execution_id: string | null;
  kind: 'variable' | 'node' | 'tick' | 'error' | 'file' | 'late' | 'notice' | 'divergence';
  subject: string;
  summary: string;
  text: string;
}

/** The part of a mark that many cells have in common. A page asks for the reasons if they are left out. */
export interface CellLook {
  here: 'fresh' | 'stale' | 'later' | 'branch' | 'diverged' | 'asks' | 'unknown' | null;
  author: 'human' | 'model' | 'panel' | 'agent';
  state: 'fresh' | 'stale' | 'later' | 'branch' | 'diverged' | 'asks' | 'unknown';
  because?: readonly string[];
  upstream?: readonly string[];
  checkpoint: 'writing' | 'durable' | 'skipped' | 'thinned' | 'damaged' | null;
  marked: 'asks' | 'differs' | null;
  failed: boolean;
}

/** The state of one cell of the notebook.

Where `on_head` is another execution than the newest one, `here` is its state, and `because` and `upstream` are its. */
export interface CellMark {
  here: 'fresh' | 'stale' | 'later' | 'branch' | 'diverged' | 'asks' | 'unknown' | null;
  author: 'human' | 'model' | 'panel' | 'agent';
  state: 'fresh' | 'stale' | 'later' | 'branch' | 'diverged' | 'asks' | 'unknown';
  because?: readonly string[];
  upstream?: readonly string[];
  checkpoint: 'writing' | 'durable' | 'skipped' | 'thinned' | 'damaged' | null;
  marked: 'asks' | 'differs' | null;
  failed: boolean;
  statement_id: string;
  execution_id: string;
  on_head: string | null;
  source: string;
  count: number | null;
}

/** Values of cells: the one numbered `cells[i]` and those after it, `lengths[i]` in all, have `values[i]`.

A value that is an execution is that of the first; each cell after it has the same run of the next statement. */
export interface CellSpans {
  cells: readonly number[];
  lengths: readonly number[];
  values: readonly (string | number | boolean | null)[];
}

/** The marks that changed, in short.

`ids` are those of the cells numbered from `first` on that no table before has named. `newest` are the newest
executions; `sources` and `counts` belong to their cells, in this order. A value of `on_head` is true if it is the
newest execution, null if there is none. `stands` has places in `looks`. `more`: too much changed for one message,
so the table is empty; a `marks` request gives all marks. */
export interface CellTable {
  first: number;
  ids: readonly string[];
  newest: CellSpans;
  sources: readonly string[];
  counts: readonly (number | null)[];
  on_head: CellSpans;
  looks: readonly CellLook[];
  stands: CellSpans;
  more?: boolean;
}

/** The text and the outputs of a cell as its execution left them; `cut` says what is missing, or is empty.

`source` is null where the text itself is left out; `masked` says that a part of it is replaced by a mask.
`digest` is that of the whole text, as in a mark. */
export interface CellVersion {
  cell_id: string;
  statement_id: string;
  execution_id: string;
  status: string;
  source: string | null;
  digest: string;
  masked: boolean;
  outputs: readonly (Readonly<Record<string, any>>)[];
  count: number | null;
  cut: string;
}

/** The cells on the path to the execution `at`, in the order in which they last ran; null is the start. */
export interface CellVersions {
  at: string | null;
  cells: readonly CellVersion[];
}

/** The cost of sending a projection; `told` is the text for people. */
export interface Cost {
  usd: number | null;
  units: number;
  told: string;
  as_of: string;
}

/** The images in a request: how many, their tokens, and their cost without a cache, as a text for people. */
export interface Images {
  count: number;
  tokens: number;
  usd: number | null;
  told: string;
}

/** One block of a projection; `images` are the digests of its images, for `image` requests. */
export interface Block {
  id: string;
  kind: string;
  role: 'system' | 'user' | 'assistant';
  origin: string;
  tokens: number;
  cached: boolean;
  why: string;
  text: string;
  images: readonly string[];
}

/** A rule of the API that the request breaks. */
export interface Violation {
  rule: string;
  path: string;
  message: string;
  fix: string;
  block: string | null;
  origin: string | null;
}

/** The result of checking the request; `count` is the number of violations. */
export interface Report {
  ok: boolean;
  count: number;
}

/** A block that is not in the projection, and the reason. */
export interface LeftOut {
  id: string;
  why: string;
}

/** The tokens of a projection by part; their sum is that of the projection. */
export interface Parts {
  system: number;
  history: number;
  handles: number;
  variables: number;
  groups: number;
  deltas: number;
}

/** The sizes and checks of the request to a model; its blocks come on request. `cached` are tokens. */
export interface Projection {
  model: string;
  messages: number;
  blocks: number;
  left_out: number;
  report: Report;
  cost: Cost;
  images: Images;
  parts: Parts;
  cached: number;
  broke: string;
  tokens: number;
  budget: number;
  receipt: string;
}

/** The blocks of a projection, of the turn `receipt` is the request of. */
export interface ProjectionBlocks {
  receipt: string;
  blocks: readonly Block[];
  betas: readonly string[];
  violations: readonly Violation[];
  left_out: readonly LeftOut[];
}

/** A request as it would be sent: its exact body, the address, and the headers without the key. */
export interface RequestBody {
  receipt: string;
  body: string;
  url: string;
  headers: Readonly<Record<string, string>>;
}

/** The effect of one supposed change on the next request; `error` says why the change is not possible. */
export interface Price {
  change: string;
  error: string | null;
  tokens: number;
  total: number;
  budget: number;
  before: Cost | null;
  after: Cost | null;
  rewritten: number;
  violations: number;
}

/** The effects of supposed changes, each alone. */
export interface Prices {
  prices: readonly Price[];
}

/** The cost of several requests; `ask` is the execution that asked. `usd` is null if a price is not known.

`guessed` names the counts that the server did not tell: `tokens_in`, `tokens_out`. */
export interface CostLine {
  ask: string;
  question: string;
  model: string;
  requests: number;
  tokens_in: number;
  cached: number;
  tokens_out: number;
  guessed: readonly string[];
  usd: number | null;
  told: string;
  seconds: number;
}

/** One request; `broke` says where and why it does not continue the one before. */
export interface CostPoint {
  ask: string;
  usd: number | null;
  tokens: number;
  broke: string;
}

/** The cost of all requests of the session; `requests` are the newest, `more` the number of older ones. */
export interface Costs {
  asks: readonly CostLine[];
  models: readonly CostLine[];
  total: CostLine | null;
  breaks: readonly string[];
  requests: readonly CostPoint[];
  more: number;
  fault: string;
}

/** A block that differs between two projections; a size is null where the block is absent. */
export interface BlockChange {
  id: string;
  kind: string;
  origin: string;
  before: number | null;
  after: number | null;
}

/** Two projections, compared. */
export interface Compared {
  changes: readonly BlockChange[];
  more: number;
  sizes: readonly number[];
  tokens: number;
  prefix_tokens: number;
  breaks_at: string | null;
  costs: readonly Cost[];
  cost_after: Cost;
}

/** A repair of the history. */
export interface RepairEntry {
  id: string;
  kind: 'repair';
  fix: string;
  target: string;
  reason: string;
}

/** A condensation; `events` is 0 if nothing could be condensed. */
export interface CondensationEntry {
  id: string;
  kind: 'condensation';
  reason: string;
  events: number;
  first: string | null;
  last: string | null;
  summary: string;
  state: string;
}

/** A redaction: a note instead of an output. */
export interface RedactionEntry {
  id: string;
  kind: 'redaction';
  target: string;
  by: string;
  summary: string;
  state: string;
}

/** Redactions of the model that took effect together. */
export interface BatchEntry {
  id: string;
  kind: 'batch';
  redactions: number;
  reason: string;
}

export type Entry = RepairEntry | CondensationEntry | RedactionEntry | BatchEntry;

/** An event that is pinned. */
export interface PinnedEvent {
  target: string;
  reason: string;
}

/** A call without a result. */
export interface WaitingCall {
  event_id: string;
  tool: string;
}

/** The records in the model's history. With `change`, `entries` are those that differ from the message before. */
export interface History {
  change?: boolean;
  entries: readonly (RepairEntry | CondensationEntry | RedactionEntry | BatchEntry)[];
  more: number;
  pins: readonly PinnedEvent[];
  waiting: readonly WaitingCall[];
  asked: boolean;
}

/** An event that a condensation replaces. */
export interface CondensedEvent {
  id: string;
  kind: string;
  text: string;
}

/** The events that a condensation replaces. */
export interface CondensedEvents {
  events: readonly CondensedEvent[];
  more: number;
}

/** Names that are loaded together. */
export interface Load {
  names: readonly string[];
  nbytes: number;
}

/** A file that was written since; a return does not change it. */
export interface WrittenFile {
  name: string;
  statement_id: string;
  size: number;
}

/** The effect of a return on a file whose content is stored. */
export interface FileChange {
  name: string;
  action: 'back' | 'remove' | 'stays';
  statement_id: string;
  size: number;
  reason: string;
}

/** A statement of a re-run. */
export interface Step {
  statement_id: string;
  action: 'run' | 'skip' | 'ask';
  reason: string;
  expected: boolean;
  seconds: number;
  source: string;
}

/** The effect of a return or a re-run. */
export interface Plan {
  action: string;
  text: string;
  target: string | null;
  told: string;
  keep: readonly string[];
  load: readonly Load[];
  drop: readonly string[];
  rerun: Readonly<Record<string, readonly string[]>>;
  connect: Readonly<Record<string, string>>;
  lost: Readonly<Record<string, string>>;
  as_now: Readonly<Record<string, string>>;
  ambient: readonly string[];
  files: readonly WrittenFile[];
  file_changes: readonly FileChange[];
  statements: readonly Step[];
  seconds: number;
  nbytes: number;
  again: readonly string[];
}

/** The size of the checkpoints, and of the data that are not on the disk yet. */
export interface CheckpointStorage {
  bytes: number;
  quota: number;
  pending_bytes: number;
  pending_s: number;
  folder: string;
}

/** The same, with a line for people on each state that could not be stored, was deleted or skipped. */
export interface Storage {
  bytes: number;
  quota: number;
  pending_bytes: number;
  pending_s: number;
  folder: string;
  faults: readonly string[];
}

/** The session of an earlier kernel of this notebook. */
export interface Resume {
  statements: number;
  head: string | null;
  at: number;
  interrupted: string | null;
  restorable: string | null;
  reason: string;
}

/** A cell of the model, or its first request, that waits for the user, or its state after the decision. */
export interface Proposal {
  id: string;
  kind: string;
  ask: string;
  code: string;
  told: string;
  more: number;
  state: string;
  reason: string;
}

/** The ask that a model works on now. */
export interface Asking {
  ask: string;
  model: string;
  since: number;
}

/** A cell that the front end inserts below the ask, or puts into the cell `after` itself. */
export interface Copy {
  after: string | null;
  into: boolean;
  ask: string;
  statement: string;
  ends: boolean;
  cell_type: 'code' | 'markdown';
  source: string;
  outputs: readonly (Readonly<Record<string, any>>)[];
  execution_count: number | null;
}

/** A table of a difference; `right` are the columns that are aligned right, `more` rows are left out. */
export interface ValueTable {
  head: readonly string[];
  rows: readonly (readonly string[])[];
  title: string;
  right: readonly number[];
  more: number;
}

/** A picture in base64: before, after, or the pixels that differ. */
export interface ValuePicture {
  label: string;
  media_type: string;
  data: string;
}

/** The difference of a name's value, or of a part of it; `differs` is null where that is not known. */
export interface ValueDifference {
  name: string;
  summary: string;
  known: 'complete' | 'pending' | 'unknown';
  differs: boolean | null;
  reason: string;
  counts: Readonly<Record<string, number>>;
  columns: Readonly<Record<string, number>>;
  step: number;
  tables: readonly ValueTable[];
  diff: readonly string[];
  pictures: readonly ValuePicture[];
  parts: readonly any[];
  more: number;
  notes: readonly string[];
}

/** A variable that differs; `value` is null where its values were not compared. */
export interface NameDifference {
  name: string;
  told: string;
  value: ValueDifference | null;
}

/** An output of a cell that differs, and the executions whose output it is. */
export interface OutputDifference {
  name: string;
  told: string;
  value: ValueDifference | null;
  before: string;
  after: string;
}

/** A handle that differs. */
export interface OtherDifference {
  name: string;
  how: 'added' | 'changed' | 'removed';
  told: string;
}

/** A file that differs; `value` has its lines or its table, or why they were not compared. */
export interface FileDifference {
  name: string;
  how: 'added' | 'changed' | 'removed';
  told: string;
  value: ValueDifference | null;
}

/** The differences between two states; `more` of them are left out. */
export interface StateDifference {
  old: string | null;
  new: string | null;
  added: readonly NameDifference[];
  changed: readonly NameDifference[];
  deleted: readonly NameDifference[];
  outputs: readonly OutputDifference[];
  handles: readonly OtherDifference[];
  files: readonly FileDifference[];
  notes: readonly string[];
  more: number;
}

/** A value of a parameter or a collected variable; `number` is null if it is no finite number.

`image` is the base64 of a PNG file. */
export interface SweepValue {
  text: string;
  number: number | null;
  image?: string;
}

/** A combination. `values` are those of the parameters, then of the collected variables, in the order of the names.

`branch` is an argument of `%ctx goto`, null if there is no state; `seconds` and `cpu` include shared cells. */
export interface SweepLine {
  values: readonly SweepValue[];
  status: string;
  why: string;
  branch: string | null;
  seconds: number;
  cpu: number;
  diverged: boolean;
  output: string;
}

/** The table of a sweep; `more` rows are left out. */
export interface ShownSweep {
  parameters: readonly string[];
  collected: readonly string[];
  rows: readonly SweepLine[];
  more: number;
}

/** The table in the output of a cell; `session` is the one whose states its rows name. */
export interface SweepOutput {
  session: string;
  sweep: ShownSweep;
}

/** The progress of a running sweep. */
export interface SweepProgress {
  done: number;
  tasks: number;
  workers: number;
}

/** A sweep of the session, by the execution that swept. */
export interface SweepEntry {
  execution_id: string;
  told: string;
}

/** The table of a sweep: `of` is the execution that swept. */
export interface SweepTables {
  parameters: readonly string[];
  collected: readonly string[];
  rows: readonly SweepLine[];
  more: number;
  sweeps: readonly SweepEntry[];
  of: string;
  progress: SweepProgress | null;
}

/** The data of the comm's opening. */
export interface OpenRequest {
  protocol: number;
  version: string;
}

/** Asks for a snapshot. */
export interface SnapshotRequest {
  type: 'snapshot';
}

/** Asks for the effect of a return or a re-run. */
export interface PlanRequest {
  type: 'plan';
  id: string;
  action: 'goto' | 'undo' | 'rerun';
  target: string;
  before?: boolean;
  upto?: string;
}

/** Asks for the events that the condensation `of` replaces. */
export interface EventsRequest {
  type: 'events';
  id: string;
  of: string;
}

/** Asks for the differences of two projections; a `new` of null is the newest one. */
export interface CompareRequest {
  type: 'compare';
  id: string;
  old: string;
  new: string | null;
}

/** Asks for the differences of two states, by value: of all names, or of some.

A place is an argument of `%ctx goto`; a `new` of null is HEAD. */
export interface DifferenceRequest {
  type: 'difference';
  id: string;
  old: string;
  new: string | null;
  names?: readonly string[];
}

/** Asks for rows: `s1.1+20 s40.2` are twenty from `s1.1` on and one more; at most 200 in one answer. */
export interface RowsRequest {
  type: 'rows';
  id: string;
  runs: string;
}

/** Asks for the notebook's cells as they were at the execution `at` (null: HEAD), or for one of them. */
export interface CellsRequest {
  type: 'cells';
  id: string;
  at: string | null;
  cell?: string;
}

/** Asks for the marks of some cells, at most 50, or of all. */
export interface MarksRequest {
  type: 'marks';
  id: string;
  names?: readonly string[];
}

/** Asks for the execution `of` in full. */
export interface DetailsRequest {
  type: 'details';
  id: string;
  of: string;
}

/** Asks for the executions to which all given fields apply; `name` may contain `*`. */
export interface SearchRequest {
  type: 'search';
  id: string;
  text?: string;
  name?: string;
  author?: string;
  status?: string;
  verdict?: string;
  branch?: string;
}

/** Asks for the blocks of the newest projection. */
export interface ProjectionRequest {
  type: 'projection';
  id: string;
}

/** Asks for the newest request as it would be sent. */
export interface BodyRequest {
  type: 'request';
  id: string;
}

/** Asks for the image of the newest projection with the digest `of`. */
export interface ImageRequest {
  type: 'image';
  id: string;
  of: string;
}

/** Asks for the prices of `changes`: words of `%ctx whatif`, one change a line, each supposed alone. */
export interface WhatIfRequest {
  type: 'whatif';
  id: string;
  changes: string;
}

/** Asks for the cost of all requests of the session to models. */
export interface CostRequest {
  type: 'cost';
  id: string;
}

/** Asks for the table of the sweep of the execution `of`, or of the newest sweep. */
export interface SweepRequest {
  type: 'sweep';
  id: string;
  of?: string;
}

/** Asks for the session as a page. Ask on the control channel: servers limit the rate of the others. */
export interface ExportRequest {
  type: 'export';
  id: string;
}

/** Asks for the rendering of the handle with the id `of`. */
export interface HandleRequest {
  type: 'handle';
  id: string;
  of: string;
}

export type PanelRequest = SnapshotRequest | PlanRequest | EventsRequest | CompareRequest | DifferenceRequest | CellsRequest | MarksRequest | RowsRequest | DetailsRequest | SearchRequest | ProjectionRequest | BodyRequest | ImageRequest | WhatIfRequest | CostRequest | SweepRequest | HandleRequest | ExportRequest;

/** The fields that a snapshot and a turn have in common. */
export interface State {
  history?: History;
  head: string | null;
  handles: readonly Handle[];
  deltas: readonly DeltaItem[];
  projection: Projection | null;
  notices: readonly string[];
  storage: Storage | null;
  resume: Resume | null;
  sent: boolean;
  work: readonly string[];
}

/** All data of a panel. */
export interface SnapshotMessage {
  history?: History;
  head: string | null;
  handles: readonly Handle[];
  deltas: readonly DeltaItem[];
  projection: Projection | null;
  notices: readonly string[];
  storage: Storage | null;
  resume: Resume | null;
  sent: boolean;
  work: readonly string[];
  sweeps?: number;
  type: 'snapshot';
  protocol: number;
  version: string;
  python: any;
  session: string;
  path: string | null;
  running: BegunStatement | null;
  statements: readonly Row[];
  timeline_truncated: number;
  proposal: Proposal | null;
  asking: Asking | null;
  shape: Shape;
  cells: CellTable;
}

/** A statement began. */
export interface BeginMessage {
  type: 'begin';
  statement: BegunStatement;
  head: string | null;
}

/** A turn ended. */
export interface TurnMessage {
  history?: History;
  head: string | null;
  handles: readonly Handle[];
  deltas: readonly DeltaItem[];
  projection: Projection | null;
  notices: readonly string[];
  storage: Storage | null;
  resume: Resume | null;
  sent: boolean;
  work: readonly string[];
  type: 'turn';
  statement: Row;
  cells: CellTable;
  outside?: Row;
  rows?: readonly AmendedRow[];
  insert?: Copy;
}

/** The data of a checkpoint were stored after its turn, or could not be. */
export interface CheckpointMessage {
  type: 'checkpoint';
  execution_id: string;
  checkpoint: Checkpoint;
  diff?: NamespaceDiff;
  storage: Storage | null;
  work?: readonly string[];
  cells?: CellTable;
}

/** The proposal that waits for the user now. */
export interface ProposalMessage {
  type: 'proposal';
  proposal: Proposal | null;
}

/** Whether a model works on an ask now. */
export interface AskingMessage {
  type: 'asking';
  asking: Asking | null;
  sent?: boolean;
  rows?: readonly AmendedRow[];
  cells?: CellTable;
}

/** The progress of a running sweep. */
export interface SweepingMessage {
  type: 'sweeping';
  execution_id: string;
  progress: SweepProgress;
}

/** The fields that all answers have: the request's id, and an error instead of a result. */
export interface AnswerFields {
  id: any;
  error: string | null;
}

/** The answer to a `plan` request. */
export interface PlanAnswer {
  id: any;
  error: string | null;
  type: 'plan';
  plan: Plan | null;
}

/** The answer to an `events` request. */
export interface EventsAnswer {
  id: any;
  error: string | null;
  type: 'events';
  events: CondensedEvents | null;
}

/** The answer to a `compare` request. */
export interface CompareAnswer {
  id: any;
  error: string | null;
  type: 'compare';
  compare: Compared | null;
}

/** The answer to a `rows` request. */
export interface RowsAnswer {
  id: any;
  error: string | null;
  type: 'rows';
  rows: readonly Row[] | null;
}

/** The answer to a `details` request. */
export interface DetailsAnswer {
  id: any;
  error: string | null;
  type: 'details';
  details: Details | null;
}

/** The answer to a `search` request. */
export interface SearchAnswer {
  id: any;
  error: string | null;
  type: 'search';
  search: Found | null;
}

/** The answer to a `projection` request. */
export interface ProjectionAnswer {
  id: any;
  error: string | null;
  type: 'projection';
  projection: ProjectionBlocks | null;
}

/** The answer to a `request` request. */
export interface RequestAnswer {
  id: any;
  error: string | null;
  type: 'request';
  request: RequestBody | null;
}

/** A picture in base64. */
export interface Picture {
  media_type: string;
  data: string;
}

/** The answer to an `image` request. */
export interface ImageAnswer {
  id: any;
  error: string | null;
  type: 'image';
  image: Picture | null;
}

/** The answer to a `whatif` request. */
export interface WhatIfAnswer {
  id: any;
  error: string | null;
  type: 'whatif';
  whatif: Prices | null;
}

/** Lines of a rendering as they are. */
export interface TextBlock {
  kind: 'text';
  text: string;
}

/** Code of a rendering: (style, text) in order; the style is empty, or `keyword`, `string`, `number`, … */
export interface CodeBlock {
  kind: 'code';
  spans: readonly (readonly string[])[];
}

/** The bar of a column, 90 wide and 12 high: its rectangles (x, y, width, height, opacity); `label` says it. */
export interface Distribution {
  shapes: readonly (readonly number[])[];
  label: string;
}

/** Lines of a rendering as a table; the first `labels` cells of a row name it. `bars` has one a row, or is empty. */
export interface TableBlock {
  kind: 'table';
  head: readonly string[];
  rows: readonly (readonly string[])[];
  right: readonly number[];
  bars: readonly (Distribution | null)[];
  labels: number;
}

export type RenderingBlock = TextBlock | CodeBlock | TableBlock;

/** The rendering of a handle as blocks; `more` is the number of characters that were cut. */
export interface HandleText {
  blocks: readonly (TextBlock | CodeBlock | TableBlock)[];
  more: number;
}

/** The answer to a `handle` request. */
export interface HandleAnswer {
  id: any;
  error: string | null;
  type: 'handle';
  handle: HandleText | null;
}

/** The session as one HTML page, a name for its file, and lines on what it leaves out. */
export interface SavedPage {
  name: string;
  text: string;
  left_out: readonly string[];
}

/** The answer to an `export` request. */
export interface ExportAnswer {
  id: any;
  error: string | null;
  type: 'export';
  export: SavedPage | null;
}

/** The answer to a `cost` request. */
export interface CostAnswer {
  id: any;
  error: string | null;
  type: 'cost';
  cost: Costs | null;
}

/** The answer to a `sweep` request. */
export interface SweepAnswer {
  id: any;
  error: string | null;
  type: 'sweep';
  sweep: SweepTables | null;
}

/** The answer to a `cells` request. */
export interface CellsAnswer {
  id: any;
  error: string | null;
  type: 'cells';
  cells: CellVersions | null;
}

/** The answer to a `marks` request. */
export interface MarksAnswer {
  id: any;
  error: string | null;
  type: 'marks';
  marks: CellTable | null;
}

/** The answer to a `difference` request. */
export interface DifferenceAnswer {
  id: any;
  error: string | null;
  type: 'difference';
  difference: StateDifference | null;
}

export type Answer = PlanAnswer | EventsAnswer | CompareAnswer | CellsAnswer | MarksAnswer | DifferenceAnswer | RowsAnswer | DetailsAnswer | SearchAnswer | ProjectionAnswer | RequestAnswer | ImageAnswer | WhatIfAnswer | CostAnswer | SweepAnswer | HandleAnswer | ExportAnswer;

export type KernelMessage = SnapshotMessage | BeginMessage | TurnMessage | CheckpointMessage | ProposalMessage | AskingMessage | SweepingMessage | PlanAnswer | EventsAnswer | CompareAnswer | CellsAnswer | MarksAnswer | DifferenceAnswer | RowsAnswer | DetailsAnswer | SearchAnswer | ProjectionAnswer | RequestAnswer | ImageAnswer | WhatIfAnswer | CostAnswer | SweepAnswer | HandleAnswer | ExportAnswer;

/** The widget's trait `facts`; `tokens` is null for no limit. */
export interface HandleFacts {
  name: string;
  obj_id: string;
  type: string;
  target: string;
  lod: number;
  tokens: number | null;
  mode: string;
  freq: string;
  pinned: boolean;
  used: number;
  before: number | null;
  changed: boolean;
  change: string;
  notes: readonly string[];
  more: number;
  picture: Picture | null;
  aside: boolean;
}

/** The change of a handle that a person wants. */
export interface GestureChange {
  lod?: number;
  tokens?: number | null;
  mode?: 'running' | 'paused';
  refresh?: boolean;
}

/** From the widget: a gesture. */
export interface GestureMessage {
  type: 'gesture';
  id: string;
  change: GestureChange;
}

/** To the widget: the gesture was carried out; `error` is empty, or the reason why it was not. */
export interface GestureDone {
  type: 'done';
  id: string;
  error: string;
}
