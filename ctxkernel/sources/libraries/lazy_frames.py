"""A polars LazyFrame as a source.

Rule: the frame is never collected. A thread of its own asks polars for the plan, for at most `ASKED_SECONDS`: to know
the columns of a scan, polars reads the beginning of the file, which may hang.
"""

from __future__ import annotations

from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.rendering import titled
from ctxkernel.sources.objects.facts import FactsSource, within


class LazyFrameSource(FactsSource):
    """A view of a LazyFrame. 0: its plan; 1: its columns and types; 2: counts; 3: what changed in plan and columns."""

    kind = "plan"

    def headline(self) -> str:
        """Return label and type."""
        return f"{titled(self.label, self.target)} (polars) · a plan, not computed"

    def stamp(self) -> str:
        """Return the identity: a plan never changes."""
        return f"{id(self.target):x}"

    def covers(self, stamp: str) -> bool:
        """What a scan reads may not have answered."""
        return False

    def value(self) -> list[str]:
        """Return the plan as polars tells it."""
        return within(lambda: self.target.explain(optimized=False).splitlines())

    def structure(self) -> list[str]:
        """Return the columns that it would have."""
        return within(lambda: [f"{name}: {kind}" for name, kind in self.target.collect_schema().items()])

    def summary(self) -> list[str]:
        """Return how many columns and steps, and what is read."""
        plan = self.value()
        scans = [line.strip() for line in plan if " SCAN " in line or line.strip().startswith("DF [")]
        return [
            f"- {plural(len(self.structure()), 'columns')}, {plural(len(plan), 'lines')} of plan",
            *(f"- reads {one_line(scan, 160)}" for scan in scans),
        ]
