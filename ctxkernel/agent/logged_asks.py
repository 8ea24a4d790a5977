"""The answered asks of a session's log, and the signature by which an ask counts as the user's own.

Rule 1: an ask of the log is trusted only if this user signed it: all that a replay takes from it, decisions included.
Rule 2: the signature is a mark of the ask's execution. So it is stored like every other fact of the log.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Container
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ctxkernel.agent.recorded import ROUND_FIELDS, RecordedAsk, of_session
from ctxkernel.core.errors import StoreError
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.session import SessionStore
from ctxkernel.store.log.signing import sign_session
from ctxkernel.store.signatures import Signer
from ctxkernel.store.trust_registry import SESSION, is_trusted

ANSWERED = "answered"
"""The mark of an ask: the signature of the user whose kernel recorded its answer."""


def asks_of_log(path: Path, signer: Signer, own: Container[tuple[str, ...]] = ()) -> list[RecordedAsk]:
    """Return the asks of a session's log, oldest first; those that the user of `signer` signed are trusted.

    `own` are the parts of asks that this process recorded: without a secret it could sign none. Raises StoreError,
    sqlite3.Error.
    """
    with SessionReader(path) as reader:
        requests = reader.requests()
        asks = of_session(requests, reader.records(all_roots=True)) if requests else []
        marks = reader.marks() if asks else {}
        session_id = reader.session_id
    by_word = bool(asks) and is_trusted(SESSION, session_id)
    made: list[RecordedAsk] = []
    for ask in asks:
        mark, parts = marks.get((ask.execution_id, ANSWERED)), signed_parts(session_id, ask)
        signed = isinstance(mark, str) and signer.is_signed(mark, *parts)
        made.append(replace(ask, source=str(path), trusted=signed or by_word or parts in own))
    return made


def sign_ask(store: SessionStore, ask: RecordedAsk) -> str | None:
    """Sign an ask in the log of an open session, as it is read from there. Return a notice."""
    signature = store.signer.sign(*signed_parts(store.session_id, ask))
    return None if signature is None else store.mark(ask.execution_id, ANSWERED, signature, time.time())


def trust_log(store: SessionStore, *, revoke: bool = False) -> str:
    """Sign all rows and answered asks of an open session, or take that back, which only the user may ask for.

    Return why this is not possible; empty if it is done.
    """
    return store.trust(revoke=revoke) or _sign_asks(store, revoke=revoke)


def _sign_asks(store: SessionStore, *, revoke: bool) -> str:
    """Sign the answered asks of an open session, or take that back. Return why not; empty if it is done."""
    try:
        asks = [ask for ask in asks_of_log(store.path, store.signer) if ask.answered] if store.path is not None else []
    except (StoreError, sqlite3.Error) as fault:
        return f"its asks cannot be read: {fault}"
    if revoke:
        told = [store.mark(ask.execution_id, ANSWERED, None, time.time()) for ask in asks if ask.trusted]
    else:
        told = [sign_ask(store, ask) for ask in asks if not ask.trusted]
    return next(filter(None, told), "")


def trust_session_file(path: Path, *, revoke: bool = False) -> str:
    """Trust a session that no kernel uses, as `trust_log` does."""
    try:
        sign_session(path, revoke=revoke)  # first: it refuses a file that is in use, or is no session
        with closing(SessionStore.open(path, named=True)) as store:
            if store.path is None or not store.path.samefile(path):
                return f"a kernel uses {path}; run %ctx trust there, or shut it down"
            return _sign_asks(store, revoke=revoke)
    except (StoreError, OSError) as fault:
        return str(fault)


def signed_parts(session_id: str, ask: RecordedAsk) -> tuple[str, ...]:
    """Return the texts that the signature covers: all that a replay takes from an ask."""
    rounds = [[getattr(one, name) for name in (*ROUND_FIELDS, "request_id")] for one in ask.rounds]
    text = json.dumps([ask.execution_id, ask.cell_id, ask.key, ask.question, rounds], sort_keys=True)
    return "ask", session_id, hashlib.sha256(text.encode()).hexdigest()
