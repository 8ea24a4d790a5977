"""The failures of a request to a model: one exception with a kind.

Rule 1: the row of a kind states what happened, the next step, and whether a retry of the same request can succeed.
Rule 2: the server's message is quoted, bounded and printable; text that looks like a credential is masked.
Rule 3: a failure is not chained to its cause, since the SDK's exception contains the request.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

from ctxkernel.core.errors import CtxError
from ctxkernel.core.text import truncate
from ctxkernel.projection.secrets import mask

FailureKind = Literal[
    "no_key", "authentication", "permission", "not_found", "rate_limited", "overloaded", "server_error", "timeout",
    "connection", "cut", "stream_error", "refused_by_check", "invalid_request", "too_large", "context_overflow",
    "malformed", "interrupted", "no_recording", "thinking_refused", "small_budget",
]  # fmt: skip


class FailureRow(NamedTuple):
    """The description of a kind of failure."""

    what: str
    next_move: str
    again: bool = False
    """Whether a retry of the same request can succeed."""


KINDS: dict[FailureKind, FailureRow] = {
    "no_key": FailureRow("there is no key", "set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a local server"),
    "authentication": FailureRow("the server does not accept the key", "check ANTHROPIC_API_KEY"),
    "permission": FailureRow("the key may not do this", "choose another model, or check the account"),
    "not_found": FailureRow(
        "the server does not know the model or the address", "check its name and ANTHROPIC_BASE_URL"
    ),
    "rate_limited": FailureRow("the limit of requests or tokens is reached", "wait, then ask again", again=True),
    "overloaded": FailureRow("the server has too much to do", "wait a little, then ask again", again=True),
    "server_error": FailureRow("the server failed", "ask again", again=True),
    "timeout": FailureRow("nothing came any more", "ask again", again=True),
    "connection": FailureRow("the server cannot be reached", "check the network and ANTHROPIC_BASE_URL", again=True),
    "cut": FailureRow("the connection ended before the answer did", "ask again", again=True),
    "stream_error": FailureRow("the server broke its answer off", "ask again", again=True),
    "refused_by_check": FailureRow("the request breaks a rule of the API", "see `%ctx projection` for the block"),
    "invalid_request": FailureRow("the server refuses the request", "see `%ctx projection` for what is sent"),
    "thinking_refused": FailureRow(
        "the server refuses the thinking of earlier answers", "ask again: it is not sent any more"
    ),
    "too_large": FailureRow("the request has too many bytes", "`%ctx condense`, or redact large outputs"),
    "context_overflow": FailureRow("the request is longer than the model's context", "`%ctx condense`, then ask again"),
    "malformed": FailureRow("the answer is not that of a Messages server", "check ANTHROPIC_BASE_URL"),
    "no_recording": FailureRow("there is no recorded answer to it", "`%%ask --again` asks the model itself"),
    "small_budget": FailureRow("nothing was sent", "`%ctx config projection_tokens N` gives more"),
    "interrupted": FailureRow("the client was closed before the answer was there", "ask again", again=True),
}
AT_WORK: tuple[FailureKind, ...] = ("cut", "timeout", "interrupted")
"""Failures after which the request may still cost something: the server may have worked on it."""
_STATUS: dict[int, FailureKind] = {
    **dict.fromkeys((301, 302, 303, 307, 308), "malformed"),
    401: "authentication",
    402: "permission",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    429: "rate_limited",
    504: "timeout",
    529: "overloaded",
}
_OVERFLOW = re.compile(r"prompt is too long|context (?:limit|size|length|window)", re.IGNORECASE)
"""The messages of the API and of local servers about a full context."""
_THINKING = re.compile(r"bound to a different conversation|invalid .?signature.? in .?thinking", re.IGNORECASE)
"""The API's message that the blocks before a thinking block are not those that it was generated after."""
CHARS = 400
"""Most characters of a quotation."""


def bounded(text: str) -> str:
    """Return a text to quote in an error: at most `CHARS` characters, control characters escaped."""
    cut = truncate(text, CHARS)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)


def failure_kind(status: int, message: str) -> FailureKind:
    """Return the kind of failure for an HTTP status and the server's message."""
    if status == 400 and _OVERFLOW.search(message):
        return "context_overflow"
    if status == 400 and _THINKING.search(message):
        return "thinking_refused"
    return _STATUS.get(status) or ("server_error" if status >= 500 else "invalid_request")


def wait_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which the server accepts a retry; None if the headers do not say."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except KeyError:
            continue
        except ValueError:
            seconds = _seconds_until(headers[name])
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return None


def _seconds_until(date: str) -> float:
    """Return the seconds until a date of RFC 9110; infinity where the text is no date."""
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, OverflowError):
        return math.inf


class ModelFailure(CtxError):
    """A request failed: the kind of failure, and the text that arrived before it."""

    def __init__(
        self,
        kind: FailureKind,
        message: str = "",
        *,
        model: str = "",
        partial_text: str = "",
        request_id: str | None = None,
        retryable: bool | None = None,
        wait: float | None = None,
    ) -> None:
        row = KINDS[kind]
        self.kind: FailureKind = kind
        self.partial_text = partial_text
        self.request_id = request_id
        self.retryable = row.again if retryable is None else retryable
        """Whether a retry of the same request can succeed."""
        self.wait = wait
        """Seconds after which the server accepts a retry, if it says so."""
        who = f"{bounded(mask(model))}: " if model else ""
        quoted = f" ({bounded(mask(message))})" if message else ""
        next_move = f"ask again in {wait:.0f} s" if wait is not None and wait >= 1 and row.again else row.next_move
        super().__init__(f"{who}{row.what}{quoted}; {next_move}")
