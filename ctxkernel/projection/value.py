"""The projection as a value: the blocks that a model would be sent, with a reason for each.

Rule 1: frozen. Several projections share the list of the blocks of the history, which only grows, each with its own
        length: so the memory for many projections of a notebook depends on their new blocks.
Rule 2: bodies, hashes and dicts are computed on demand.
Rule 3: a projection can be made again from its record and the texts named in it, byte for byte; if the result does not
        match the receipt, it is refused.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, count, islice
from operator import is_not
from typing import Any, NamedTuple, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import StoreError
from ctxkernel.core.image_headers import pixels
from ctxkernel.core.text import format_size
from ctxkernel.core.timeline_events import Json, plain
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.rules import RuleReport, Violation
from ctxkernel.projection import receipt as receipts
from ctxkernel.projection.displayed_images import image_sizes, without_pixels
from ctxkernel.projection.prices import RequestCost, estimate

RECORD_VERSION = 1
_PATH = re.compile(r"messages\[(\d+)\](?:\.content\[(\d+)\])?")
CHUNK = 32
"""The number of blocks of the history whose references are stored as one text, so that records are short."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a projection."""

    id: str
    """The id of an execution or event for the history; else the part, such as `handles` or `group:papers`."""
    kind: str
    """system, statement, question, answer, thinking, call, result, summary, context, handles, variables, group, view,
    note, image (of a cell), picture (of a handle), deltas, shown, status or empty."""
    origin: str
    """The statement of its content; for tables the newest one."""
    tokens: int
    cached: bool
    """Whether it and all blocks before it are a prefix of the previous projection; never in the tail."""
    why: str
    text: str
    role: str = "user"
    """The role of its message: user, assistant, or system; also system for the system text."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part that could have been projected and was not."""

    id: str
    why: str


class Piece(NamedTuple):
    """A block without the fields that depend on the projection before it."""

    id: str
    kind: str
    origin: str
    tokens: int
    why: str
    text: str
    """The sent text, or the JSON of a block."""
    role: str = "user"
    raw: bool = False
    """Whether `text` is the JSON of a block: a call, a result, thinking."""


def same_until(old: Sequence[object], new: Sequence[object], most: int) -> int:
    """Return the length of the common prefix of the same objects, at most `most`."""
    return next(compress(count(), map(is_not, islice(old, most), islice(new, most))), most)


class BlockRun:
    """A history that only grows: its pieces, and what was left out before the first piece.

    The owner may append pieces; each projection uses a prefix.
    """

    def __init__(self, left_out: tuple[LeftOut, ...] = ()) -> None:
        self.pieces: list[Piece] = []
        self.left_out = left_out
        self._chunks: list[tuple[str, str]] = []

    @functools.cached_property
    def left(self) -> tuple[str, str]:
        """(hash, text) of the blocks that were left out."""
        text = _dump([[one.id, one.why] for one in self.left_out])
        return _hash(text), text

    def chunks(self, count: int) -> list[tuple[str, str]]:
        """Return (hash, text) of the references of each whole chunk among the first `count` pieces."""
        whole = count // CHUNK
        for start in range(len(self._chunks) * CHUNK, whole * CHUNK, CHUNK):
            text = _dump(_references(self.pieces[start : start + CHUNK]))
            self._chunks.append((_hash(text), text))
        return self._chunks[:whole]


class BlockViolation(NamedTuple):
    """A broken rule, and the block that breaks it, if it is a single block."""

    violation: Violation
    block: Piece | None

    def told(self) -> str:
        """Return it in one line: the block, its statement, the fault, and what to do."""
        one = self.violation
        where = f"block {self.block.id} of {self.block.origin}" if self.block is not None else "the request"
        return f"{where}: {one.rule} at {one.path or 'its top'}: {one.message}; {one.fix}"


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """The content of a request to the model after a turn. Two projections are equal if their records are."""

    model: str
    max_tokens: int
    tools: str
    """The JSON of the tools; empty where there are none."""
    betas: tuple[str, ...]
    """The values for the `anthropic-beta` header of the request."""
    system: Piece
    tail: tuple[Piece, ...]
    report: RuleReport
    tokens: int
    """Estimated tokens of the system text and of all blocks; never more than `budget`."""
    budget: int
    receipt: str
    """`sha256:<hex>` of `request_bytes`."""
    run: BlockRun
    count: int
    """The number of pieces of `run` in this projection's history."""
    cached: int
    """The number of pieces in the common prefix with the previous projection; -1 where there was none."""
    tail_left_out: tuple[LeftOut, ...] = ()
    edge: int = -1
    """Right after an edit of the history, the last block before it, which has a breakpoint; else -1."""
    broke: str = ""
    """Where it does not continue the previous projection, and why; or empty."""

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
        """All blocks in the order of the request, the system text first."""
        cached = self.cached + 1
        return tuple(
            Block(
                piece.id,
                piece.kind,
                piece.origin,
                piece.tokens,
                index < cached,
                piece.why,
                block_content(piece),
                piece.role,
            )
            for index, piece in enumerate(self._pieces())
        )

    def counted(self, count: Callable[[str], int]) -> int:
        """Return the tokens of what is sent, the tools included: texts by `count`, images by their dimensions."""
        total = count(self.tools) if self.tools else 0
        for piece in self._pieces():
            text, images = without_pixels(piece.text) if piece.raw else (piece.text, [])
            total += count(text) + sum(images)
        return total

    @property
    def image_tokens(self) -> tuple[int, int]:
        """The number of images that are sent, and their tokens."""
        found = [tokens for piece in self._pieces() if piece.raw for tokens in image_sizes(piece.text)]
        return len(found), sum(found)

    @property
    def image_cost(self) -> RequestCost:
        """The cost of the images that are sent, with nothing in the cache."""
        return estimate(self.model, fresh=self.image_tokens[1])

    @property
    def basis(self) -> str:
        """A digest of all that thinking in the response is bound to: model, tools, and all blocks in their order."""
        binding = receipts.Binding(self.model, self.tools, self.system.text)
        binding.add((*self.run.pieces[: self.count], *self.tail))
        return binding.digest()

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The parts that could have been projected and were not, with the reasons."""
        return self.run.left_out + self.tail_left_out

    @property
    def request_bytes(self) -> bytes:
        """The exact body of the request."""
        opening = receipts.head(self.model, self.max_tokens, self.system.text, self.tools)
        return receipts.body(opening, self.run.pieces[: self.count], self.tail, self.edge)

    @property
    def request(self) -> dict[str, Any]:
        """The body as a dict, new at each call."""
        return json.loads(self.request_bytes)

    def to_json(self) -> dict[str, Json]:
        """Return the projection schema's object."""
        count, tokens = self.image_tokens
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
            "images": {"count": count, "tokens": tokens, "usd": self.image_cost.usd, "told": self.image_cost.told()},
            "left_out": plain(self.left_out),
            "broke": self.broke,
            "tokens": self.tokens,
            "budget": self.budget,
            "receipt": self.receipt,
        }

    @property
    def cost(self) -> RequestCost:
        """The cost of sending it within minutes after the projection before it, without an answer.

        The common prefix is read from the cache; the rest up to the last breakpoint is written to it.
        """
        return self.cost_with(self.cached)

    @property
    def cost_alone(self) -> RequestCost:
        """The cost of sending it with nothing in the cache."""
        return self.cost_with(-1)

    def cost_with(self, cached: int) -> RequestCost:
        """Return the cost of sending it with the first `cached` blocks of its history in the cache; -1: none."""
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
        """Return the block at a violation's path, or None where the path is that of the whole body."""
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
    def violations(self) -> tuple[BlockViolation, ...]:
        """The broken rules, each with its block."""
        return tuple(BlockViolation(one, self.block_at(one.path)) for one in self.report.violations)

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
            "broke": self.broke,
            "report": self.report.to_json(),
            "history_left_out": self.run.left[0] if self.run.left_out else None,
            "left_out": [[one.id, one.why] for one in self.tail_left_out],
            "tokens": self.tokens,
            "budget": self.budget,
            "receipt": self.receipt,
        }

    def texts(self, beyond: Projection | None = None) -> dict[str, str]:
        """Return all texts that `to_record` names, by hash.

        `beyond` is an earlier projection whose texts are stored already: the texts of a common run are left out.
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

    Raises StoreError for a record of a newer version and for texts that do not match the record's receipt.
    """
    return Rebuilder(load_text).projection(record)


class Rebuilder:
    """Makes projections again from their records, best in the order in which they were made.

    A projection that continues the one before shares its run: nothing is loaded or hashed twice.
    """

    def __init__(self, load_text: Callable[[str], str]) -> None:
        self._load = load_text
        self._begin(None)

    def _begin(self, basis: Json, opening: str = "", left_out: tuple[LeftOut, ...] = ()) -> None:
        self._run = BlockRun(left_out)
        self._receipts = receipts.Receipts(opening)
        self._basis = basis
        """The values of a record that must be those of the one before for the same run."""
        self._chunks: list[str] = []
        self._recent: list[Json] = []
        """The references of the pieces after these chunks."""

    def projection(self, record: Mapping[str, Json]) -> Projection:
        """Return the projection of a record.

        Raises StoreError for a record of a newer version and for texts that do not match the receipt, KeyError,
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
            report=RuleReport(report["ok"], tuple([Violation(**violation) for violation in report["violations"]])),
            tokens=record["tokens"],
            budget=record["budget"],
            receipt=record["receipt"],
            run=self._run,
            count=len(self._run.pieces),
            cached=record["cached"],
            tail_left_out=tuple([LeftOut(one, why) for one, why in record["left_out"]]),
            edge=record.get("edge", -1),
            broke=record.get("broke", ""),
        )
        if self._receipts.receipt(self._run.pieces, tail, projection.edge) != projection.receipt:
            raise StoreError(
                f"the stored texts of projection {projection.receipt[:23]} are not those that it was made of"
            )
        return projection

    def _grow(self, record: Mapping[str, Json], opening: str) -> None:
        """Append the pieces that are new in a record; begin a new run if it does not continue the record before."""
        basis, references = (opening, record["history_left_out"]), self._references(record)
        chunks = record["chunks"][: len(self._chunks)]
        if (self._basis, self._chunks, self._recent) != (basis, chunks, references[: len(self._recent)]):
            left: list[list[str]] = json.loads(self._load(basis[1])) if basis[1] else []
            self._begin(basis, opening, tuple([LeftOut(one, why) for one, why in left]))
            references = self._references(record)
        self._run.pieces += [_piece(reference, self._load) for reference in references[len(self._recent) :]]
        self._chunks, self._recent = record["chunks"], record["history"]

    def _references(self, record: Mapping[str, Json]) -> list[Json]:
        """Return the references of a record's history, without those in known chunks."""
        new = [json.loads(self._load(chunk)) for chunk in record["chunks"][len(self._chunks) :]]
        return [*chain.from_iterable(new), *record["history"]]


@functools.lru_cache(maxsize=128)  # a record and its texts ask for the same few hashes right after each other
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_dump: Callable[[Json], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _references(pieces: Iterable[Piece]) -> list[Json]:
    """Return the pieces as lists, with the hash of each text instead of the text."""
    return [
        [block, kind, origin, tokens, why, _hash(text), *((role, raw) if raw or role != "user" else ())]
        for block, kind, origin, tokens, why, text, role, raw in pieces
    ]


def _piece(reference: Sequence[Any], load_text: Callable[[str], str]) -> Piece:
    block, kind, origin, tokens, why, name, *how = reference
    return Piece(block, kind, origin, tokens, why, load_text(name), *how)


def block_content(piece: Piece) -> str:
    """Return the content of a block for people: its text, the input of a call, the content of a result."""
    return _raw_content(piece.text) if piece.raw else piece.text


@functools.lru_cache(128)
def _raw_content(text: str) -> str:
    """Return the content of a block by its JSON."""
    block = json.loads(text)
    match block.get("type"):
        case "tool_use":
            code = block["input"].get("code") if len(block["input"]) == 1 else None
            return code if isinstance(code, str) else f"{block['name']} {_dump(block['input'])}"
        case "tool_result":
            content: Any = block.get("content", "")
            return "\n".join(map(_part, cast("list[Any]", content))) if isinstance(content, list) else str(content)
        case "thinking":
            return str(block.get("thinking", ""))
        case "text":
            return str(block.get("text", ""))
        case "image":
            return _part(block)
        case kind:
            return f"[{kind}]"


def _part(block: Mapping[str, Any]) -> str:
    """Return a text, or what an image is, for people."""
    if block["type"] != "image":
        return str(block.get("text", ""))
    source = block["source"]
    extent = pixels(source["data"])
    size = f" {extent[0]:,}×{extent[1]:,}" if extent else ""
    return f"[{source['media_type']}{size}, {format_size(len(source['data']) * 3 // 4)}]"
