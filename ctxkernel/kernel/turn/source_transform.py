"""A cell's source is transformed once: ipykernel asks IPython to, to see whether the cell awaits, and IPython does it
again to run it. No code runs between the two, and a cell spends more on it than on being stored.
"""

from __future__ import annotations

from typing import Any


class SingleTransform:
    """Stands for `shell.transform_cell`; of two equal calls at a cell's start the second gets what the first gave."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._stock = shell.transform_cell
        self._expected = False
        """Whether the next call is the first one of a cell."""
        self._kept: tuple[str, list[Any], str] | None = None
        """The source, what transformed it, and the result; for the next call only."""

    def install(self) -> None:
        """Take the place of `transform_cell`."""
        self._shell.transform_cell = self

    def expect(self) -> None:
        """A cell is about to be run."""
        self._expected, self._kept = True, None

    def __call__(self, raw_cell: str) -> str:
        """Return a cell's source as Python."""
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] == raw_cell and kept[1] == self._transformers():
            return kept[2]
        expected, self._expected = self._expected, False
        made = self._stock(raw_cell)
        if expected:
            self._kept = raw_cell, self._transformers(), made
        return made

    def _transformers(self) -> list[Any]:
        manager = self._shell.input_transformer_manager
        return [
            *manager.cleanup_transforms,
            *manager.line_transforms,
            *manager.token_transformers,
            *self._shell.input_transformers_post,
        ]
