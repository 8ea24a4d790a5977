"""Review of the files beside a notebook before they are trusted: what there is, whose it is, and what trust allows.

Rule 1: nothing is executed, unpickled or written by a review.
Rule 2: a review is of one content: `give` trusts the digest of the turns or settings that were reviewed, whatever the
        file contains by then.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from ctxkernel.agent.logged_asks import asks_of_log, trust_session_file
from ctxkernel.agent.recorded import SUFFIX, RecordedAsk
from ctxkernel.agent.reply import read_reply
from ctxkernel.agent.turn_files import asks_in, is_shipped, read_turn_file
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand, StoreError
from ctxkernel.core.text import format_date, one_line, plural
from ctxkernel.projection.dialect import RUN_CELL
from ctxkernel.store import config, signatures
from ctxkernel.store.log import schema
from ctxkernel.store.log.newest_session import newest_session
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.regular_files import read_within
from ctxkernel.store.trust_registry import (
    SESSION,
    SETTINGS,
    TURNS,
    TrustKind,
    content_digest,
    is_trusted,
    trust_registry,
)

TrustStatus = Literal["yours", "shipped", "trusted", "untrusted", "unreadable"]
STATES: dict[TrustStatus, str] = {
    "yours": "yours",
    "shipped": "came with ctxkernel",
    "trusted": "trusted by you",
    "untrusted": "not trusted",
    "unreadable": "cannot be used",
}
NAMES: dict[TrustKind, str] = {TURNS: "recorded turns", SETTINGS: "settings", SESSION: "session"}
_MOST_CODE_LINES = 60


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A file, and what happens with it once it is trusted."""

    kind: TrustKind
    path: Path
    state: TrustStatus
    subject: str = ""
    """The digest of its content, or the id of the session; empty if it cannot be read."""
    effects: tuple[str, ...] = ()
    """One line for each effect of trust; lines that begin with a space belong to the line before."""

    def text(self) -> str:
        """Return the file, its state and its effects, for a person. Its lines are untrusted."""
        head = f"{NAMES[self.kind]} {one_line(str(self.path), 500)}: {STATES[self.state]}"
        return "\n".join([head, *(f"  {line}" for line in self.effects)])


def files_beside(path: Path) -> list[tuple[TrustKind, Path]]:
    """Return the files that `ctxkernel trust PATH` means: one file, or those beside a notebook. Raises BadCommand."""
    if path.name.endswith(SUFFIX):
        return [(TURNS, path)]
    if path.name == config.FILE:
        return [(SETTINGS, path)]
    if path.suffix == ".sqlite":
        return [(SESSION, path)]
    if path.suffix == ".ipynb":
        session = newest_session(path)
        made: list[tuple[TrustKind, Path]] = []
        if session is not None:
            made.append((SESSION, session))
        made.append((TURNS, path.with_suffix(SUFFIX)))
        made.append((SETTINGS, path.with_name(config.FILE)))
        return [(kind, one) for kind, one in made if one.is_file()]
    if path.suffix == ".json":
        return [(TURNS, path)]
    raise BadCommand(f"{path}: give a notebook, a session (.sqlite), recorded turns (*{SUFFIX}) or a {config.FILE}")


def review(kind: TrustKind, path: Path) -> Reviewed:
    """Return what there is to know about a file before it is trusted. Never raises for its content."""
    try:
        return (_session if kind == SESSION else _turns if kind == TURNS else _settings)(path)
    except (OSError, StoreError, ValueError, RecursionError, sqlite3.Error) as fault:
        why = (isinstance(fault, OSError) and fault.strerror) or str(fault)
        return Reviewed(kind, path, "unreadable", effects=(one_line(why, 300),))


def trusted_subjects(notebook: Path, *, give: bool) -> str:
    """Return the digests and ids beside a notebook that the user trusts, or with `give` all of them.

    This is the value of `CTXKERNEL_TRUSTED` for a kernel of this notebook.
    """
    made: list[str] = []
    for kind, path in files_beside(notebook.absolute()):
        if kind != SESSION:
            found = review(kind, path)
            made += [found.subject] if found.subject and (give or found.state in ("yours", "trusted")) else []
        elif give:
            with contextlib.suppress(StoreError), SessionReader(path) as reader:
                made.append(reader.session_id)
    return " ".join(made)


def give(found: Reviewed) -> str:
    """Trust what was reviewed. Return why this is not possible; empty if it is trusted."""
    if found.state == "unreadable":
        return f"{found.path} cannot be used, so it cannot be trusted"
    if found.state in ("shipped", "yours"):
        return ""
    if found.kind == SESSION:
        return trust_session_file(found.path)
    word = {"path": str(found.path.absolute()), "at": time.time(), "by": "word"}
    return trust_registry().give(found.kind, found.subject, word)


def revoke(found: Reviewed) -> str:
    """Revoke the trust in what was reviewed. Return why this is not possible; empty if it is not trusted any more."""
    if found.state == "shipped":
        return f"{found.path} came with ctxkernel, and is always trusted; delete the file if it should answer nothing"
    if found.kind == SESSION:
        return trust_session_file(found.path, revoke=True)
    return trust_registry().revoke(found.kind, found.subject) if found.subject else ""


def verdict(found: Sequence[Reviewed], faults: Sequence[str], *, revoked: bool) -> str:
    """Return a text on what was done, for a person."""
    if not found:
        return "there is no session, no recorded turns and no settings here"
    done = [f"{NAMES[one.kind]} {one.path}" for one, fault in zip(found, faults, strict=True) if not fault]
    lines = [f"not done: {fault}" for fault in faults if fault]
    if done and revoked:
        lines.append(f"not trusted any more: {', '.join(done)}")
    elif done:
        lines.append(
            f"trusted, as long as nobody changes it: {', '.join(done)}. `ctxkernel trust PATH --revoke` takes it back"
        )
    return "\n".join(lines)


def words_table() -> list[tuple[str, str, str]]:
    """Return what the user trusts by word: kind, path, and when."""
    rows: list[tuple[str, str, str]] = []
    for word in trust_registry().words():
        at = word.value.get("at")
        when = format_date(at) if isinstance(at, int | float) else ""
        rows.append((NAMES[word.kind], str(word.value.get("path", "")), when))
    return sorted(rows)


# -- the kinds ---------------------------------------------------------------------------------------


def _turns(path: Path) -> Reviewed:
    content = read_turn_file(path, path.parent)
    asks, digest = asks_in(content, path), content_digest(content)
    word = trust_registry().word(TURNS, digest)
    state: TrustStatus = "shipped" if is_shipped(content) else "trusted" if is_trusted(TURNS, digest) else "untrusted"
    if word is not None and word.get("by") == "record" and state == "trusted":
        state = "yours"
    return Reviewed(TURNS, path, state, digest, tuple(_of_asks(asks)))


def _of_asks(asks: Sequence[RecordedAsk]) -> Iterator[str]:
    """Yield what a replay of asks would run."""
    cells = [(ask, _cells(ask)) for ask in asks]
    many = plural(sum(len(codes) for _, codes in cells), "cells")
    yield f"{plural(len(asks), 'asks')}; when they are asked, {many} run without another question"
    left = _MOST_CODE_LINES
    for ask, codes in cells:
        yield f"ask: {one_line(ask.question, 100)}"
        for code in codes:
            lines = code.splitlines()
            yield from (f"    {line[:200]}" for line in lines[: max(left, 0)])
            left -= len(lines)
    if left < 0:
        yield f"    … {plural(-left, 'more lines')}: read the file before you trust it"


def _cells(ask: RecordedAsk) -> list[str]:
    """Return the code of the cells that a replay of an ask may run, whichever way the model acts."""
    codes: list[str] = []
    for one in ask.rounds:
        calls = [call for way in ("tools", "script") for call in read_reply(one.blocks, way).calls]
        cells = [call for call in calls if call.tool == RUN_CELL and not call.fault]
        for place, call in enumerate(cells):
            ruling, text = one.verdicts[place] if place < len(one.verdicts) else ("approved", "")
            source = str(call.input.get("code", ""))
            if call.fenced:  # the request decides which blocks are cells, so a decision can be on another one
                codes += [source, text] if ruling == "edited" else [source]
            else:
                codes += [] if ruling == "rejected" else [text if ruling == "edited" else source]
    return codes


def _settings(path: Path) -> Reviewed:
    content = read_within(path, config.MOST_BYTES, path.parent)
    digest, notices = content_digest(content), list[str]()
    values = config.settings_in(content, path, notices, personal=False)
    names = config.those_that_matter(values)
    effects = [f"sets {name} = {values[name]}" for name in names] or ["sets nothing that needs trust"]
    return Reviewed(SETTINGS, path, "trusted" if is_trusted(SETTINGS, digest) else "untrusted", digest, tuple(effects))


def _session(path: Path) -> Reviewed:
    with SessionReader(path) as reader, reader.snapshot():
        own = all(row["signed"] for table in schema.TABLES for row in reader.each(table))
        effects = list(_of_log(reader))
        session_id = reader.session_id
    asks = [ask for ask in asks_of_log(path, signatures.signer()) if ask.answered]
    effects += _of_asks(asks) if asks else ()
    state: TrustStatus = "yours" if own and all(ask.trusted for ask in asks) else "untrusted"
    return Reviewed(SESSION, path, state, session_id, tuple(effects))


def _of_log(reader: SessionReader) -> Iterator[str]:
    """Yield what a resume of a session would do."""
    many = ", ".join(
        plural(reader.select(f"SELECT count(*) FROM {table}")[0][0], table) for table in ("statements", "checkpoints")
    )
    yield f"{many}; %ctx resume loads a checkpoint, which can run any code"
    settings = sorted(f"{name} = {value}" for (name, mark), value in reader.marks().items() if mark == "setting")
    if settings:
        yield f"%ctx resume sets {', '.join(settings)}"
