"""The books of a session: what each request to a model has cost, of this kernel and, by the log, of earlier ones.

Rule 1: the requests of this kernel are in memory (`Account`); those of earlier kernels are read from the log.
Rule 2: a row of the log may be damaged or a stranger's: what is no count is none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from ctxkernel.agent.asks import NOTHING, SUMMARIES, BookedRequest, Spent
from ctxkernel.agent.meter import spent_on
from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import CtxError, StoreError
from ctxkernel.core.report import Report, ReportTable
from ctxkernel.core.text import format_duration, one_line
from ctxkernel.core.timeline_events import Json
from ctxkernel.projection.prefix import common, prefix_break
from ctxkernel.store.log.reader import SessionReader, stored_projection
from ctxkernel.store.log.rows import NOT_SENT, REQUEST, SUMMARY

MOST_LOGGED_BREAKS = 100
"""Most requests of earlier kernels that are compared with the request before: the newest ones."""
MOST_POINTS = 400
"""Most requests that the plot of the panel has: the newest ones."""
_HEADS: tuple[str, ...] = ("ask", "question", "model", "requests", "tokens in", "cached", "out", "cost", "time")


def logged_requests(path: Path | None, own: Container[int | None]) -> list[BookedRequest]:
    """Return the requests in the log of a session, oldest first, but for the rows `own`.

    Raises StoreError, sqlite3.Error.
    """
    if path is None:
        return []
    with SessionReader(path) as reader:
        found = [row for row in reader.requests() if row["id"] not in own and row["status"] != NOT_SENT]
        marks = reader.marks() if any(row["status"] is None for row in found) else {}
        places = {receipt: execution_id for execution_id, receipt in reader.receipts()} if found else {}
    sent = [row for row in found if row["ask_key"] != SUMMARY]
    before = {new["id"]: old["receipt"] for old, new in pairwise(sent)}
    compared = {row["id"] for row in sent[-MOST_LOGGED_BREAKS:]}
    made: list[BookedRequest] = []
    for row in found:
        summary = row["ask_key"] == SUMMARY
        ask = SUMMARIES if summary else str(row["execution_id"])
        question = "" if summary else _question(str(row["source"] or ""))
        spent = _spent(row, marks.get((f"{REQUEST} {row['id']}", "spent")))
        broke = ""
        if row["id"] in compared and row["id"] in before:
            broke = _logged_break(path, places.get(before[row["id"]]), places.get(row["receipt"]))
        made.append(BookedRequest(ask, str(row["model"]), spent, question, row["id"], broke))
    return made


@lru_cache(MOST_LOGGED_BREAKS * 2)
def _logged_break(path: Path, before: str | None, after: str | None) -> str:
    """Return where and why the projection after one execution does not continue that after another, or ""."""
    if before is None or after is None:
        return ""
    try:
        old, new = stored_projection(path, before), stored_projection(path, after)
    except (CtxError, sqlite3.Error, ValueError, KeyError, TypeError):  # damaged: verify says so
        return ""
    found = prefix_break(old, new, common(old, new))
    return found.told() if found is not None else ""


def _question(source: str) -> str:
    first, _, rest = source.strip().partition("\n")
    return rest.strip() or first.removeprefix("%%ask").strip()


def _spent(row: Mapping[str, Any], begun: object) -> Spent:
    """Return the cost of a request, by its response, else by what was booked while that arrived."""
    body: Mapping[str, Any] = row["body"] or {}
    told = body.get("spent", begun)
    if isinstance(told, dict):
        spent = _read(cast("dict[str, Any]", told))
        return spent if row["status"] is not None else replace(spent, guessed=spent.guessed | {"tokens_out"})
    usage = row["usage"]  # written by a version before 0.2
    return replace(spent_on(str(row["model"]), usage), requests=1) if usage else Spent(1)


def _read(told: Mapping[str, Any]) -> Spent:
    def number(name: str, kind: type) -> Any:
        value = told.get(name)
        return kind(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else kind(0)

    counts = {name: number(name, int) for name in ("tokens_in", "cached", "tokens_out")}
    guessed: object = told.get("guessed")
    names = cast("list[object]", guessed) if isinstance(guessed, list) else []
    usd = None if told.get("usd") is None else number("usd", float)
    marks = frozenset(name for name in ("tokens_in", "tokens_out") if name in names)
    return Spent(1, usd=usd, seconds=number("seconds", float), guessed=marks, **counts)


@dataclass(frozen=True, slots=True)
class SessionBooks:
    """All requests of a session."""

    earlier: Sequence[BookedRequest]
    """The requests of earlier kernels, oldest first."""
    booked: Sequence[BookedRequest]
    """The requests of this kernel."""
    fault: str = ""
    """The reason why those of earlier kernels are not listed, or empty."""

    @property
    def every(self) -> list[BookedRequest]:
        """All requests, oldest first."""
        return [*self.earlier, *self.booked]


def session_books(path: Path | None, booked: Sequence[BookedRequest]) -> SessionBooks:
    """Return the books of a session: `booked` are the requests of this kernel, `path` is the session's log."""
    try:
        return SessionBooks(logged_requests(path, {one.row for one in booked}), booked)
    except (StoreError, sqlite3.Error) as error:
        fault = f"The requests of earlier kernels are not listed: the log cannot be read ({error})"
        return SessionBooks([], booked, fault)


def cost_table(path: Path | None, booked: Sequence[BookedRequest]) -> str | Report:
    """Return the books of a session as a table: by ask, by model, and together."""
    books = session_books(path, booked)
    every = books.every
    if not every:
        nothing = "nothing was sent to a model in this session, so nothing was spent"
        return "\n".join(filter(None, (nothing, books.fault)))
    rows = [list(_HEADS)]
    for (ask, model), of_ask in _grouped(every, _ask_and_model):
        if ask != SUMMARIES:
            rows.append(_row(ask.partition(".")[0], one_line(of_ask[0].question, 30), model, of_ask))
    for (model,), of_model in _grouped(every, _model):
        rows.append(_row("all", "", model, of_model))
    if books.earlier and booked:
        rows.append(_row("all", "of this kernel", "", booked))
    rows.append(_row("all", "of the session", "", every))
    return Report(ReportTable(rows, free=_HEADS.index("question")), books.fault, *_breaks(every))


def costs_json(path: Path | None, booked: Sequence[BookedRequest]) -> dict[str, Json]:
    """Return the books of a session for the panel: sums by ask and by model, and each of the newest requests."""
    books = session_books(path, booked)
    every = books.every
    asks = [
        _sums(ask, one_line(of_ask[0].question, 120), model, of_ask)
        for (ask, model), of_ask in _grouped(every, _ask_and_model)
        if ask != SUMMARIES
    ]
    models = [_sums("", "", model, of_model) for (model,), of_model in _grouped(every, _model)]
    points = [
        {"ask": one.ask, "usd": one.spent.usd, "tokens": one.spent.tokens, "broke": one.broke}
        for one in every[-MOST_POINTS:]
    ]
    total = _sums("", "", "", every) if every else None
    broken = list(_breaks(every))
    return cast(
        "dict[str, Json]",
        {
            "asks": asks,
            "models": models,
            "total": total,
            "breaks": broken,
            "requests": points,
            "more": max(0, len(every) - MOST_POINTS),
            "fault": books.fault,
        },
    )


def _sums(ask: str, question: str, model: str, requests: Sequence[BookedRequest]) -> dict[str, Json]:
    spent = sum((one.spent for one in requests), NOTHING)
    return {
        "ask": ask,
        "question": question,
        "model": model,
        "requests": spent.requests,
        "tokens_in": spent.tokens_in,
        "cached": spent.cached,
        "tokens_out": spent.tokens_out,
        "guessed": sorted(spent.guessed),
        "usd": spent.usd,
        "told": spent.counts()[2],
        "seconds": spent.seconds,
    }


def _breaks(requests: Iterable[BookedRequest]) -> Iterable[str]:
    """Yield a line for each request that did not continue the one before."""
    numbers: dict[str, int] = {}
    for one in requests:
        if one.ask != SUMMARIES:
            numbers[one.ask] = number = numbers.get(one.ask, 0) + 1
            if one.broke:
                yield f"{one.ask.partition('.')[0]}, request {number}: {one.broke}"


def _ask_and_model(one: BookedRequest) -> tuple[str, ...]:
    return one.ask, one.model


def _model(one: BookedRequest) -> tuple[str, ...]:
    return (f"{one.model} (summaries)" if one.ask == SUMMARIES else one.model,)


def _grouped(
    requests: Iterable[BookedRequest], key: Callable[[BookedRequest], tuple[str, ...]]
) -> Iterable[tuple[tuple[str, ...], list[BookedRequest]]]:
    groups: dict[tuple[str, ...], list[BookedRequest]] = {}
    for one in requests:
        groups.setdefault(key(one), []).append(one)
    return groups.items()


def _row(ask: str, question: str, model: str, requests: Sequence[BookedRequest]) -> list[str]:
    spent = sum((one.spent for one in requests), NOTHING)
    given, made, cost = spent.counts()
    took = format_duration(spent.seconds)
    return [ask, question, model, str(spent.requests), given, spent.cached_share, made, cost, took]
