"""`%load_ext ctxkernel`: gives a running stock ipykernel what our own kernel has.

The kernel object's class is swapped for one with the mixin in front, since its handlers are bound already. The cell
that loads it is not in the timeline. Where there is no ipykernel (plain IPython), a clear message, and nothing else.
"""

from __future__ import annotations

from typing import Any, cast

from ctxkernel.core.errors import CtxError


def load_ipython_extension(shell: Any) -> None:
    """Switch ctxkernel on in this kernel. A second call does nothing."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        raise CtxError(
            "ctxkernel needs a Jupyter kernel, and this IPython has none; "
            "open a notebook, or use: jupyter console --kernel ctxkernel"
        )
    from ctxkernel.kernel.app import CtxKernelMixin, start
    from ctxkernel.kernel.execution.authority import AUTHOR

    if isinstance(kernel, CtxKernelMixin):
        return
    stock = cast("type[Any]", type(kernel))
    kernel.__class__ = type("CtxKernel", (CtxKernelMixin, stock), {})
    AUTHOR.set("human")  # for the rest of the cell that loads it
    start(kernel)
    if kernel.ctx is not None:
        kernel.ctx.started()
    if kernel.ctx is None:
        kernel.__class__ = stock
        raise CtxError("ctxkernel could not start here; the kernel goes on as before. Run: ctxkernel doctor")


def unload_ipython_extension(shell: Any) -> None:
    """Say that ctxkernel stays. Handles, callbacks and a state that is being written use it until the kernel ends."""
    print("ctxkernel stays loaded: it cannot be taken out of a running kernel. Restart the kernel to work without it.")
