"""ctxkernel: a Jupyter kernel in which a person and a language model work on one replayable timeline."""

from typing import Any

from ctxkernel._version import __version__

__all__ = ["__version__", "load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext ctxkernel`: give a stock ipykernel the timeline, handles and projection."""
    from ctxkernel.kernel.extension import load_ipython_extension as load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext ctxkernel`: say that a running kernel keeps it, and what to do instead."""
    from ctxkernel.kernel.extension import unload_ipython_extension as unload

    unload(shell)


def _jupyter_labextension_paths() -> list[dict[str, str]]:  # pyright: ignore[reportUnusedFunction]
    """Tell `jupyter labextension develop` where the panel's files lie."""
    return [{"src": "lab", "dest": "jupyter-ctxkernel"}]
