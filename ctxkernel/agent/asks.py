"""An ask: the question to a model, its bounds, and its cost so far."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, cast, get_args

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import format_duration, one_line, plural
from ctxkernel.core.timeline_events import Json
from ctxkernel.projection.displayed_tokens import Anchor
from ctxkernel.projection.value import Projection

AskMode = Literal["ask", "auto", "off"]
EndKind = Literal["answered", "parked", "bound", "failed", "stopped"]
"""`parked`: it waits for a decision of the user; `bound`: it reached one of its bounds."""
_REASON = 60
"""Most characters of the reason in the row of an ask."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of an ask: it ends when one is reached. 0 means no limit."""

    rounds: int = 0
    """Requests to the model."""
    tokens: int = 0
    """Input and output tokens of all rounds, cached ones included."""
    usd: float = 0.0
    seconds: float = 0.0
    """Time of the model and of its cells, without the time that it waits for a person."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the model."""

    execution_id: str
    """Execution of the statement that asked."""
    question: str
    key: str
    """Position among the asks on the path, and a hash of the question; identifies the recorded turn of the ask."""
    model: str
    mode: AskMode
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of requests."""

    requests: int = 0
    tokens_in: int = 0
    cached: int = 0
    """Input tokens that were read from the provider's cache."""
    tokens_out: int = 0
    usd: float | None = 0.0
    """None if the price of a model is not known."""
    seconds: float = 0.0
    guessed: frozenset[str] = frozenset()
    """The counts with an estimated part: `tokens_in`, `tokens_out`."""

    def __add__(self, other: Spent) -> Spent:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        names = ("requests", "tokens_in", "cached", "tokens_out", "seconds")
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Spent(usd=usd, guessed=self.guessed | other.guessed, **sums)

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.tokens_in + self.tokens_out

    @property
    def cached_share(self) -> str:
        """The part of the input that was read from the cache, as `71 %`; empty for none."""
        return f"{self.cached * 100 // self.tokens_in} %" if self.tokens_in and self.cached else ""

    def counts(self) -> tuple[str, str, str]:
        """Return (tokens in, tokens out, price) for a person; an estimate has a `~`."""
        cost = "price not known" if self.usd is None else f"${self.usd:.4f}" if self.usd < 1 else f"${self.usd:.2f}"
        about = "~" * bool(self.guessed and self.usd is not None)
        marks = ["~" * (name in self.guessed) for name in ("tokens_in", "tokens_out")]
        return f"{marks[0]}{self.tokens_in:,}", f"{marks[1]}{self.tokens_out:,}", f"{about}{cost}"

    def text(self) -> str:
        """Return one line for a person."""
        given, made, cost = self.counts()
        cached = f", {self.cached_share} cached" if self.cached_share else ""
        many, took = plural(self.requests, "requests"), format_duration(self.seconds)
        return f"{many}, {given} tokens in{cached}, {made} out, {cost}, {took}"

    def to_json(self) -> dict[str, Json]:
        """Return all fields."""
        return {**dataclasses.asdict(self), "guessed": sorted(self.guessed)}


NOTHING = Spent()
SUMMARIES = "summaries"
"""The value of `BookedRequest.ask` for a request for a summary, which belongs to no ask."""


@dataclass(slots=True)
class BookedRequest:
    """One request to a model, with its cost. `spent` grows while its response arrives."""

    ask: str
    """Execution id of the ask, or `SUMMARIES`."""
    model: str
    spent: Spent = NOTHING
    question: str = ""
    row: int | None = None
    """Row id of its receipt in the log; None if it is not stored."""
    broke: str = ""
    """The place at which its cached prefix breaks, and the reason; empty if it does not."""


@dataclass(slots=True)
class Account:
    """The requests of one kernel to models, and their cost."""

    booked: list[BookedRequest] = field(default_factory=list[BookedRequest])
    """The requests, oldest first."""
    endings: dict[str, AskState] = field(default_factory=dict[str, "AskState"])
    """Execution id of an ask → how it ended, or that it waits."""
    sent: bool = False
    """True after this kernel has sent anything to a model."""
    consented: bool = False
    """True after the user agreed to the first request."""
    last: Projection | None = None
    """The projection that an ask sent last."""
    anchor: Anchor | None = None
    """Ratio of the last answer's usage to the estimate; None before the first answer."""

    def book(self, request: BookedRequest) -> BookedRequest:
        """Add a request; the caller keeps its cost up to date."""
        self.booked.append(request)
        return request

    @property
    def spent(self) -> Spent:
        """The cost of all requests."""
        return sum((one.spent for one in self.booked), NOTHING)


AskResult = Literal["answered", "parked", "bound", "failed", "stopped", "asking", "ended"]
"""An `EndKind`; or `asking`: a request is running; `ended`: its kernel ended before it did."""


@dataclass(frozen=True, slots=True)
class AskState:
    """The end of an ask, or that it has not ended."""

    result: AskResult
    seconds: float = 0.0
    """Time of the model and of its cells, without the time that it waited for a person."""
    rounds: int = 0
    text: str = ""
    """Why it was not answered."""

    def told(self) -> str:
        """Return it in a few words, for the row of the ask."""
        took = format_duration(self.seconds)
        match self.result:
            case "answered":
                return f"ok {took} · {plural(self.rounds, 'rounds')}"
            case "parked":
                return "waits for approval"
            case "asking":
                return "asks the model"
            case "stopped":
                return f"stopped after {took}"
            case "bound":
                return f"bound reached after {took}"
            case "failed":
                return f"failed: {one_line(self.text, _REASON)}"
            case "ended":
                return f"ended with its kernel after {took}"

    def to_json(self) -> dict[str, Json]:
        """Return all fields, and `told`."""
        return {**dataclasses.asdict(self), "told": self.told()}


_NOW: dict[str, AskResult] = {"parked": "ended", "asking": "ended"}


def ask_state(value: object) -> AskState | None:
    """Return the state in a mark of the log; None if the mark, which may hold any JSON value, has none."""
    row = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    found = row.get("result"), row.get("seconds"), row.get("rounds"), row.get("text")
    result, seconds, rounds, text = found
    if result not in get_args(AskResult) or not isinstance(seconds, int | float) or not isinstance(rounds, int):
        return None
    return AskState(cast("AskResult", result), float(seconds), rounds, str(text or ""))


def earlier_state(value: object) -> AskState | None:
    """Return the state of an ask of an earlier kernel: if it had not ended, it ended with that kernel."""
    state = ask_state(value)
    return state and dataclasses.replace(state, result=_NOW.get(state.result, state.result))


@dataclass(frozen=True, slots=True)
class AskEnding:
    """The end of `AskTurn.go`, with a text for the user."""

    kind: EndKind
    text: str = ""


def reached_bound(bounds: Bounds, spent: Spent, seconds: float) -> str:
    """Return a text about the bound that an ask has reached, with the next step; empty if none is reached."""
    about = "~" * bool(spent.guessed)
    limits = (
        (bounds.rounds, spent.requests, f"after {spent.requests} rounds (--max-turns {bounds.rounds})"),
        (bounds.tokens, spent.tokens, f"at {about}{spent.tokens:,} tokens (the bound is {bounds.tokens:,})"),
        (bounds.usd, spent.usd or 0.0, f"at {about}${spent.usd or 0.0:.4f} (the bound is ${bounds.usd:g})"),
        (bounds.seconds, seconds, f"after {seconds:.0f} s (the bound is {bounds.seconds:g} s)"),
    )
    text = next((text for bound, used, text in limits if bound and used >= bound), "")
    return f"stopped {text}; ask it to go on in a new %%ask, or give more" if text else ""
