/**
 * The parts of JupyterLab 4.2 and newer, and of anywidget, that the front end uses.
 *
 * Hand-written: the packages of JupyterLab bring hundreds of others. A part that not every host has (Notebook 7, an older
 * JupyterLab) is optional here.
 */

interface Signal<Sender, Args> {
  connect(slot: (sender: Sender, args: Args) => void): unknown;
  disconnect(slot: (sender: Sender, args: Args) => void): unknown;
}

/* ---- widgets */

/** A split panel has the shares of its parts. */
export declare class Widget {
  constructor();
  readonly node: HTMLElement;
  readonly isVisible: boolean;
  readonly isAttached: boolean;
  readonly isHidden: boolean;
  readonly isDisposed: boolean;
  readonly parent: Widget | null;
  readonly disposed: Signal<unknown, void>;
  readonly title: { label: string; caption: string; icon: unknown; closable: boolean };
  id: string;
  addClass(name: string): void;
  activate(): void;
  dispose(): void;
  setRelativeSizes?(sizes: number[]): void;
  relativeSizes?(): number[];
  protected onAfterAttach(msg: unknown): void;
  protected onBeforeDetach(msg: unknown): void;
  protected onAfterShow(msg: unknown): void;
  protected onAfterHide(msg: unknown): void;
  protected onActivateRequest(msg: unknown): void;
}
export declare class BoxOfWidgets extends Widget {
  readonly widgets: readonly Widget[];
  addWidget(widget: Widget): void;
}

/* ---- kernels */

export interface Message {
  header: { msg_type: string };
  parent_header?: { msg_type?: string; msg_id?: string };
  content: any;
}
export interface Future {
  onIOPub: (msg: Message) => void;
  readonly done: Promise<Message>;
}
export interface Comm {
  readonly isDisposed: boolean;
  /** From JupyterLab 4.4 on: whether its messages go to a thread of their own in the kernel. */
  commsOverSubshells?: string;
  onMsg: (msg: { content: { data: any } }) => void;
  onClose: (msg: unknown) => void;
  open(data: object): unknown;
  send(data: object): unknown;
  close(): unknown;
  dispose(): void;
}
export interface Kernel {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly clientId: string;
  readonly username: string;
  readonly isDisposed: boolean;
  readonly connectionStatus: string;
  readonly info: Promise<KernelInfo>;
  hasComm?(id: string): boolean;
  createComm(target: string): Comm;
  interrupt(): Promise<void>;
  reconnect(): Promise<void>;
  requestCommInfo(content: { target_name?: string }): Promise<{ content: { comms?: Record<string, unknown> } }>;
  requestExecute(content: object, disposeOnDone: boolean, metadata: object): Future;
  sendControlMessage(message: unknown, expectReply: boolean): { done: Promise<Message> };
}
export interface KernelInfo {
  implementation: string;
}
export interface SessionContext {
  readonly ready: Promise<void>;
  readonly session: { kernel: Kernel | null } | null;
  readonly kernelDisplayName?: string;
  readonly kernelChanged: Signal<unknown, unknown>;
  readonly statusChanged: Signal<unknown, string>;
  readonly connectionStatusChanged: Signal<unknown, string>;
  readonly iopubMessage: Signal<unknown, Message>;
}

/* ---- notebooks */

export interface Output {
  readonly data?: Record<string, any>;
}
export interface Outputs {
  readonly length: number;
  get(index: number): Output;
  set(index: number, output: object): void;
  /** Returns how many there are then. */
  add(output: object): number;
  fromJSON(outputs: readonly object[]): void;
  toJSON(): any[];
}
export interface SharedCell {
  readonly cell_type: string;
  getId(): string;
  getSource(): string;
  /** Replace the text from one place to another. */
  updateSource(start: number, end: number, value?: string): void;
  /** Without a key: of all. */
  getMetadata(key?: string): any;
  setMetadata(key: string, value: unknown): void;
  deleteMetadata(key: string): void;
  /** Groups changes; one that cannot be undone leaves the text's history alone. */
  transact?(change: () => void, undoable?: boolean): void;
  readonly undoManager?: { stopCapturing?(): void } | null;
}
export interface CellModel {
  readonly id: string;
  readonly type: string;
  readonly outputs: Outputs;
  readonly sharedModel: SharedCell;
  /** Of its text, by which an editor colours it. */
  mimeType?: string;
  /** Of a code cell. */
  executionCount: number | null;
  readonly executionState?: string;
  /** Whether its text is not the one that ran; newer versions let it be set. */
  isDirty?: boolean;
  readonly contentChanged?: Signal<unknown, unknown>;
  readonly metadataChanged?: Signal<unknown, unknown>;
  getMetadata(key: string): any;
}
export interface Cell extends Widget {
  readonly model: CellModel;
  /** Of a code cell. */
  outputHidden: boolean;
  /** Of a Markdown cell. */
  rendered: boolean;
}
export interface NotebookContent {
  readonly widgets: readonly Cell[];
  readonly activeCell: Cell | null;
  readonly codeMimetype?: string;
  readonly modelContentChanged?: Signal<unknown, unknown>;
  readonly model: {
    readonly deletedCells?: string[];
    readonly cells?: { readonly changed?: Signal<unknown, unknown> };
    readonly sharedModel: { readonly cells: readonly SharedCell[]; insertCell(index: number, cell: object): unknown };
  } | null;
  readonly notebookConfig?: { recordTiming?: boolean };
  readonly rendermime: RenderMime;
  readonly modelChanged?: Signal<unknown, unknown>;
  readonly activeCellChanged?: Signal<unknown, unknown>;
  activeCellIndex: number;
  mode: string;
  activate(): void;
  deselectAll(): void;
  scrollToItem?(index: number, align: string): Promise<void>;
  scrollToCell?(cell: Cell, align: string): unknown;
}
export interface NotebookPanel extends Widget {
  readonly content: NotebookContent;
  readonly context: {
    readonly path: string;
    readonly localPath?: string;
    readonly pathChanged: Signal<unknown, unknown>;
    readonly saveState?: Signal<unknown, string>;
    readonly model: { readonly dirty: boolean; readonly readOnly: boolean };
    save(): Promise<void>;
  };
  /** Between the toolbar and the cells. */
  readonly contentHeader?: BoxOfWidgets;
  readonly sessionContext: SessionContext;
}
export interface NotebookTracker {
  readonly currentWidget: NotebookPanel | null;
  readonly widgetAdded: Signal<unknown, NotebookPanel>;
  readonly currentChanged: Signal<unknown, unknown>;
  readonly activeCellChanged: Signal<unknown, unknown>;
  forEach(each: (notebook: NotebookPanel) => void): void;
}
export interface NotebookActions {
  expandParent?(cell: Cell, content: NotebookContent): void;
}
export interface CodeCell {
  execute(cell: Cell, context: SessionContext, metadata: object): Promise<Message | void>;
}

/* ---- outputs */

export interface MimeModel {
  readonly data: Record<string, any>;
  readonly trusted: boolean;
}
export type Renderer = Widget & { renderModel(model: MimeModel): Promise<void> };
export interface RenderMime {
  createRenderer(mime: string): Renderer;
  createModel(options: { data: Record<string, unknown>; trusted: boolean }): MimeModel;
  addFactory(factory: { safe: boolean; mimeTypes: string[]; createRenderer: () => Renderer }, rank: number): void;
}

/* ---- the application */

export interface CommandArgs {
  isPalette?: boolean;
}
/** A command's label may be made of the arguments that it is shown with. */
export interface CommandOptions {
  label: string | ((args: CommandArgs) => string);
  caption?: string;
  icon?: unknown;
  isEnabled?(): boolean;
  isVisible?(): boolean;
  isToggled?(): boolean;
  isToggleable?: boolean;
  execute(): void;
}
export interface Application {
  readonly restored: Promise<unknown>;
  readonly commands: {
    addCommand(id: string, options: CommandOptions): unknown;
    notifyCommandChanged(id: string): void;
  };
  readonly shell: {
    readonly rightCollapsed?: boolean;
    /** Whether one or several documents are seen; Notebook 7 does not say. */
    readonly mode?: string;
    add(widget: Widget, area: string, options: object): void;
    activateById(id: string): void;
    collapseRight?(): void;
  };
}
export interface Palette {
  addItem(item: { command: string; category: string; args?: object }): unknown;
}
export interface Settings {
  readonly changed: Signal<unknown, unknown>;
  get(name: string): { composite: unknown };
  set(name: string, value: unknown): Promise<void>;
}
export interface StatusBar {
  registerStatusItem(id: string, item: { item: Widget; align: string; rank: number }): unknown;
}
export declare class Menu extends Widget {
  constructor(options: { commands: object });
  readonly aboutToClose: Signal<unknown, void>;
  addItem(item: { type?: string; command?: string; args?: object }): unknown;
  open(x: number, y: number): void;
}
export interface SettingRegistry {
  load(plugin: string): Promise<Settings>;
}
export interface StateDB {
  fetch(id: string): Promise<any>;
  save(id: string, value: object): Promise<unknown>;
}
export interface Editors {
  highlight?(code: string, language: unknown, el: HTMLElement): unknown;
  findByName(name: string): unknown;
}

/** A class of icons. */
export type LabIcon = new (options: { name: string; svgstr: string }) => object;
export interface KernelMessages {
  createMessage(options: object): unknown;
}

/* ---- anywidget */

export interface WidgetModel<Traits> {
  get<Name extends keyof Traits>(name: Name): Traits[Name];
  send(content: object): void;
  on(event: string, listener: (message?: any) => void): void;
  off(event: string, listener: (message?: any) => void): void;
  /** JupyterLab's; anywidget does not promise it. */
  readonly widget_manager?: { get_model?(id: string): Promise<{ comm_live?: boolean } | undefined> };
}

declare global {
  interface Window {
    /** Where JupyterLab looks for extensions. */
    _JUPYTERLAB?: Record<string, unknown>;
    /** The classic notebook. */
    Jupyter?: { notebook?: { get_cells?(): { output_area?: { outputs?: { data?: Record<string, any> }[] } }[] } };
  }
}
