"""What an object holds, as a small fingerprint that another look can be compared with.

Rule 1: none of the user's code runs (`state.reflect`), nothing is imported, nothing is kept alive after a look.
Rule 2: every step is bounded: no recursion of ours, time asked after every few hundred objects and every few
megabytes. What the time did not reach is said (`Survey.whole`), and the part that was reached can still be compared.

A look has two stages. The first walks the structure: containers, attributes, small data, and a sample of large
buffers; it also notes which objects are reached (`ids`) and which names the reached code uses (`deps`). The second
hashes large buffers whole, in their memory order, which is the only part that depends on how memory is laid out.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from ctxkernel.state.flat import encode, encode_records
from ctxkernel.state.reflect import Plan, is_own_class
from ctxkernel.state.sharing import pack
from ctxkernel.state.survey import Survey

FLUSH = 16 * 1024
"""Bytes of structure that one mark covers."""
SMALL = 64 * 1024
"""Largest buffer in bytes that is part of the structure; larger ones are sampled, then hashed in stage two."""
CHUNK = 4 * 1024 * 1024
"""Bytes hashed between two looks at the clock."""
MOST_OBJECTS = 2_000_000
"""Most objects that one look visits."""
MOST_LED_TO = 20_000
"""Most objects that are visited only because code of the value leads to them."""
MOST_FOREIGN = 5_000
"""Most instances of library classes that one look visits: a figure or a widget leads to half of its library."""
ITEMS = 4096
"""Items of a list, dict or set that are taken at a time."""
Children = Iterator[object] | None
Body = Callable[["Look", Any], Children]
Expired = Callable[[], bool]


class OutOfTimeError(Exception):
    """The time for this look is used up."""


class OutOfBoundsError(Exception):
    """The object leads to more than one look visits."""


@dataclass(frozen=True, slots=True)
class Base:
    """How instances of the subclasses of a known class are visited."""

    body: Body
    noted: bool = True
    """They can be changed or hold what can, so that it matters whether two are one."""
    hidden: Callable[[str], bool] = lambda _: False
    """Attributes that `body` sees to, or that are no content."""


class Batch:
    """What the looks at the end of one cell share. Lives for one call: it holds classes and buffers."""

    def __init__(
        self,
        namespace: dict[str, Any],
        expired: Expired,
        is_handle: Callable[[object], bool],
        kinds: dict[int, tuple[bool, Body]],
        bases: dict[int, Base],
    ) -> None:
        self.namespace = namespace
        name = dict.get(namespace, "__name__")
        self.module = name if type(name) is str else "__main__"
        self.expired = expired
        self.is_handle = is_handle
        self.kinds = kinds
        """By id of the exact type: whether the object is noted as reached, and how to visit it. Grows in this batch."""
        self.bases = bases
        """By id of a type: how to visit instances of its subclasses."""
        self.plans: dict[int, Plan] = {}
        self.memo: dict[tuple[int, int], tuple[int, ...]] = {}
        """Hashes (xxh3_128, one every `CHUNK` bytes) of memory blocks that this batch read, by address and size."""
        self.make_kind: Callable[[Batch, type], tuple[bool, Body]] | None = None

    def plan(self, cls: type) -> Plan:
        """Return how instances of `cls` are read."""
        plan = self.plans.get(id(cls))
        if plan is None:
            plan = self.plans[id(cls)] = Plan(cls, is_own_class(cls, self.module))
        return plan

    def base_of(self, mro: Sequence[type]) -> Base | None:
        """Return how to visit an instance of a class with this MRO as one of a known base, or None."""
        return next((self.bases[id(base)] for base in mro if id(base) in self.bases), None)


class Large:
    """A buffer that waits for stage two."""

    __slots__ = ("chunks", "key", "nbytes")

    def __init__(self, key: tuple[int, int] | None, nbytes: int, chunks: Callable[[], Iterable[Any]]) -> None:
        self.key = key
        self.nbytes = nbytes
        self.chunks = chunks


class Look:
    """One look at one value. `walk` is stage one, `finish` stage two."""

    __slots__ = (
        *("batch", "out", "marks", "seen", "also", "deps", "large", "layout", "later", "held", "limit", "made"),
        *(
            "muted",
            "objects",
            "foreign",
            "depth",
            "by_identity",
            "opaque",
            "walked",
            "reason",
            "_led",
            "_next",
            "_root",
        ),
    )

    def __init__(self, batch: Batch, value: object) -> None:
        self.batch = batch
        self.out = bytearray()
        self.marks: list[int] = []
        self.seen: dict[int, int] = {}
        self.also: set[int] = set()
        """Ids and addresses that belong to the value without being visited."""
        self.deps: set[str] = set()
        self.large: list[Large] = []
        self.layout = bytearray()
        self.later: list[object] = []
        """What the value leads to but does not hold: looked at for ids and `deps` only."""
        self.held: tuple[int, frozenset[int]] | None = None
        """How many of `seen`, and which of `also`, the value holds; the others it leads to."""
        self.limit = MOST_OBJECTS
        self.made: list[object] = []
        self._led: set[int] = set()
        self.muted = False
        self.objects = 0
        """What was visited; thirty plain items count as one."""
        self._next = 200
        self.foreign = 0
        self.depth = 0
        self.by_identity = False
        self.opaque = False
        self._root: object = value
        self.walked = True
        self.reason = ""
        self._start(value)

    def _start(self, value: object) -> None:
        try:
            self.walk(value)
            self.flush()
            self.muted = True
            self.held = len(self.seen), frozenset(self.also)
            self.limit = self.objects + MOST_LED_TO
            while self.later:
                self.walk(self.later.pop())
        except OutOfTimeError:
            self.walked = self.muted
        except OutOfBoundsError as fault:
            self.walked = self.muted
            self.reason = "" if self.muted else str(fault)
        self._root = None
        self.later.clear()
        self.made.clear()
        self.out.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of large buffers that stage two has to hash."""
        return sum(large.nbytes for large in self.large)

    def walk(self, root: object) -> None:
        """Visit `root` and all that it holds, depth first, without recursion."""
        kinds, seen = self.batch.kinds, self.seen
        stack: list[Iterator[object]] = [iter((root,))]
        while stack:
            for obj in stack[-1]:
                kind = kinds.get(id(type(obj)))
                if kind is None:
                    make = self.batch.make_kind
                    assert make is not None
                    kind = kinds[id(type(obj))] = make(self.batch, type(obj))
                noted, body = kind
                if noted:
                    again = seen.get(id(obj))
                    if again is not None:
                        self.out += b"R%d;" % again
                        continue
                    seen[id(obj)] = len(seen)
                children = body(self, obj)
                if children is not None:
                    stack.append(children)
                    break
            else:
                stack.pop()

    def hold(self, made: Any) -> Any:
        """Keep something that was made for this look, so that its id stays its own; returns it."""
        self.made.append(made)
        return made

    def lead_to(self, obj: object) -> None:
        """Have `obj` looked at later for what it reaches, as something that the value does not hold."""
        if obj is not None and id(obj) not in self._led:
            self._led.add(id(obj))
            self.later.append(obj)

    def partial(self, reason: str) -> None:
        """Say that a part was left out on purpose."""
        self.reason = self.reason or reason

    def again(self, obj: object) -> bool:
        """Note `obj` as reached; True, with a reference written down, where it was reached before."""
        found = self.seen.get(id(obj))
        if found is None:
            self.seen[id(obj)] = len(self.seen)
            return False
        self.out += b"R%d;" % found
        return True

    def sub(self, obj: object) -> int:
        """Return the hash of one member of an unordered collection."""
        if self.depth > 20:  # sets of sets of …: recursion of ours, so bounded
            self.by_identity = True
            return id(obj)
        saved = self.out, self.marks
        self.out, self.marks = bytearray(), []
        self.depth += 1
        try:
            self.walk(obj)
            self.flush()
            return hash(tuple(self.marks))
        finally:
            self.out, self.marks = saved
            self.depth -= 1

    def tick(self, items: int = 0) -> None:
        """Count an object with its plain items; every few hundred, see whether there is time and room left."""
        self.objects += 1 + (items >> 5)
        if self.objects > self._next or len(self.out) > FLUSH:
            self._next = self.objects + 200
            self.check()

    def check(self) -> None:
        """Write down what is pending. Raises OutOfTimeError or OutOfBoundsError."""
        if len(self.out) > FLUSH:
            self.flush()
        if self.batch.expired():
            raise OutOfTimeError
        if self.objects > self.limit:
            raise OutOfBoundsError(f"only its first {MOST_OBJECTS:,} objects")
        if self.foreign > MOST_FOREIGN:
            raise OutOfBoundsError(f"only its first {MOST_FOREIGN:,} library objects")

    def flush(self) -> None:
        """Turn what was written down into a mark."""
        if self.out:
            if not self.muted:
                self.marks.append(xxh3_64_intdigest(self.out))
            self.out.clear()

    def feed(self, data: Any) -> None:
        """Write down bytes of any length."""
        size = len(data)
        self.out += b"%d:" % size
        if size <= FLUSH:
            self.out += data
        else:
            self.flush()
            if not self.muted:
                self.marks.append(xxh3_64_intdigest(data))
            self.check()

    def label(self, tag: bytes, text: str) -> None:
        """Write down a name of ours or of a class."""
        self.out += tag + text.encode("utf-8", "surrogatepass") + b"\0"

    def identity(self, obj: object) -> None:
        """Write down which object it is, for what cannot be looked into."""
        self.by_identity = True
        self.opaque = self.opaque or (self.objects <= 1 and obj is self._root)
        self.also.add(id(obj))
        self.out += b"@%d;" % id(obj)

    def defer(self, large: Large, sample: bytes, layout: bytes = b"") -> None:
        """Put a large buffer down for stage two; `sample` depends on its content only, not on its layout."""
        self.feed(sample)
        if not self.muted:
            self.large.append(large)
            self.layout += layout + b";"
        self.tick()

    def flat(self, items: Sequence[Any]) -> bool:
        """Write down `items` at once, where all are plain and not too large; False, with nothing written, otherwise."""
        data = encode(items)
        if data is None:
            return False
        self.feed(data)
        return True

    def records(self, items: Sequence[Any]) -> bool:
        """Write down dicts, lists or tuples of plain items at once; False, with nothing written, where one is not."""
        data = encode_records(items)
        if data is None:
            return False
        if type(items[0]) is not tuple:  # those that can change are noted, as each by itself would be
            ids = list(map(id, items))
            if len(set(ids)) < len(ids) or not self.seen.keys().isdisjoint(ids):
                return False
            self.seen.update(zip(ids, range(len(self.seen), len(self.seen) + len(ids)), strict=True))
        self.feed(data)
        return True

    def finish(self, *, hash_bodies: bool = True) -> Survey:
        """Hash the large buffers as far as the time goes, and return the whole."""
        body: list[int] = []
        whole = self.walked and not self.reason
        memo, nbytes, finished = self.batch.memo, self.nbytes, hash_bodies or not self.large
        for large in self.large if hash_bodies else ():
            known = None if large.key is None else memo.get(large.key)
            if known is None:
                marks: list[int] = []
                for chunk in large.chunks():
                    if self.batch.expired():
                        finished = False
                        break
                    marks.append(xxh3_128_intdigest(chunk))
                known = tuple(marks)
                if finished and large.key is not None:
                    memo[large.key] = known
            body.extend(known)
            if not finished:
                break
        self.large.clear()
        size, also = self.held or (len(self.seen), frozenset(self.also))
        reached = iter(self.seen)
        held = list(islice(reached, size))
        order = xxh3_64_intdigest(array("q", held))
        leads = {*reached, *self.also} - also
        if also:
            held = list({*held, *also})
        return Survey(
            structure=tuple(self.marks),
            body=tuple(body),
            layout=xxh3_64_intdigest(self.layout) if self.layout.strip(b";") else 0,
            whole=whole and finished,
            walked=self.walked,
            reason=self.reason,
            by_identity=self.by_identity,
            opaque=self.opaque,
            order=order,
            ids=pack(held),
            leads=pack(leads.difference(held) if leads else ()),
            deps=frozenset(self.deps),
            objects=self.objects,
            nbytes=nbytes,
        )
