"""The kernel: a thin subclass of ipykernel's. `do_execute` is the one hook (not IPython's events, which miss cells).

`CtxKernelMixin` holds all of it, so that `%load_ext ctxkernel` can give a running stock kernel the same.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from ctxkernel._version import __version__
from ctxkernel.core.timeline import Execution
from ctxkernel.kernel.commands import magic_at, register
from ctxkernel.kernel.display.panel_rows import notebook_outputs
from ctxkernel.kernel.runtime import Runtime
from ctxkernel.kernel.turn.cell import CellRequest
from ctxkernel.kernel.turn.classification import asks, moves_head, only_reads

META = "ctxkernel"
"""Key of the execute request's metadata in which the front end says what a request is."""
_DIFFERS, _ASKS = "ctx-differs", "ctx-asks"
"""Tags of a cell that is expected to differ when it is re-run, or that asks before it runs again."""


class CtxKernelMixin:
    """What makes an IPythonKernel a ctxkernel."""

    ctx: Runtime | None = None
    ctx_off: str | None = None
    """Why there is no ctx, until the user was told."""

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
    ) -> dict[str, Any]:
        """Run a cell as ipykernel does, with a statement round it where it is one."""
        ctx = self.ctx
        given = {"cell_meta": cell_meta, "cell_id": cell_id, **kwargs}
        known = _accepted(type(self))
        passed = given if known is None else {key: value for key, value in given.items() if key in known}

        async def run(source: str, *, keeps_number: bool = False) -> dict[str, Any]:
            stock = super(CtxKernelMixin, self).do_execute  # type: ignore[misc]
            numbered = store_history or keeps_number
            return await stock(source, silent, numbered, user_expressions, allow_stdin, **passed)

        if ctx is None or threading.current_thread() is not threading.main_thread():
            if self.ctx_off and not silent:
                print(self.ctx_off, file=sys.stderr)
                self.ctx_off = None
            # On a subshell another cell may be open on the main thread: that one owns the turn.
            return await run(code)
        copied = ctx.models.copied(code) if isinstance(_said(cell_meta).get("statement"), str) else None
        if copied is not None and not silent:
            return self._shown_again(ctx, copied)
        gesture = is_gesture(cell_meta)
        cell = CellRequest(code, self._msg_id(), silent)
        cell.recorded = (
            isinstance(code, str)
            and (gesture or (not silent and store_history and not code.isspace() and code != ""))
            and not only_reads(code)
        )
        if cell.recorded:
            cell.cell_id = cell_id if isinstance(cell_id, str) else None
            cell.kind = "meta" if gesture or moves_head(code) or asks(code) else "python"
            cell.author = "panel" if gesture else "human"
            cell.rerun = _said(cell_meta).get("rerun") is True
            cell.tags = tags_of(cell_meta)
            if not asks(code):
                ctx.models.forget_copies()  # what the model's cells did would now be done in another state
        ctx.turns.next()
        ctx.turns.executing = True
        try:
            reply = await self._execute(ctx, cell, run)
            then = ctx.turns.next()
            if then is not None:
                reply = await then.carry_out(lambda one: self._execute(ctx, one, run), cell, reply)
        finally:
            # Until here one that came between two cells stops what comes next.
            ctx.interrupts.pending = False
            ctx.turns.executing = False
        ctx.gestures.carry_out()
        return reply

    def _shown_again(self, ctx: Runtime, ran: Execution) -> dict[str, Any]:
        """Show what a cell of the model gave in its copy below the ask: the ask has run it."""
        ctx.notices.write(f"not run again: the ask above ran it as {ran.statement_id}\n")
        with ctx.capture.ours():
            for output in notebook_outputs(ran):
                kind = output.pop("output_type")
                self.send_response(self.iopub_socket, kind, output)  # type: ignore[attr-defined]
        count = self.execution_count  # type: ignore[attr-defined]
        return {"status": "ok", "execution_count": count, "user_expressions": {}, "payload": []}

    def _msg_id(self) -> str:
        parent = self.get_parent("shell") or {}  # type: ignore[attr-defined]
        return (parent.get("header") or {}).get("msg_id", "")

    async def _execute(
        self, ctx: Runtime, cell: CellRequest, run: Callable[..., Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Run one cell, as a turn where it is to be recorded."""
        recorded = cell.recorded
        if recorded:
            ctx.turns.open(cell)
        else:
            ctx.activity.silent = True
        reply: dict[str, Any] | None = None
        interrupted = False
        broken: BaseException | None = None
        try:
            with ctx.interrupts.user_code():
                if recorded:
                    ctx.guard("time-out", ctx.timeout.start, None)
                ctx.transform.expect()
                reply = await run(cell.code, keeps_number=cell.keeps_number)
                if ctx.checkpoints.job is not None and reply.get("status") == "ok":
                    done, reply = reply, None  # an interrupt while it loads is the cell's outcome
                    reply = ctx.checkpoints.load_job(done)
        except KeyboardInterrupt:
            interrupted = True
        except asyncio.CancelledError as fault:
            # The cell's task, cancelled by an interrupt before its first step; or ours, by a loop that shuts down.
            task = asyncio.current_task()
            interrupted = True
            broken = fault if task is not None and task.cancelling() else None
        except BaseException as fault:
            interrupted = _lost_result(fault)
            if ctx.interrupts.from_handler(fault):  # it hit IPython, before or after the user's code
                reply = ctx.notices.refuse(str(fault), type(fault).__name__)
            elif not interrupted:
                broken = fault  # a malformed request: ipykernel itself failed
        if ctx.interrupts.can_switch():
            ctx.interrupts.mask()
        timed_out = ctx.timeout.stop() if recorded else None
        if timed_out is not None:  # the interrupt was ours, and nobody's wish to stop
            ctx.interrupts.seen = False
        if broken is not None:
            reply = {"status": "error", "ename": type(broken).__name__, "evalue": str(broken), "traceback": []}
        elif reply is None:
            reply = interrupted_reply(self, cell.silent)
        if recorded:
            interrupted = interrupted or reply.get("ename") in ("KeyboardInterrupt", "CancelledError")
            reply = ctx.turns.shut(reply, interrupted, timed_out)
        ctx.turns.tell_late_signals()
        if broken is not None:
            raise broken
        return reply

    def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = (), **kwargs: Any
    ) -> Any:
        """Show help of the name at the cursor. IPython would take the function `view` for the magic `%view`."""
        name = magic_at(code, cursor_pos) if self.ctx is not None else None
        if name is None:
            stock = super().do_inspect  # type: ignore[misc]
            return stock(code, cursor_pos, detail_level, omit_sections, **kwargs)
        data = self.shell.object_inspect_mime(name, detail_level=detail_level, omit_sections=omit_sections)  # type: ignore[attr-defined]
        return {"status": "ok", "found": True, "data": data, "metadata": {}}

    @contextmanager
    def _cancel_on_sigint(self, future: Any) -> Iterator[None]:
        """As ipykernel's, but wake the event loop too, and raise where the cell computes.

        Its handler schedules with tornado's add_callback, which from a signal handler does not wake a loop that
        waits in select: `await asyncio.sleep(30)` was only interrupted by the second SIGINT, or by the next message.
        And a cell that awaited once and then loops never gives the event loop a chance to cancel it.
        """
        with super()._cancel_on_sigint(future):  # type: ignore[misc]
            stock = signal.getsignal(signal.SIGINT)
            loop = asyncio.get_running_loop()

            def handle(signum: int, frame: Any) -> None:
                __tracebackhide__ = True
                if self.ctx is not None:
                    self.ctx.interrupts.seen = True
                if asyncio.current_task(loop) is future and runs_code_of(self.shell.user_ns, frame):  # type: ignore[attr-defined]
                    raise KeyboardInterrupt
                if callable(stock):
                    stock(signum, frame)
                loop.call_soon_threadsafe(lambda: None)

            signal.signal(signal.SIGINT, handle)
            yield

    def pre_handler_hook(self) -> None:
        """While an execute request is handled interrupts are only noted, but for the user's code."""
        ctx = self.ctx
        parent = self.get_parent("shell") or {}  # type: ignore[attr-defined]
        if ctx is None or (parent.get("header") or {}).get("msg_type") != "execute_request":
            super().pre_handler_hook()  # type: ignore[misc]
            return
        # Not by way of ipykernel's hook: that lets interrupts raise, and one in that moment ends the kernel.
        ctx.interrupts.pending = False
        ctx.interrupts.busy = True
        self.saved_sigint_handler = ctx.interrupts.mask()

    def post_handler_hook(self) -> None:
        """Let the user's signal handlers be as they were, when all that follows a request is done."""
        super().post_handler_hook()  # type: ignore[misc]
        ctx = self.ctx
        if ctx is not None and ctx.interrupts.busy:
            ctx.interrupts.busy = False
            # ipykernel still has to say that it is idle: a handler that raised now would keep it from that.
            asyncio.get_running_loop().call_soon(ctx.turns.idle)


def _said(cell_meta: object) -> dict[str, Any]:
    """Return what the metadata of a request say to us. They are a stranger's: anything may stand there."""
    meta = cell_meta.get(META) if isinstance(cell_meta, dict) else None
    return meta if isinstance(meta, dict) else {}


def is_gesture(cell_meta: object) -> bool:
    """Whether the metadata of a request say that it is a gesture."""
    return _said(cell_meta).get("kind") == "meta"


def tags_of(cell_meta: object) -> dict[str, Any]:
    """Return what the tags of a cell say about its re-runs, as a statement's tags."""
    tags = cell_meta.get("tags") if isinstance(cell_meta, dict) else None
    said = tags if isinstance(tags, list) else []
    return {name: True for name, tag in (("differs", _DIFFERS), ("asks", _ASKS)) if tag in said}


def runs_code_of(namespace: dict[str, Any], frame: Any) -> bool:
    """Whether code of `namespace` is on the stack: IPython then catches what is raised here."""
    while frame is not None:
        if frame.f_globals is namespace:
            return True
        frame = frame.f_back
    return False


def _lost_result(fault: BaseException) -> bool:
    """Whether a second interrupt hit while IPython showed the first one: it drops both, and has no result to return."""
    last = fault.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return isinstance(fault, UnboundLocalError) and last is not None and last.tb_frame.f_code.co_name == "_run_cell"


def interrupted_reply(kernel: Any, silent: bool) -> dict[str, Any]:
    """Return the reply for a cell whose interrupt rose outside of IPython's care, and show it."""
    content = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["KeyboardInterrupt"]}
    if not silent:
        kernel.send_response(kernel.iopub_socket, "error", content)
    return {
        "status": "error",
        "execution_count": kernel.execution_count,
        "user_expressions": {},
        "payload": [],
        **content,
    }


_ACCEPTED: dict[type, frozenset[str] | None] = {}


def _accepted(cls: type) -> frozenset[str] | None:
    """The keywords that the do_execute below the mixin takes, None for all: it differs between versions."""
    if cls not in _ACCEPTED:
        base = cls.__mro__[cls.__mro__.index(CtxKernelMixin) + 1]
        parameters = inspect.signature(base.do_execute).parameters.values()
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        _ACCEPTED[cls] = None if takes_all else frozenset(parameter.name for parameter in parameters)
    return _ACCEPTED[cls]


class CtxKernel(CtxKernelMixin, IPythonKernel):
    """IPython with a timeline that a model can share."""

    implementation = "ctxkernel"
    implementation_version = __version__

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        start(self)

    @property
    def kernel_info(self) -> dict[str, Any]:
        """What the kernel says of itself: subshells are not among its features.

        A comm handler on a subshell would run on another thread in the middle of a cell. ipykernel's own thread for
        the shell's socket stays as it is: a reply sent past it, from the main thread, can abort the process in libzmq.
        """
        info = super().kernel_info
        return {**info, "supported_features": [f for f in info["supported_features"] if f != "kernel subshells"]}

    async def create_subshell_request(self, socket: Any, ident: Any, parent: Any) -> None:
        """Refuse: a client that asks all the same shall not wait for an answer."""
        content = {"status": "error", "ename": "NotSupported", "evalue": "ctxkernel has no subshells", "traceback": []}
        session: Any = self.session
        session.send(socket, "create_subshell_reply", content, parent, ident)

    def start(self) -> None:
        """Begin to answer. What an earlier kernel left comes back now: what is there before IPython hides."""
        super().start()
        if self.ctx is not None:
            self.ctx.started()


def start(kernel: Any) -> None:
    """Give `kernel` its session. What fails is told; the kernel goes on as plain ipykernel."""
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
    """`python -m ctxkernel.kernel -f CONNECTION_FILE`."""

    name = "ctxkernel"
    kernel_class = CtxKernel

    def initialize(self, argv: Any = None) -> None:
        """Start up; and have no records made that no handler shows: ipykernel makes four a cell, for debugging."""
        super().initialize(argv)
        self.log.setLevel(self.log_level)


def main() -> None:
    """Start a kernel from the command line, as Jupyter does."""
    CtxKernelApp.launch_instance()
