"""`pytest --ctx NOTEBOOK`: a notebook as a test; recorded turns answer its asks, never a model.

Rule 1: pytest loads this module at every start, so the imports for a test are made when one runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ctxkernel", "notebooks of the ctxkernel")
    group.addoption(
        "--ctx",
        action="append",
        default=[],
        metavar="NOTEBOOK",
        help="execute a copy of NOTEBOOK, its asks answered from recorded turns, and compare its outputs (repeat)",
    )
    group.addoption(
        "--ctx-strict",
        action="store_true",
        help="fail where a request to the model is not the recorded one; without it that is a warning",
    )
    group.addoption(
        "--ctx-trust",
        action="store_true",
        help="trust the recorded turns and the settings beside the notebooks in this run (docs/trust.md)",
    )
    group.addoption(
        "--ctx-update",
        action="store_true",
        help="write the recorded turns anew, with the requests of now, where every cell has run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the notebooks, with the other arguments of the command line or alone."""
    given: list[str] = config.getoption("ctx") or []
    if not given:
        return
    for name in given:
        if not (name.endswith(".ipynb") and (config.invocation_params.dir / name).is_file()):
            raise pytest.UsageError(f"--ctx {name}: there is no such notebook")
    paths = [str(config.invocation_params.dir / name) for name in given]
    named = config.args if config.args_source == pytest.Config.ArgsSource.ARGS else []
    config.args = [*named, *paths]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a notebook that an option names."""
    folder = parent.config.invocation_params.dir
    if any((folder / name).resolve() == file_path.resolve() for name in parent.config.getoption("ctx") or ()):
        return NotebookFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]
    return None


class NotebookFile(pytest.File):
    """A notebook's file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its one test."""
        yield NotebookItem.from_parent(  # pyright: ignore[reportUnknownMemberType]
            self, name=self.name, nodeid=self.nodeid
        )


class NotebookItem(pytest.Item):
    """The execution of a notebook."""

    def runtest(self) -> None:
        """Execute it. Raises CtxError with all faults and differences."""
        from ctxkernel.cli.light import without_grammars

        with without_grammars():
            from ctxkernel.cli.examine import NotebookFailed, examine

        given = self.config.getoption
        found = examine(self.path, update=bool(given("ctx_update")), trust=bool(given("ctx_trust")))
        faults = list(found.faults)
        if found.drift and self.config.getoption("ctx_strict"):
            faults.append(found.drift)
        elif found.drift:
            self.warn(pytest.PytestWarning(found.drift))
        if faults:
            raise NotebookFailed("\n\n".join(faults))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the faults of the notebook without internal frames."""
        from ctxkernel.core.errors import CtxError

        return str(excinfo.value) if excinfo.errisinstance(CtxError) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the notebook as it was named."""
        return self.path, 0, self.nodeid
