"""ctxkernel: a Jupyter kernel in which a person and a language model work on one replayable timeline."""

from typing import Any

from ctxkernel._version import __version__

__all__ = ["__version__", "load_ipython_extension", "sweep", "unload_ipython_extension"]


def sweep(start: int | str, parameters: Any = None, **options: Any) -> Any:
    """Run the cells that follow on a statement for each combination of parameters: what `%ctx sweep` does.

        table = sweep(7, alpha=[0.1, 0.3, 1], model=["ridge", "lasso"], collect=["r2"])
        table.frame

    `start` is the statement after which it begins. Each other keyword is a parameter with the list of its values;
    `parameters` is a dictionary of these, or a list of combinations. The options are those of `%ctx sweep`: collect,
    until, samples, seed, scheduler, store, workers, timeout, memory, again. A parameter of such a name goes into
    `parameters`.
    """
    from ctxkernel.kernel.commands.sweep import sweep_from_python

    return sweep_from_python(start, parameters, options)


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
