"""The kernel: a thin subclass of ipykernel's. `do_execute` is the one hook (IPython's events miss some cells).

`CtxKernelMixin` holds everything, so that `%load_ext ctxkernel` can give a running stock kernel the same.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from ctxkernel._version import __version__
from ctxkernel.core.cell_tags import cell_tags, kind_of, stable_id, statement_tags
from ctxkernel.core.timeline import Execution
from ctxkernel.kernel.commands import magic_at, register
from ctxkernel.kernel.display.handle_widgets import widget_advice
from ctxkernel.kernel.execution.authority import AUTHOR
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply, asks, only_reads
from ctxkernel.kernel.messages.page_input import short_text
from ctxkernel.kernel.runtime import Runtime
from ctxkernel.kernel.turn.cell_turn import with_named_error
from ctxkernel.replay.notebook_outputs import notebook_outputs

META = "ctxkernel"
"""Key of the execute request's metadata under which the front end describes the request."""
RunCell = Callable[..., Awaitable[ExecuteReply]]
_STATUS = threading.RLock()
"""Held while a status is published: the shell and the control channel have threads of their own."""


class CtxKernelMixin:
    """Makes an IPythonKernel a ctxkernel."""

    implementation = "ctxkernel"
    implementation_version = __version__
    ctx: Runtime | None = None
    ctx_off: str | None = None
    """The reason why there is no `ctx`, until the user was told."""

    _running: Any = None
    """The request on the shell channel that the kernel is busy with."""

    def _publish_status(self, status: str, channel: str, parent: Any = None) -> None:
        """Publish a status, as ipykernel does, and after one of the control channel whether a cell still runs.

        A front end shows the last status that it got: each look into the panel, which asks on the control channel,
        would make a kernel that runs a cell look idle.
        """
        stock: Any = super()
        with _STATUS:
            stock._publish_status(status, channel, parent)
            if channel == "shell":
                self._running = (parent or stock.get_parent(channel)) if status == "busy" else None
            elif status == "idle" and self._running is not None:
                stock._publish_status("busy", "shell", self._running)

    @property
    def kernel_info(self) -> dict[str, Any]:
        """The kernel's description of itself, without the feature of subshells.

        A comm handler on a subshell would run on another thread in the middle of a cell. ipykernel's own thread for
        the shell's socket stays as it is: a reply sent past it, from the main thread, can abort the process in libzmq.
        """
        stock: Any = super()
        info: dict[str, Any] = stock.kernel_info
        return {**info, "supported_features": [f for f in info["supported_features"] if f != "kernel subshells"]}

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, Any] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: dict[str, Any] | None = None,
        cell_id: str | None = None,
        **kwargs: Any,
    ) -> ExecuteReply:
        """Run a cell as ipykernel does, with a statement around it if it is recorded."""
        ctx = self.ctx
        passed = {"cell_meta": cell_meta, "cell_id": cell_id, **kwargs}
        if (known := _accepted(type(self))) is not None:
            passed = {key: value for key, value in passed.items() if key in known}

        async def run(source: str, *, keeps_number: bool = False) -> ExecuteReply:
            stock: Any = super(CtxKernelMixin, self)
            numbered = store_history or keeps_number
            return await stock.do_execute(source, silent, numbered, user_expressions, allow_stdin, **passed)

        if ctx is None or threading.current_thread() is not threading.main_thread():
            self._tell_off(silent=silent)
            # On a subshell another cell may be open on the main thread: that one owns the turn.
            return await run(code)
        said = _said(cell_meta)
        copied = ctx.models.copied(code) if isinstance(said.get("statement"), str) else None
        if copied is not None and not silent:
            return self._show_again(ctx, copied)
        cell = self._request(ctx, code, silent, store_history, cell_meta, cell_id)
        if cell.recorded and cell.cell_id is None and not allow_stdin and cell.author == "human":
            ctx.guard("notebook of a runner", lambda: _complete(ctx, cell), None)
        by_agent = cell.recorded and cell.author == "agent"
        if by_agent and (held := self._hold(ctx, cell, _dict_of(said.get("agent")))) is not None:
            return held
        ctx.turns.take_then()
        ctx.checkpoints.told = said.get("cells")
        if ctx.gestures.asked:
            ctx.gestures.carry_out()
        ctx.turns.executing = True
        began = time.monotonic()
        try:
            with ctx.models.agents.no_exit() if by_agent else nullcontext():
                reply = await self._execute(ctx, cell, run)
            then = ctx.turns.take_then()
            if then is not None:
                number = reply.get("execution_count")
                reply = await then.carry_out(lambda one: self._execute(ctx, one, run), cell, reply)
                if number is not None:  # of the cell itself: the cells that it ran had later ones
                    reply["execution_count"] = number
                if reply.get("status") == "error" and not silent:
                    self._stop_queue(ctx, began)
        finally:
            # Until here, an interrupt that came between two cells stops the next one.
            ctx.interrupts.pending = False
            ctx.turns.executing = False
        ctx.gestures.carry_out()
        return reply

    def _tell_off(self, *, silent: bool) -> None:
        """Tell once why this kernel records nothing."""
        if self.ctx_off and not silent:
            print(self.ctx_off, file=sys.stderr)
            self.ctx_off = None

    def _request(
        self, ctx: Runtime, code: str, silent: bool, stored: bool, cell_meta: dict[str, Any] | None, cell_id: str | None
    ) -> CellRequest:
        """Return the request for a cell; it says whether the cell becomes a statement, and which."""
        said = _said(cell_meta)
        # A notebook's cell is stored: the metadata in its file, which front ends pass on, make no gesture of it.
        gesture = said.get("kind") == "meta" and not stored
        cell = CellRequest(code, _parent_header(self).get("msg_id", ""), silent)
        cell.recorded = (
            isinstance(cast("object", code), str)  # a malformed request may hold anything
            and (gesture or (not silent and stored and not code.isspace() and code != ""))
            and not ("%ctx" in code and only_reads(code))
        )
        if cell.recorded:
            deciding = "%" in code and asks(code)
            tags = cell_tags(cell_meta)
            cell.cell_id = stable_id(cell_id, ctx.store.run)
            cell.kind = "meta" if gesture or cell.moves_head or deciding else kind_of(tags)
            cell.author = "panel" if gesture else "agent" if "agent" in said else "human"
            cell.rerun = said.get("rerun") is True
            cell.tags = statement_tags(tags)
            cell.affected = said.get("affected") is True
            if cell.author == "agent":
                agent = _dict_of(said["agent"])
                cell.tags |= {
                    "agent": short_text(agent.get("name")) or "an agent",
                    "call": short_text(agent.get("call")),
                }
            if not deciding:
                ctx.models.forget_copies()  # the state that the model's cells ran in is another now
        return cell

    def _hold(self, ctx: Runtime, cell: CellRequest, agent: dict[str, Any]) -> ExecuteReply | None:
        """Return the reply to a cell of an agent that does not run now; None: it runs."""
        call, seen = short_text(agent.get("call")) or "", short_text(agent.get("seen")) or ""
        failed: ExecuteReply = {"status": "error", "ename": "Refused", "evalue": "ctxkernel failed; nothing was run"}
        held = ctx.guard("agents", lambda: ctx.models.agents.hold(cell, call, seen), {**failed, "traceback": []})
        if held is None:
            return None
        kernel: Any = self
        return {**held, "execution_count": kernel.execution_count, "user_expressions": {}, "payload": []}

    def _stop_queue(self, ctx: Runtime, began: float) -> None:
        """Refuse what was sent before this reply and arrives later, as ipykernel refuses what has arrived."""
        kernel: Any = self
        if _dict_of(_dict_of(kernel.get_parent("shell")).get("content")).get("stop_on_error", True):
            ctx.stopped_queue.stop(_parent_header(kernel), began)

    def should_handle(self, stream: Any, msg: Any, idents: Any) -> Any:
        """Decide as ipykernel does; answer `aborted` to an execute request sent before an ask stopped the queue."""
        kernel: Any = self
        ctx, header = self.ctx, _dict_of(_dict_of(msg).get("header"))
        if ctx is not None and header.get("msg_type") == "execute_request" and ctx.stopped_queue.has_stopped(header):
            kernel._send_abort_reply(stream, msg, idents)
            return False
        stock: Any = super()
        return stock.should_handle(stream, msg, idents)

    def _show_again(self, ctx: Runtime, ran: Execution) -> ExecuteReply:
        """Show the outputs of a cell of the model in its copy below the ask, which has run it."""
        ctx.notices.write(f"not run again: the ask above ran it as {ran.statement_id}\n")
        kernel: Any = self
        with ctx.capture.ours():
            for output in notebook_outputs(ran, kernel.execution_count):
                kind = output.pop("output_type")
                kernel.send_response(kernel.iopub_socket, kind, output)
        return {"status": "ok", "execution_count": kernel.execution_count, "user_expressions": {}, "payload": []}

    async def _execute(self, ctx: Runtime, cell: CellRequest, run: RunCell) -> ExecuteReply:
        """Run one cell, as a turn if it is recorded."""
        if cell.recorded:
            ctx.turns.open(cell)
        else:
            ctx.activity.silent = True
        reply: ExecuteReply | None = None
        interrupted = False
        broken: BaseException | None = None
        before = AUTHOR.set(cell.author)
        try:
            reply = ctx.kept_cells.reply(cell) if cell.recorded else None
            if reply is None:
                with ctx.interrupts.user_code():
                    if cell.recorded and ctx.timeout.seconds is not None:
                        ctx.guard("time-out", ctx.timeout.start, None)
                    ctx.transform.expected = True
                    reply = with_named_error(await run(cell.code, keeps_number=cell.keeps_number))
                    if ctx.checkpoints.job is not None and reply.get("status") == "ok":
                        done, reply = reply, None  # an interrupt while it loads is the cell's outcome
                        reply = ctx.checkpoints.load_job(done)
        except KeyboardInterrupt:
            interrupted = True
        except asyncio.CancelledError as fault:
            # An interrupt cancelled the cell's task before its first step; or a loop that shuts down cancelled ours.
            task = asyncio.current_task()
            interrupted = True
            broken = fault if task is not None and task.cancelling() else None
        except BaseException as fault:
            interrupted = _lost_result(fault)
            if ctx.interrupts.from_handler(fault):  # a signal's handler raised in IPython, not in the user's code
                reply = ctx.notices.refuse(str(fault), type(fault).__name__)
            elif not interrupted:
                broken = fault  # a malformed request: ipykernel itself failed
        if ctx.interrupts.can_switch():
            ctx.interrupts.mask()
        AUTHOR.reset(before)
        timed_out = ctx.timeout.stop() if ctx.timeout.timer is not None else None
        if timed_out is not None:  # the interrupt was the time-out's, and not the user's
            ctx.interrupts.seen = False
        if broken is not None:
            reply = {"status": "error", "ename": type(broken).__name__, "evalue": str(broken), "traceback": []}
        elif reply is None:
            reply = self._interrupted_reply(cell.silent)
        if advice := widget_advice(str(reply.get("ename")), str(reply.get("evalue"))):
            ctx.notices.tell(advice)
        if cell.recorded:
            interrupted = interrupted or reply.get("ename") in ("KeyboardInterrupt", "CancelledError")
            reply = ctx.turns.shut(reply, interrupted, timed_out)
        ctx.turns.tell_late_signals()
        if broken is not None:
            raise broken
        return reply

    def _interrupted_reply(self, silent: bool) -> ExecuteReply:
        """Show an interrupt that rose outside of IPython's care, and return the cell's reply."""
        kernel: Any = self
        content: ExecuteReply = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["KeyboardInterrupt"]}
        if not silent:
            kernel.send_response(kernel.iopub_socket, "error", content)
        count = kernel.execution_count
        return {"status": "error", "execution_count": count, "user_expressions": {}, "payload": [], **content}

    def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = (), **kwargs: Any
    ) -> Any:
        """Show help for the name at the cursor. IPython alone would show the magic `%view` for the function `view`."""
        name = magic_at(code, cursor_pos) if self.ctx is not None else None
        kernel: Any = self
        if name is None:
            stock: Any = super()
            return stock.do_inspect(code, cursor_pos, detail_level, omit_sections, **kwargs)
        data = kernel.shell.object_inspect_mime(name, detail_level=detail_level, omit_sections=omit_sections)
        return {"status": "ok", "found": True, "data": data, "metadata": {}}

    @contextmanager
    def _cancel_on_sigint(self, future: Any) -> Generator[None]:
        """Cancel as ipykernel's does, but also wake the event loop, and raise where the cell computes.

        ipykernel's handler schedules with tornado's add_callback, which from a signal handler does not wake a loop
        that waits in select: only the second SIGINT, or the next message, interrupted `await asyncio.sleep(30)`.
        And a cell that awaited once and then loops never lets the event loop cancel it.
        """
        kernel: Any = self
        above: Any = super()
        with above._cancel_on_sigint(future):
            stock = signal.getsignal(signal.SIGINT)
            loop = asyncio.get_running_loop()

            def handle(signum: int, frame: Any) -> None:
                __tracebackhide__ = True
                if self.ctx is not None:
                    self.ctx.interrupts.seen = True
                if asyncio.current_task(loop) is future and _runs_code_of(kernel.shell.user_ns, frame):
                    raise KeyboardInterrupt
                if callable(stock):
                    stock(signum, frame)
                loop.call_soon_threadsafe(lambda: None)

            signal.signal(signal.SIGINT, handle)
            yield

    def getpass(self, prompt: str = "", *args: Any, **kwargs: Any) -> str:
        """Ask for a password, which is a secret from then on."""
        __tracebackhide__ = True
        stock: Any = super()
        typed: str = stock.getpass(prompt, *args, **kwargs)
        if self.ctx is not None:
            self.ctx.secrets.typed(str(prompt), typed, hidden=True)
        return typed

    def raw_input(self, prompt: Any = "") -> str:
        """Ask for a line, which is a secret from then on if the prompt says so."""
        __tracebackhide__ = True
        stock: Any = super()
        if self.ctx is not None:
            self.ctx.activity.asked()
        typed: str = stock.raw_input(prompt)
        if self.ctx is not None:
            self.ctx.secrets.typed(str(prompt), typed, hidden=False)
        return typed

    def pre_handler_hook(self) -> None:
        """Only note interrupts while an execute request is handled, except in the user's code."""
        ctx = self.ctx
        if ctx is None or _parent_header(self).get("msg_type") != "execute_request":
            stock: Any = super()
            stock.pre_handler_hook()
            return
        # ipykernel's own hook would let interrupts raise, and one at this moment would end the kernel.
        ctx.interrupts.pending = False
        ctx.interrupts.busy = True
        self.saved_sigint_handler = ctx.interrupts.mask()

    def post_handler_hook(self) -> None:
        """Put the user's signal handlers back in force when everything after a request is done."""
        stock: Any = super()
        stock.post_handler_hook()
        ctx = self.ctx
        if ctx is not None and ctx.interrupts.busy:
            ctx.interrupts.busy = False
            # ipykernel has yet to report that it is idle: a handler that raised now would prevent that.
            asyncio.get_running_loop().call_soon(ctx.turns.idle)


def _complete(ctx: Runtime, cell: CellRequest) -> None:
    """Give a cell the id and tags that the notebook's file has for it: nbclient and papermill send its text only."""
    listed = ctx.notebook_cells.find(cell.code)
    if listed is not None:
        tags = cell_tags(listed.metadata)
        cell.cell_id, cell.tags = listed.cell_id, statement_tags(tags)
        cell.kind = kind_of(tags) if cell.kind == "python" else cell.kind


def _parent_header(kernel: Any) -> dict[str, Any]:
    return _dict_of(_dict_of(kernel.get_parent("shell")).get("header"))


def _dict_of(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _said(cell_meta: object) -> dict[str, Any]:
    """Return our entry of a request's metadata. It is untrusted: it may hold anything."""
    return _dict_of(_dict_of(cell_meta).get(META))


def _runs_code_of(namespace: dict[str, Any], frame: Any) -> bool:
    """Return whether code of `namespace` is on the stack: then IPython catches an exception raised here."""
    while frame is not None:
        if frame.f_globals is namespace:
            return True
        frame = frame.f_back
    return False


def _lost_result(fault: BaseException) -> bool:
    """Return whether a second interrupt came while IPython showed the first one: then IPython has no result."""
    last = fault.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return isinstance(fault, UnboundLocalError) and last is not None and last.tb_frame.f_code.co_name == "_run_cell"


_ACCEPTED: dict[type, frozenset[str] | None] = {}


# ipykernel asks for the signature before each cell: one that was made before takes a third of the time.
CtxKernelMixin.do_execute.__signature__ = inspect.signature(CtxKernelMixin.do_execute)  # type: ignore[attr-defined]


def _accepted(cls: type) -> frozenset[str] | None:
    """Return the keywords of the do_execute below the mixin, which differ between versions; None: it takes all."""
    if cls not in _ACCEPTED:
        base: Any = cls.__mro__[cls.__mro__.index(CtxKernelMixin) + 1]
        parameters = inspect.signature(base.do_execute).parameters.values()
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        _ACCEPTED[cls] = None if takes_all else frozenset(parameter.name for parameter in parameters)
    return _ACCEPTED[cls]


class CtxKernel(CtxKernelMixin, IPythonKernel):
    """IPython with a timeline that a model can share."""

    def __init__(self, **kwargs: Any) -> None:
        stock: Any = super()
        stock.__init__(**kwargs)
        start(self)

    async def create_subshell_request(self, socket: Any, ident: Any, parent: Any) -> None:
        """Refuse, so that a client that asks nevertheless gets an answer."""
        content: ExecuteReply = {"status": "error", "ename": "NotSupported", "evalue": "ctxkernel has no subshells"}
        content["traceback"] = []
        session: Any = self.session
        session.send(socket, "create_subshell_reply", content, parent, ident)

    def start(self) -> None:
        """Begin to answer. An earlier session comes back only now: IPython hides the names that existed before."""
        super().start()
        if self.ctx is not None:
            self.ctx.started()


def start(kernel: Any) -> None:
    """Give `kernel` its session. If that fails, the user is told, and the kernel goes on as plain ipykernel."""
    try:
        ctx = Runtime(kernel)
        ctx.install()
        ctx.guard.once("magics", lambda: register(ctx.context, ctx.gestures.set_dispatch), None)
    except Exception as fault:
        kernel.log.warning("ctxkernel is off: %s: %s", type(fault).__name__, fault, exc_info=True)
        kernel.ctx = None
        kernel.ctx_off = (
            f"ctxkernel is off in this kernel ({type(fault).__name__}: {fault}); "
            "it goes on as plain ipykernel. Run in a terminal: ctxkernel doctor"
        )
        return
    kernel.ctx = ctx


class CtxKernelApp(IPKernelApp):
    """`python -m ctxkernel.kernel -f CONNECTION_FILE`. Its name is ipykernel's, so it reads the same configuration."""

    kernel_class = CtxKernel

    def initialize(self, argv: Any = None) -> None:
        """Start, without the log records that no handler shows: ipykernel makes four a cell, for debugging."""
        stock: Any = super()
        stock.initialize(argv)
        self.log.setLevel(self.log_level)

    def init_kernel(self) -> None:
        """Make the kernel, which loads most modules, and switch on the garbage collection that is off until then."""
        stock: Any = super()
        stock.init_kernel()
        gc.enable()


def main() -> None:
    """Start a kernel from the command line, as Jupyter does."""
    CtxKernelApp.launch_instance()
