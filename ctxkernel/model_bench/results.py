"""The results of a benchmark run: by task, in total, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

from ctxkernel.agent.asks import NOTHING, Spent
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import format_duration, plural

VERSION = 1
HEADERS = ("task", "result", "rounds", "tokens in", "out", "cost", "time", "why it failed, or what it measures")


@dataclass(frozen=True, slots=True)
class PlayedTask:
    """One task, played once."""

    task: str
    why: str
    """Why it failed; empty if it passed."""
    spent: Spent = NOTHING
    seconds: float = 0.0
    """Of the whole task, the cells included."""
    words: str = ""
    """The model's last text."""
    drift: bool = False
    """Whether a replayed request differs from the recorded one."""

    @property
    def passed(self) -> bool:
        """Return whether all assertions hold."""
        return not self.why

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"passed": self.passed, "why": self.why, **_spent(self.spent, self.seconds), "words": self.words}


@dataclass(slots=True)
class BenchResults:
    """The tasks that were played, those left out, and the reason if the run ended early."""

    model: str
    dialect: str
    measures: Mapping[str, str]
    """Task → the ability that it measures."""
    runs: list[PlayedTask] = field(default_factory=list[PlayedTask])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """Task → why it was not played."""
    ended: str = ""
    """Why the run ended before its last task."""

    @property
    def spent(self) -> Spent:
        """The cost of all runs."""
        return _sum(self.runs)

    @property
    def share(self) -> float:
        """The share of the runs that passed."""
        return sum(run.passed for run in self.runs) / len(self.runs) if self.runs else 0.0

    def by_task(self) -> dict[str, list[PlayedTask]]:
        """Return the runs of each task, in the order in which they were played."""
        made: dict[str, list[PlayedTask]] = {}
        for run in self.runs:
            made.setdefault(run.task, []).append(run)
        return made

    def rows(self) -> list[list[str]]:
        """Return the cells of a table with one row a task, after `HEADERS`."""
        return [_row(name, runs, self.measures.get(name, "")) for name, runs in self.by_task().items()]

    def summary(self) -> str:
        """Return the totals and what was not played, as lines of text."""
        passed = sum(run.passed for run in self.runs)
        seconds = sum(run.seconds for run in self.runs)
        spent = self.spent
        total = (
            f"{passed} of {plural(len(self.runs), 'runs')} passed ({self.share:.0%}): "
            f"{plural(spent.requests, 'requests')}, {spent.tokens_in:,} tokens in, {spent.tokens_out:,} out, "
            f"{_usd(spent.usd)}, {format_duration(seconds)}"
        )
        lines = [total]
        if drifted := sum(run.drift for run in self.runs):
            lines.append(f"{plural(drifted, 'runs')} sent requests that differ from the recorded ones (drift)")
        lines += [f"not played: {name} ({why})" for name, why in self.left_out.items()]
        return "\n".join([*lines, self.ended] if self.ended else lines)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        tasks = [
            {
                "name": name,
                "measures": self.measures.get(name, ""),
                "passed": sum(run.passed for run in runs),
                "played": len(runs),
                "runs": [run.to_json() for run in runs],
            }
            for name, runs in self.by_task().items()
        ]
        return {
            "ctxkernel_bench": VERSION,
            "model": self.model,
            "dialect": self.dialect,
            "passed": sum(run.passed for run in self.runs),
            "played": len(self.runs),
            "share": round(self.share, 4),
            **_spent(self.spent, sum(run.seconds for run in self.runs)),
            "drift": sum(run.drift for run in self.runs),
            "tasks": tasks,
            "left_out": dict(self.left_out),
            "ended": self.ended,
        }


def _row(name: str, runs: Sequence[PlayedTask], measures: str) -> list[str]:
    passed, spent = sum(run.passed for run in runs), _sum(runs)
    whole = ("failed", "passed")[passed] if len(runs) == 1 else f"{passed}/{len(runs)}"
    counts = [str(spent.requests), f"{spent.tokens_in:,}", f"{spent.tokens_out:,}", _usd(spent.usd)]
    why = next((run.why for run in runs if run.why), measures)
    return [name, whole, *counts, format_duration(sum(run.seconds for run in runs)), why]


def _sum(runs: Iterable[PlayedTask]) -> Spent:
    return reduce(add, (run.spent for run in runs), NOTHING)


def _usd(usd: float | None) -> str:
    return "–" if usd is None else f"${usd:.4f}" if usd < 1 else f"${usd:.2f}"


def _spent(spent: Spent, seconds: float) -> dict[str, Any]:
    return {
        "rounds": spent.requests,
        "tokens_in": spent.tokens_in,
        "cached": spent.cached,
        "tokens_out": spent.tokens_out,
        "usd": None if spent.usd is None else round(spent.usd, 6),
        "seconds": round(seconds, 3),
    }
