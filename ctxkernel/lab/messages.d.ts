/**
 * The messages between the kernel and the front end.
 *
 * Generated from ctxkernel/kernel/messages by tests/frontend/message_types.py: do not edit.
 */

/** Tags that only a model's statement has. */
export interface Tags {
  ask?: string;
  response?: any;
  round?: any;
  model?: string;
  receipt?: string;
  request_id?: string;
  usage?: Readonly<Record<string, any>>;
  stop_reason?: string;
  held?: boolean;
  replayed?: boolean;
}

/** A statement that runs now. */
export interface BegunStatement {
  statement_id: string;
  execution_id: string;
  parent_execution_id: string | null;
  index: number;
  source: string;
  author: 'human' | 'model' | 'panel';
  kind: 'python' | 'meta';
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

/** One difference between an execution and its re-run. */
export interface Divergence {
  kind: 'output' | 'state' | 'artifact' | 'error' | 'file' | 'timing';
  subject: string;
  summary: string;
  cause: string;
  before: string;
  after: string;
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

/** Names and marks that a person set; they can change after the row was sent. */
export interface Said {
  names: readonly string[];
  marks: Marks;
}

/** New names and marks of a row that was sent before. */
export interface AmendedRow {
  names: readonly string[];
  marks: Marks;
  execution_id: string;
}

/** The fields of a row that depend on the execution alone. */
export interface ExecutionRow {
  statement_id: string;
  execution_id: string;
  parent_execution_id: string | null;
  index: number;
  source: string;
  author: 'human' | 'model' | 'panel';
  kind: 'python' | 'meta';
  cell_id: string | null;
  started_at: number;
  tags: Tags;
  status: 'running' | 'ok' | 'error' | 'timeout' | 'cancelled';
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
  author: 'human' | 'model' | 'panel';
  kind: 'python' | 'meta';
  cell_id: string | null;
  started_at: number;
  tags: Tags;
  status: 'running' | 'ok' | 'error' | 'timeout' | 'cancelled';
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
  moved: Move | null;
  checkpoint: Checkpoint | null;
  comparison: Comparison | null;
}

/** A branch of the timeline, by its executions; `fork` is null for a branch from the start. */
export interface Branch {
  leaf: string;
  fork: string | null;
  statements: readonly string[];
  head: boolean;
}

/** A handle, with the first characters of its rendering. */
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
  text: string;
  notes: readonly string[];
}

/** One line of the feed of changes. */
export interface DeltaItem {
  statement_id: string;
  kind: 'variable' | 'node' | 'tick' | 'error' | 'file' | 'late' | 'notice' | 'divergence';
  subject: string;
  summary: string;
  text: string;
}

/** The cost of sending a projection; `told` is the text for people. */
export interface Cost {
  usd: number | null;
  units: number;
  told: string;
  as_of: string;
}

/** One block of a projection. */
export interface Block {
  id: string;
  kind: string;
  role: 'system' | 'user' | 'assistant';
  origin: string;
  tokens: number;
  cached: boolean;
  why: string;
  text: string;
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

/** The result of checking the request. */
export interface Report {
  ok: boolean;
  violations: readonly Violation[];
}

/** A block that is not in the projection, and the reason. */
export interface LeftOut {
  id: string;
  why: string;
}

/** The request to a model. */
export interface Projection {
  request: Readonly<Record<string, any>>;
  blocks: readonly Block[];
  betas: readonly string[];
  report: Report;
  cost: Cost;
  left_out: readonly LeftOut[];
  tokens: number;
  budget: number;
  receipt: string;
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

/** The records in the model's history. */
export interface History {
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

/** A cell that the front end inserts below the ask. */
export interface Copy {
  after: string | null;
  ask: string;
  statement: string;
  ends: boolean;
  cell_type: 'code' | 'markdown';
  source: string;
  outputs: readonly (Readonly<Record<string, any>>)[];
  execution_count: number | null;
}

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
  branches: readonly Branch[];
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
  type: 'turn';
  statement: Row;
  outside?: Row;
  rows?: readonly AmendedRow[];
  branches?: readonly Branch[];
  insert?: Copy;
}

/** The data of a checkpoint were stored after its turn, or could not be. */
export interface CheckpointMessage {
  type: 'checkpoint';
  execution_id: string;
  checkpoint: Checkpoint;
  storage: Storage | null;
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

export type Answer = PlanAnswer | EventsAnswer | CompareAnswer;

export type KernelMessage = SnapshotMessage | BeginMessage | TurnMessage | CheckpointMessage | ProposalMessage | AskingMessage | PlanAnswer | EventsAnswer | CompareAnswer;

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

export type PanelRequest = SnapshotRequest | PlanRequest | EventsRequest | CompareRequest;

/** A picture in base64. */
export interface Picture {
  media_type: string;
  data: string;
}

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
