"""The projection as a value: what a model would be sent, block by block, with a reason for each.

Rule 1: frozen. The blocks of the history stand in a list that several projections share and that only grows, each
        with its own length: a thousand projections of a notebook cost what their newest blocks cost.
Rule 2: what a reader seldom asks for (bodies, hashes, dicts) is made when it is asked for, from what is frozen.
Rule 3: a record with the texts it names gives the projection back, byte for byte; one that does not fit its receipt
        is refused.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, count, islice
from operator import is_not
from typing import Any, NamedTuple

from ctxkernel.core.errors import StoreError
from ctxkernel.core.events import Json, plain
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.rules import Report, Violation
from ctxkernel.projection import receipt as receipts
from ctxkernel.projection.prices import Cost, estimate

RECORD_VERSION = 1
_PATH = re.compile(r"messages\[(\d+)\](?:\.content\[(\d+)\])?")
CHUNK = 32
"""Blocks of the history whose references are kept as one text, so that a record stays short."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a projection."""

    id: str
    """An execution's id for the history; else the part, as `handles` or `group:papers`."""
    kind: str
    """system, statement, question, answer, thinking, call, result, summary, context, handles, variables, group, view,
    note, picture, deltas, shown, status or empty."""
    origin: str
    """The statement that it comes from; for tables the newest one that they show."""
    tokens: int
    cached: bool
    """Whether it and all before it began the previous projection too; never in the tail, which no provider caches."""
    why: str
    text: str
    role: str = "user"
    """Of the message that it stands in: user, assistant, or system; system, too, for the system text."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that could have been projected and was not."""

    id: str
    why: str


class Piece(NamedTuple):
    """A block without what depends on the projection before it."""

    id: str
    kind: str
    origin: str
    tokens: int
    why: str
    text: str
    """What is sent: a text, or the JSON of a block."""
    role: str = "user"
    raw: bool = False
    """Whether `text` is the JSON of a block: a call, a result, thinking."""


def same_until(old: Sequence[object], new: Sequence[object], most: int) -> int:
    """Return how many of the first `most` items are the same objects in both, from the start on."""
    return next(compress(count(), map(is_not, islice(old, most), islice(new, most))), most)


class Run:
    """A history that only grows: its pieces, and the blocks that were left out before the first piece was added.

    The owner may append; a projection reads the first so many.
    """

    def __init__(self, left_out: tuple[LeftOut, ...] = ()) -> None:
        self.pieces: list[Piece] = []
        self.left_out = left_out
        self._chunks: list[tuple[str, str]] = []

    @functools.cached_property
    def left(self) -> tuple[str, str]:
        """(hash, text) of what was left out: it never changes, and a long session has a lot of it."""
        text = _dump([[one.id, one.why] for one in self.left_out])
        return _hash(text), text

    def chunks(self, count: int) -> list[tuple[str, str]]:
        """Return (hash, text) of the references of each whole chunk among the first `count` pieces."""
        whole = count // CHUNK
        for start in range(len(self._chunks) * CHUNK, whole * CHUNK, CHUNK):
            text = _dump(_references(self.pieces[start : start + CHUNK]))
            self._chunks.append((_hash(text), text))
        return self._chunks[:whole]


class Found(NamedTuple):
    """A broken rule, and the block that breaks it where it is one block."""

    violation: Violation
    block: Piece | None

    def told(self) -> str:
        """Return it in one line: the block, its statement, what is wrong, and what to do."""
        one = self.violation
        where = f"block {self.block.id} of {self.block.origin}" if self.block is not None else "the request"
        return f"{where}: {one.rule} at {one.path or 'its top'}: {one.message}; {one.fix}"


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """What a model would be sent after a turn. Two are equal where their records are."""

    model: str
    max_tokens: int
    tools: str
    """The JSON of the tools that are given with it; empty where there are none."""
    betas: tuple[str, ...]
    """What the request's `anthropic-beta` header must name."""
    system: Piece
    tail: tuple[Piece, ...]
    report: Report
    tokens: int
    """Estimated tokens of the system text and of all blocks; never more than `budget`."""
    budget: int
    receipt: str
    """`sha256:<hex>` of `request_bytes`."""
    run: Run
    count: int
    """How many pieces of `run` are this projection's history."""
    cached: int
    """How many leading pieces of the history were in the previous projection too; -1 where there was none."""
    tail_left_out: tuple[LeftOut, ...] = ()
    edge: int = -1
    """Right after an edit of the history the last block before it, where a breakpoint stands; else -1."""
    basis: str = ""
    """What it was built by, see `ProjectionEngine.basis`. Not in its record: it is of no use later."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projection) and self.to_record() == other.to_record()

    def __hash__(self) -> int:
        return hash(self.receipt)

    def _pieces(self) -> Iterator[Piece]:
        yield self.system
        yield from self.run.pieces[: self.count]
        yield from self.tail

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks in the order in which they are sent, the system text first."""
        cached = self.cached + 1
        return tuple(
            Block(piece.id, piece.kind, piece.origin, piece.tokens, index < cached, piece.why, shown(piece), piece.role)
            for index, piece in enumerate(self._pieces())
        )

    @property
    def sent(self) -> Iterator[str]:
        """The texts that are sent, the tools among them: of a call or a result its JSON."""
        yield self.tools
        yield from (piece.text for piece in self._pieces())

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What could have been projected and was not, with the reason."""
        return self.run.left_out + self.tail_left_out

    @property
    def request_bytes(self) -> bytes:
        """The exact body that would be sent."""
        opening = receipts.head(self.model, self.max_tokens, self.system.text, self.tools)
        return receipts.body(opening, self.run.pieces[: self.count], self.tail, self.edge)

    @property
    def request(self) -> dict[str, Any]:
        """The body as a dict, new at each call."""
        return json.loads(self.request_bytes)

    def to_json(self) -> dict[str, Json]:
        """Return the projection schema's object."""
        return {
            "request": self.request,
            "blocks": plain(self.blocks),
            "report": {
                "ok": self.report.ok,
                "violations": [
                    {
                        **plain(found.violation),
                        "block": found.block.id if found.block is not None else None,
                        "origin": found.block.origin if found.block is not None else None,
                    }
                    for found in self.violations
                ],
            },
            "betas": list(self.betas),
            "cost": self.cost.to_json(),
            "left_out": plain(self.left_out),
            "tokens": self.tokens,
            "budget": self.budget,
            "receipt": self.receipt,
        }

    @property
    def cost(self) -> Cost:
        """What sending it costs, where the projection before it was sent some minutes ago at most; no answer counted.

        What the two begin with is read from the cache, the rest up to the last breakpoint written to it.
        """
        return self.cost_with(self.cached)

    @property
    def cost_alone(self) -> Cost:
        """What sending it costs where nothing of it is in the cache."""
        return self.cost_with(-1)

    def cost_with(self, cached: int) -> Cost:
        """What sending it costs with the first `cached` blocks of its history in the cache; -1: nothing at all."""
        pieces = self.run.pieces[: self.count]
        tail = sum([piece.tokens for piece in self.tail])
        stable = self.tokens - tail
        if stable < capabilities_for(self.model).min_cache_tokens:
            return estimate(self.model, fresh=self.tokens)
        if cached < 0:
            return estimate(
                self.model, written_1h=self.system.tokens, written_5m=stable - self.system.tokens, fresh=tail
            )
        read = self.system.tokens + sum([piece.tokens for piece in pieces[:cached]])
        return estimate(self.model, cached=read, written_5m=stable - read, fresh=tail)

    def block_at(self, path: str) -> Piece | None:
        """Return the block that a violation's path leads to, or None where it leads to the body as a whole."""
        found = _PATH.match(path)
        if found is None:
            return self.system if path.startswith("system") else None
        message, content = int(found[1]), int(found[2] or 0)
        at, place, before = -1, 0, ""
        last: Piece | None = None
        for piece in (*self.run.pieces[: self.count], *self.tail):
            at, place = (at, place + 1) if piece.role == before else (at + 1, 0)
            before = piece.role
            if at == message:
                last = piece
                if place == content:
                    return piece
            elif at > message:
                break
        return last

    @property
    def violations(self) -> tuple[Found, ...]:
        """What the check found, each with its block."""
        return tuple(Found(one, self.block_at(one.path)) for one in self.report.violations)

    # -- storing ---------------------------------------------------------------------------------

    def parts(self) -> tuple[tuple[str, str], ...]:
        """Return (block id, sha256 of its text) of all blocks, in order."""
        return tuple((piece.id, _hash(piece.text)) for piece in self._pieces())

    def to_record(self) -> dict[str, Json]:
        """Return a small JSON object from which the projection can be made again; texts are referenced by hash."""
        return {
            "version": RECORD_VERSION,
            "model": self.model,
            "max_tokens": self.max_tokens,
            "tools": _hash(self.tools) if self.tools else None,
            "betas": list(self.betas),
            "system": _references([self.system])[0],
            "chunks": [name for name, _ in self.run.chunks(self.count)],
            "history": _references(self.run.pieces[self.count // CHUNK * CHUNK : self.count]),
            "tail": _references(self.tail),
            "cached": self.cached,
            "edge": self.edge,
            "report": self.report.to_json(),
            "history_left_out": self.run.left[0] if self.run.left_out else None,
            "left_out": [[one.id, one.why] for one in self.tail_left_out],
            "tokens": self.tokens,
            "budget": self.budget,
            "receipt": self.receipt,
        }

    def texts(self, beyond: Projection | None = None) -> dict[str, str]:
        """Return all texts that `to_record` names, by hash.

        `beyond` is an earlier projection whose texts are stored already: the texts of a run that both share are left
        out.
        """
        run = self.run
        same = beyond is not None and beyond.run is run
        start = beyond.count if beyond is not None and same else 0
        texts = [piece.text for piece in (*run.pieces[start : self.count], *self.tail)]
        if beyond is None or beyond.system is not self.system:
            texts += [self.system.text, *([self.tools] if self.tools else [])]
        named = [*run.chunks(self.count)[start // CHUNK :], *([run.left] if run.left_out and not same else [])]
        return {**{_hash(text): text for text in texts}, **dict(named)}


def from_record(record: Mapping[str, Json], load_text: Callable[[str], str]) -> Projection:
    """Return the projection of a record; `load_text` returns a text by its hash.

    Raises StoreError for a record of a newer version and for texts that do not give the record's receipt.
    """
    return Rebuilder(load_text).projection(record)


class Rebuilder:
    """Makes projections again from their records, best in the order in which they were made.

    A projection that goes on where the one before ended shares its run: nothing is loaded or hashed twice.
    """

    def __init__(self, load_text: Callable[[str], str]) -> None:
        self._load = load_text
        self._begin(None)

    def _begin(self, basis: Json, opening: str = "", left_out: tuple[LeftOut, ...] = ()) -> None:
        self._run = Run(left_out)
        self._receipts = receipts.Receipts(opening)
        self._basis = basis
        """What a record must share with the one before to go on with its run."""
        self._chunks: list[str] = []
        self._recent: list[Json] = []
        """The references of the pieces after these chunks."""

    def projection(self, record: Mapping[str, Json]) -> Projection:
        """Return the projection of a record.

        Raises StoreError for a record of a newer version and for texts that do not give the record's receipt, KeyError,
        TypeError or ValueError for one that is damaged.
        """
        if record.get("version") != RECORD_VERSION:
            raise StoreError(f"a projection of version {record.get('version')} needs a newer ctxkernel; update it")
        try:
            return self._made(record)
        except BaseException:
            self._begin(None)
            raise

    def _made(self, record: Mapping[str, Json]) -> Projection:
        load_text = self._load
        tools = load_text(record["tools"]) if record.get("tools") else ""
        system = _piece(record["system"], load_text)
        tail = tuple([_piece(reference, load_text) for reference in record["tail"]])
        self._grow(record, receipts.head(record["model"], record["max_tokens"], system.text, tools))
        report = record["report"]
        projection = Projection(
            model=record["model"],
            max_tokens=record["max_tokens"],
            tools=tools,
            betas=tuple(record.get("betas", ())),
            system=system,
            tail=tail,
            report=Report(report["ok"], tuple([Violation(**violation) for violation in report["violations"]])),
            tokens=record["tokens"],
            budget=record["budget"],
            receipt=record["receipt"],
            run=self._run,
            count=len(self._run.pieces),
            cached=record["cached"],
            tail_left_out=tuple([LeftOut(one, why) for one, why in record["left_out"]]),
            edge=record.get("edge", -1),
        )
        if self._receipts.receipt(self._run.pieces, tail, projection.edge) != projection.receipt:
            raise StoreError(
                f"the stored texts of projection {projection.receipt[:23]} are not those that it was made of"
            )
        return projection

    def _grow(self, record: Mapping[str, Json], opening: str) -> None:
        """Add the pieces that a record has beyond those of the record before; begin a new run where it differs."""
        basis, references = (opening, record["history_left_out"]), self._references(record)
        chunks = record["chunks"][: len(self._chunks)]
        if (self._basis, self._chunks, self._recent) != (basis, chunks, references[: len(self._recent)]):
            left: list[list[str]] = json.loads(self._load(basis[1])) if basis[1] else []
            self._begin(basis, opening, tuple([LeftOut(one, why) for one, why in left]))
            references = self._references(record)
        self._run.pieces += [_piece(reference, self._load) for reference in references[len(self._recent) :]]
        self._chunks, self._recent = record["chunks"], record["history"]

    def _references(self, record: Mapping[str, Json]) -> list[Json]:
        """Return the references of a record's history, those in chunks that are known left out."""
        new = [json.loads(self._load(chunk)) for chunk in record["chunks"][len(self._chunks) :]]
        return [*chain.from_iterable(new), *record["history"]]


@functools.lru_cache(maxsize=128)  # a record and its texts ask for the same few hashes right after each other
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_dump: Callable[[Json], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _references(pieces: Iterable[Piece]) -> list[Json]:
    """Return the pieces as lists, each with the hash of its text in the place of the text."""
    return [
        [block, kind, origin, tokens, why, _hash(text), *((role, raw) if raw or role != "user" else ())]
        for block, kind, origin, tokens, why, text, role, raw in pieces
    ]


def _piece(reference: Sequence[Any], load_text: Callable[[str], str]) -> Piece:
    block, kind, origin, tokens, why, name, *how = reference
    return Piece(block, kind, origin, tokens, why, load_text(name), *how)


def shown(piece: Piece) -> str:
    """Return what a block says, for people: its text, the input of a call, the content of a result."""
    if not piece.raw:
        return piece.text
    block = json.loads(piece.text)
    match block.get("type"):
        case "tool_use":
            code = block["input"].get("code") if len(block["input"]) == 1 else None
            return code if isinstance(code, str) else f"{block['name']} {_dump(block['input'])}"
        case "tool_result":
            return str(block.get("content", ""))
        case "thinking":
            return str(block.get("thinking", ""))
        case "image":
            source = block["source"]
            return f"[{source['media_type']}, {len(source['data']) * 3 // 4:,} bytes]"
        case kind:
            return f"[{kind}]"
