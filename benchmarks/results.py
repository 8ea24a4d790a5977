"""The figures of a run: their JSON, their table, and the comparison of two runs.

Rule 1: a figure stands beside its peer of the same run, and beside its aim. Two runs of different machines are compared
        by the ratio to the peer; a figure without a peer is compared by itself.
Rule 2: nothing here measures, and nothing here prints.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Aim:
    """What a figure is to reach: a limit of its value, or of its ratio to the peer."""

    limit: float
    of: Literal["value", "ratio"] = "value"
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)}{' ×' if self.of == 'ratio' else ''}"


@dataclass(frozen=True)
class Figure:
    """One number."""

    what: str
    value: float
    unit: str
    peer: str = ""
    """Who or what the value is compared with."""
    peer_value: float | None = None
    aim: Aim | None = None
    more_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """The value, as a multiple of the peer's."""
        return self.value / self.peer_value if self.peer_value else None

    @property
    def reached(self) -> bool | None:
        """Return whether the aim is reached; None without an aim, or without the peer that the aim needs."""
        if self.aim is None:
            return None
        found = self.ratio if self.aim.of == "ratio" else self.value
        if found is None:
            return None
        return found >= self.aim.limit if self.aim.at_least else found <= self.aim.limit


@dataclass(frozen=True)
class Measured:
    """The figures of one benchmark, or why there are none."""

    figures: tuple[Figure, ...]
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class Run:
    """The figures of all benchmarks that were run."""

    commit: str
    version: str
    date: str
    size: str
    machine: str
    benchmarks: dict[str, Measured]

    def write(self, path: Path) -> None:
        """Write the run as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Run:
    """Return the run that `path` holds. Raises ValueError where the file holds none."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        measured = {name: _measured(one) for name, one in told.pop("benchmarks").items()}
        return Run(**told, benchmarks=measured)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is no file of `python -m benchmarks --json`: {error}") from None


def _measured(told: dict[str, Any]) -> Measured:
    return Measured(tuple(map(figure_of, told["figures"])), told["seconds"], told["error"])


def figure_of(told: dict[str, Any]) -> Figure:
    """Return the figure that was written as `told`."""
    aim = told["aim"]
    return Figure(**{**told, "aim": Aim(**aim) if aim else None})


def this_run(size: str, benchmarks: dict[str, Measured]) -> Run:
    """Return a run of this code on this machine."""
    from ctxkernel import __version__

    cores = len(getattr(os, "sched_getaffinity", lambda _: range(1))(0))
    machine = f"{platform.system()}, {cores} cores, Python {platform.python_version()}"
    if hasattr(os, "getloadavg"):
        machine += f", load {os.getloadavg()[1]:.0f}"  # wall times follow it; processor times and ratios less
    return Run(_commit(), __version__, time.strftime("%Y-%m-%d"), size, machine, benchmarks)


def _commit() -> str:
    """Return the commit of this checkout; a `+` says that files differ from it."""
    git = ["git", "-C", str(ROOT)]
    named = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if named.returncode:
        return "unknown"
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "ctxkernel"], capture_output=True, text=True, check=False
    )
    return named.stdout.strip() + ("+" if changed.stdout.strip() else "")


def number(value: float) -> str:
    """Return a number with three digits that count."""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


HEAD = "| benchmark | figure | ctxkernel | peer, same run | × | aim |\n|---|---|--:|--:|--:|---|"


def rows(name: str, measured: Measured) -> Iterator[str]:
    """Yield the rows of one benchmark."""
    if measured.error:
        yield f"| {name} | not measured: {_one_line(measured.error)} | | | | |"
    for one in measured.figures:
        peer = f"{one.peer}: {number(one.peer_value)}" if one.peer_value is not None else one.peer
        aim = "" if one.aim is None else f"{one.aim}{'' if one.reached is not False else ', missed'}"
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}" if one.ratio >= 0.01 else f"{one.ratio:.1g}"
        yield f"| {name} | {one.what} | {number(one.value)} {one.unit} | {peer} | {ratio} | {aim} |"


def table(run: Run) -> str:
    """Return all figures as one Markdown table."""
    return "\n".join([HEAD, *(row for name, one in run.benchmarks.items() for row in rows(name, one))])


def _one_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return lines[-1][:200].replace("|", "\\|")


def comparison(before: Run, after: Run, tolerance: float) -> tuple[str, int]:
    """Return the figures of two runs beside each other, and how many of them became worse by more than `tolerance`."""
    ours = {(name, one.what): one for name, found in before.benchmarks.items() for one in found.figures}
    lines = [f"| benchmark | figure | {before.commit} | {after.commit} | × | |\n|---|---|--:|--:|--:|---|"]
    worse = 0
    for name, found in after.benchmarks.items():
        for now in found.figures:
            then = ours.get((name, now.what))
            if then is None:
                lines.append(f"| {name} | {now.what} | | {number(now.value)} {now.unit} | | new |")
                continue
            change, verdict = _change(then, now, tolerance)
            worse += verdict == "worse"
            told = "" if change is None else f"{change:.2f}"
            lines.append(
                f"| {name} | {now.what} | {_with_ratio(then)} | {_with_ratio(now)} {now.unit} | {told} | {verdict} |"
            )
    gone = ours.keys() - {(name, one.what) for name, found in after.benchmarks.items() for one in found.figures}
    lines += [
        f"| {name} | {what} | {number(ours[name, what].value)} | | | not measured |" for name, what in sorted(gone)
    ]
    return "\n".join(lines), worse


def _with_ratio(one: Figure) -> str:
    return number(one.value) + ("" if one.ratio is None else f" ({one.ratio:.2f} ×)")


def _change(then: Figure, now: Figure, tolerance: float) -> tuple[float | None, str]:
    """Return the present figure as a multiple of the former one, by their peers where both have one, and a verdict."""
    a, b = (then.ratio, now.ratio) if then.ratio and now.ratio else (then.value, now.value)
    if not a:
        return None, "" if a == b else "worse" if (b > a) != now.more_is_better else "better"
    change = b / a
    gain = 1 / change if now.more_is_better and change else change
    return change, "worse" if gain > 1 + tolerance else "better" if gain < 1 - tolerance else ""


BEGIN, END = "<!-- figures: written by `python -m benchmarks --write` -->", "<!-- end of the figures -->"


def page_with(page: str, run: Run) -> str:
    """Return the page with the figures of `run` between its two marks."""
    head, rest = page.split(BEGIN)
    tail = rest.split(END)[1]
    said = f"Measured at commit {run.commit} on {run.date}, size *{run.size}*: {run.machine}."
    said += " Wall times grow with the load."
    return f"{head}{BEGIN}\n\n{said}\n\n{table(run)}\n\n{END}{tail}"


def seconds_of(measured: Sequence[Measured]) -> float:
    """Return how long all of them took."""
    return sum(one.seconds for one in measured)
