"""What cannot be stored costs itself, and is named; what the user's code does wrong while it is asked costs no more."""

from __future__ import annotations

import contextvars
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pickling_rows import Box, Elsewhere

from ctxkernel.state.types.object_names import Named
from ctxkernel.state.types.packer import Lost, OutOfTime, Packer

# A class whose instances cannot be stored, and what is said of it.
FAULTY = {
    "an exception": ("def __reduce__(self): raise ValueError('no way')", "ValueError: no way"),
    "an exit": ("def __reduce__(self): raise SystemExit(3)", "SystemExit: 3"),
    "a number": ("def __reduce__(self): return 5", "returned int"),
    "an empty tuple": ("def __reduce__(self): return ()", "returned tuple"),
    "nothing to call": ("def __reduce__(self): return (1, ())", "callable"),
    "arguments that are none": ("def __reduce__(self): return (list, [])", "arguments"),
    "items that are none": ("def __reduce__(self): return (list, (), None, 5)", "not iterable"),
    "items that end in a fault": (
        "def __reduce__(self): return (list, (), None, (1 / n for n in (1, 0)))",
        "ZeroDivisionError",
    ),
    "a name that nobody has": (
        "__module__ = 'os'\n    def __reduce__(self): return 'nowhere'",
        "no module has it",
    ),
    "no end": ("def __reduce__(self): return self.__reduce__()", "RecursionError"),
    "itself as an argument": ("def __reduce__(self): return (A, (self,))", "what it is made from has no end"),
    "ever new objects as arguments": ("def __reduce__(self): return (A, (A(),))", "what it is made from has no end"),
    "a text of its fault that raises": (
        (
            "def __reduce__(self):\n        class Bad(Exception):\n"
            "            def __str__(self): raise KeyError\n        raise Bad"
        ),
        "Bad",
    ),
}


@pytest.mark.parametrize("case", FAULTY)
def test_a_fault_of_the_users_code_costs_the_object_that_it_is_of(case: str):
    """The name that stands for it is a fault, a place inside of another value a stand-in; all else comes back."""
    body, said = FAULTY[case]
    box = Box(f"class A:\n    {body}\na = A(); b = [1, A(), a]; c = [5]; d = [c]")

    packed = box.pack("a", "b", "c", "d")
    found = Elsewhere(box, packed).load()

    assert said in packed.faults["a"]
    assert set(packed.faults) == {"a"}
    assert sorted(part.removeprefix("os.") for part in packed.parts) == ["A in b[1]", "A in b[2]"]
    assert found["b"][0] == 1
    assert type(found["b"][1]) is Lost
    assert found["d"][0] is found["c"]
    assert "a" not in found


# Classes that make trouble for whoever asks them, and do no harm to a pack.
ODD = {
    "lies about its class": "class A:\n    __class__ = property(lambda self: int)",
    "answers nothing": "class A:\n    def __getattribute__(self, name): raise RuntimeError(name)",
    "asks itself for ever": "class A:\n    def __getattr__(self, name): return getattr(self, name)",
    "has no hash as a class": "class M(type):\n    __hash__ = None\n    def __eq__(c, o): raise OSError\n"
    "class A(metaclass=M): pass",
    "answers nothing as a class": "class M(type):\n    def __getattribute__(c, n): raise OSError\n"
    "class A(metaclass=M): pass",
    "takes no attributes": "class A:\n    __slots__ = ('x',)\n    def __setattr__(self, *a): raise TypeError",
    "wants arguments": "class A:\n    def __new__(cls, a=None, *, b=None): return object.__new__(cls)",
}


@pytest.mark.parametrize("case", ODD)
def test_odd_classes_are_stored_by_their_attributes(case: str):
    """What a class does on access is not asked for: the attributes themselves are read and put back."""
    box = Box(f"{ODD[case]}\nx = [1]; a = A(); object.__setattr__(a, 'x', x); b = [a]")

    found = box.elsewhere("a", "b", "x")

    assert found["b"][0] is found["a"]
    assert object.__getattribute__(found["a"], "x") is found["x"]


def test_what_is_alive_only_is_a_fault_with_a_reason():
    """Generators, threads, sockets and the like are not stored; in this process their tokens find them again."""
    box = Box("""
        import contextvars, socket, sys, tempfile, threading, types
        g = (i for i in range(3)); d = {'x': g, 'y': [1]}; t = threading.Thread(target=print); s = socket.socket()
        f = tempfile.TemporaryFile(); fr = sys._getframe(); m = types.ModuleType('by_hand'); m.f = lambda: 1
        async def co(): pass
        c = co(); td = tempfile.TemporaryDirectory(); cv = contextvars.ContextVar('cv')
    """)
    names = ["g", "d", "t", "s", "f", "fr", "m", "c", "td", "cv"]

    packed = box.pack(*names)
    here = box.packer.unpack(packed.stream, packed.buffers, live=packed.live.get)
    there = Elsewhere(box, packed).load()
    for name in ("s", "f", "c"):
        box.namespace[name].close()

    assert set(packed.faults) == set(names) - {"d"}
    assert packed.parts == ("generator in d['x']",)
    assert "generator" in packed.faults["g"]
    assert here["d"]["x"] is here["g"] is box.namespace["g"]
    assert all(here[name] is box.namespace[name] for name in packed.faults)
    assert set(there) == {"d"}
    assert there["d"]["y"] == [1]
    box.namespace["td"].cleanup()


def test_a_text_file_that_reads_through_an_archive_is_alive_only(tmp_path: Any):
    """Opened again by its name, it would give the bytes of the archive."""
    box = Box(f"""
        import bz2, gzip, io
        path = {str(tmp_path / "a")!r}
        with gzip.open(path, 'wt') as done: done.write('one')
        g = gzip.open(path, 'rt'); b = bz2.open(path + '2', 'wt'); t = io.TextIOWrapper(io.BytesIO(b'text'))
    """)

    packed = box.pack("g", "b", "t", "done")

    assert packed.faults == {
        "g": "_io.TextIOWrapper: it reads or writes through a GzipFile",
        "b": "_io.TextIOWrapper: it reads or writes through a BZ2File",
        "t": "_io.TextIOWrapper: it reads or writes through a BytesIO",
    }
    assert Elsewhere(box, packed).load()["done"].closed
    box.namespace["b"].close()


def test_a_match_in_a_text_that_changed_and_an_expression_without_a_text_are_alive_only():
    box = Box("""
        import re
        data = bytearray(b'abc'); m = re.match(b'a', data); data[0] = 0
        s = re.Scanner([('a', None)]).scanner; g = re.match('a', 'a')
    """)

    packed = box.pack("data", "m", "s", "g")

    assert packed.faults == {
        "m": "re.Match: the text in which it was found may have changed",
        "s": "re.Pattern: it was made of no text",
    }
    assert set(Elsewhere(box, packed).load()) == {"data", "g"}


def test_no_expression_runs_while_its_matches_are_packed():
    """It may take as long as it took in the user's cell."""
    box = Box("import re; m = re.search('b', 'abc'); every = list(re.finditer('[a-c]', 'abc')); p = m.re")
    of_ours: list[object] = []

    def note(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__self__", None) in (
            box.namespace["p"],
            box.namespace["every"][0].re,
        ):
            of_ours.append(called)

    sys.setprofile(note)
    try:
        packed = box.pack("m", "every", "p")
    finally:
        sys.setprofile(None)

    assert of_ours == []
    loaded = Elsewhere(box, packed).load()
    assert [one.span() for one in (loaded["m"], *loaded["every"])] == [(1, 2), (0, 1), (1, 2), (2, 3)]


def test_a_stand_in_says_what_it_was_and_what_to_do():
    """It can be shown, copied and stored; every other use raises with the next move."""
    lost = Lost("generator in d['x']")

    assert "generator in d['x']" in repr(lost)
    assert not hasattr(lost, "_repr_html_")
    assert repr(pickle.loads(pickle.dumps(lost))) == repr(lost)
    for use in (
        lambda: lost.send,
        lost,
        lambda: list(lost),
        lambda: len(lost),
        lambda: lost[0],
        lambda: lost + 1,
    ):
        with pytest.raises(RuntimeError, match="run the cell"):
            use()


def test_a_stand_in_is_stored_again():
    """A value that lost a part earlier can be stored as it is."""
    box = Box("d = {'x': 1}")
    box.namespace["d"]["y"] = Lost("generator")

    found = box.elsewhere()

    assert "generator" in repr(found["d"]["y"])


def test_a_fault_while_unpacking_costs_its_object():
    """What cannot be put together is a stand-in, and is told; all else is there."""
    box = Box("""
        class A:
            def __reduce__(self): return {}.__getitem__, ('s',)
        class B:
            def __reduce__(self): return int, ('no number',)
        b = [A(), [1], A(), B(), {'k': 2}]; c = b[1]
    """)
    packed = box.pack("b", "c")
    report: list[str] = []

    found = box.packer.unpack(packed.stream, packed.buffers, report=report)

    assert [type(one) for one in found["b"]] == [Lost, list, Lost, Lost, dict]
    assert found["b"][1] is found["c"]
    assert found["b"][4] == {"k": 2}
    assert len(report) == 3
    assert all(said in " ".join(report) for said in ("KeyError", "ValueError"))


def test_an_item_whose_key_has_no_hash_yet_is_reported():
    """The dict lacks the item, and no stand-in shows which name that is: a return names all names of the pack."""
    box = Box(
        "class K:\n    def __init__(self, x): self.x = x; self.d = {}\n    def __hash__(self): return hash(self.x[0])\n"
        "a = K([1]); a.d[a] = 2; b = {a: 1}"
    )
    packed = box.pack("a", "b")
    report, stand_ins = list[str](), list[str]()

    box.packer.unpack(packed.stream, packed.buffers, report=report, lost=stand_ins.append)

    assert not stand_ins
    assert report == ["an item of a dict (AttributeError: 'K' object has no attribute 'x')"]


def test_a_class_or_module_that_is_gone_costs_what_needs_it(monkeypatch: pytest.MonkeyPatch):
    """An instance of it is a stand-in; the rest of the pack comes back."""
    box = Box("class A: pass\nimport colorsys\na = A(); b = [A(), 1]; m = [colorsys, colorsys.rgb_to_hls, 2]")
    packed = box.pack("a", "b", "m")
    monkeypatch.setitem(sys.modules, "colorsys", None)
    report: list[str] = []

    found = Packer({}).unpack(packed.stream, packed.buffers, report=report)

    assert [type(one) for one in found["b"]] == [Lost, int]
    assert [type(one) for one in found["m"]] == [Lost, Lost, int]
    assert any("the class A is gone" in said for said in report)


@pytest.mark.parametrize(
    "cell",
    [
        "a = []\nfor _ in range(20_000): a = [a]",
        "a = ()\nfor _ in range(5_000): a = ({'k': a},)",
        "class N:\n    def __init__(self, n): self.next = n\na = None\nfor _ in range(5_000): a = N(a)",
        "class N:\n    __slots__ = ('next', 'v')\na = None\nfor _ in range(3_000): b = N(); b.next = a; a = b",
        "def make(f): return lambda: f\na = None\nfor _ in range(2_000): a = make(a)",
        (
            "import numpy as np\na = None\nx = np.arange(20_000.)\n"
            "for _ in range(3_000): a = [a, x, x[1:], b'y' * 9, {1}, frozenset({2})]"
        ),
        "a = []\nb = a\nfor _ in range(3_000): b.append([b]); b = b[0]",
    ],
    ids=["lists", "tuples and dicts", "a linked list", "slots", "closures", "with arrays", "cycles"],
)
def test_what_lies_deep_is_stored(cell: str):
    """No depth is too deep, and none brings the interpreter down."""
    box = Box(cell)

    found = box.elsewhere("a")

    depth, one, other = 0, box.namespace["a"], found["a"]
    while isinstance(one, list | tuple) and len(one) in (1, 6):
        one, other, depth = (x[0]["k"] if isinstance(x[0], dict) else x[0] for x in (one, other)), 0, depth + 1
        one, other = one
    while hasattr(one, "next"):
        one, other, depth = one.next, other.next, depth + 1
    assert type(one) is type(other)


def test_time_that_runs_out_is_noticed_within_milliseconds():
    """A list of millions of texts is given up as soon as the time is over."""
    values = {"x": [f"text {n}" for n in range(2_000_000)]}
    packer = Packer({})
    gc.collect()
    gc.disable()  # of all that the tests before left
    try:
        start = time.thread_time()
        with pytest.raises(OutOfTime):
            packer.pack(values, expired=lambda: time.thread_time() - start > 0.02)
        took = time.thread_time() - start
    finally:
        gc.enable()

    assert took < 0.06


def test_time_that_runs_out_is_noticed_between_objects():
    """Reducers ask for the time too."""
    box = Box("class A:\n    def __reduce__(self): return list, ()\na = [A() for _ in range(1000)]")
    asked = iter(range(5))

    with pytest.raises(OutOfTime):
        box.packer.pack(box.values("a"), expired=lambda: next(asked, None) is None)


def test_an_interrupt_goes_through():
    """Ctrl-C ends a pack, wherever it comes."""
    box = Box("class A:\n    def __reduce__(self): raise KeyboardInterrupt\na = [A()]")

    with pytest.raises(KeyboardInterrupt):
        box.pack("a")


def test_a_limit_that_is_changed_on_the_way_is_set_back():
    """`sys.setrecursionlimit` in a `__reduce__` does not outlive the pack."""
    box = Box(
        "import sys\nclass A:\n    def __reduce__(self): sys.setrecursionlimit(500); return list, ()\n"
        "a = [A(), [[[1]]]]"
    )
    limit = sys.getrecursionlimit()

    box.back("a")

    assert sys.getrecursionlimit() == limit


def test_packing_changes_nothing_and_keeps_nothing():
    """No attribute, no cache, no reference stays behind."""
    box = Box("""
        import numpy as np, pandas as pd
        class A:
            __slots__ = ('x', '__weakref__')
        class B: pass
        class G:
            def __getstate__(self): return object.__reduce_ex__(self, 2)[2]
        a = A(); a.x = 1; b = B(); b.y = a; g = G()
        d = pd.DataFrame({'p': [1, 2]}); d['q'] = [1.5, 2.5]; d['r'] = [3, 4]
    """)
    space = box.namespace
    before = [dict(vars(space[name])) for name in "ABG"], len(space["d"]._mgr.blocks), dict(space["d"].__dict__)

    packed = box.pack("a", "b", "g", "d")
    refs = [weakref.ref(space[name]) for name in ("a", "b", "g")]
    del packed

    assert (
        [dict(vars(space[name])) for name in "ABG"],
        len(space["d"]._mgr.blocks),
        dict(space["d"].__dict__),
    ) == before
    gc.disable()  # nothing is left in a cycle either
    try:
        for name in ("b", "a", "g"):
            del space[name]
        assert [ref() for ref in refs] == [None] * 3
    finally:
        gc.enable()


def test_a_thread_that_changes_a_dict_meanwhile_costs_at_most_that_name():
    """The rest of the pack is stored."""
    grown: dict[int, int] = {n: n for n in range(50_000)}
    stop = threading.Event()

    def grow() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            grown[-n] = n
            grown.pop(-n + 50, None)

    thread = threading.Thread(target=grow)
    packer = Packer({})
    thread.start()
    try:
        packs = [packer.pack({"grown": grown, "other": [1]}) for _ in range(5)]
    finally:
        stop.set()
        thread.join()

    for packed in packs:
        assert packer.unpack(packed.stream, packed.buffers)["other"] == [1]
        assert set(packed.faults) <= {"grown"}


def test_handles_are_ids():
    """A handle is stored as its id, and found by it."""

    class Handle:
        def __init__(self, obj_id: str) -> None:
            self.obj_id = obj_id

    v1 = Handle("v1")
    packer = Packer({}, is_handle=lambda one: isinstance(one, Handle))

    packed = packer.pack({"h": v1, "d": [v1]})
    found = packer.unpack(packed.stream, handles={"v1": v1}.get)

    assert found["h"] is v1
    assert found["d"][0] is v1


def test_a_class_keeps_its_uid_and_is_not_mistaken_for_one_of_the_same_name():
    """An instance of a class that was defined anew since comes back as one of its own class."""
    box = Box("class A:\n    def m(self): return 1\na = A()")
    old = box.pack("a")
    first = box.namespace["A"]
    box.run("class A:\n    def m(self): return 2\nb = A()")

    found = box.packer.unpack(old.stream)

    assert type(found["a"]) is first
    assert found["a"].m() == 1
    assert box.packer.uid(first) == next(iter(old.classes))
    assert box.packer.uid(box.namespace["A"]) != box.packer.uid(first)


def test_classes_that_refer_to_each_other_come_back_from_their_own_packs():
    """Neither is complete without the other."""
    box = Box("""
        class A:
            def other(self): return B()
        class B(A):
            def __init__(self): super().__init__()
        A.friend = B; B.friend = A; A.me = A; a = A(); b = B()
    """)

    found = box.elsewhere("a", "b")

    assert type(found["a"]).friend is type(found["b"])
    assert type(found["b"]).friend is type(found["a"]) is type(found["a"]).me


def test_memory_that_is_given_becomes_the_memory_of_arrays():
    """No copy is made of a buffer that can be written to; one that cannot is copied."""
    a = np.arange(100_000.0)
    packer = Packer({})
    packed = packer.pack({"a": a, "v": a[5:]})
    given = bytearray(packed.buffers[0])

    found = packer.unpack(packed.stream, [given])
    copied = packer.unpack(packed.stream, [bytes(given)])
    given[:8] = np.float64(77).tobytes()

    assert found["a"][0] == 77
    assert copied["a"][0] == 0
    assert copied["a"].flags.writeable
    assert found["a"].flags.writeable
    assert np.shares_memory(found["a"], found["v"])


def test_what_was_restored_is_stored_again():
    """Arrays over memory that a restore was given keep what they share, however often."""
    box = Box(
        "import numpy as np\na = np.arange(50_000.); v = a[::-3]; w = v[5:]\n"
        "f = np.asfortranarray(np.ones((300, 300))); g = f[1:]"
    )
    packer = box.packer
    values = box.values("a", "v", "w", "f", "g")

    for _ in range(3):
        packed = packer.pack(values)
        values = packer.unpack(packed.stream, [bytearray(one) for one in packed.buffers])
    values["a"][-4 - 1] = 1234.0

    assert len(packed.buffers) == 2
    assert sum(one.nbytes for one in packed.buffers) == 400_000 + 720_000
    assert np.shares_memory(values["v"], values["w"])
    assert values["v"].strides == (-24,)
    assert values["f"].flags.f_contiguous
    assert np.shares_memory(values["f"], values["g"])
    assert values["v"].tolist() == values["a"][::-3].tolist()


def test_a_map_of_a_file_that_changed_is_of_the_file_as_it_is_now_and_says_so(tmp_path: Any):
    """A return replaces no map that can be used by one that cannot."""
    path = str(tmp_path / "a.npy")
    np.save(path, np.arange(100.0))
    a = np.load(path, mmap_mode="r")
    packer = Packer({})
    packed = packer.pack({"a": a, "b": [1, a[3:]]})
    np.save(path, np.arange(100.0, 300.0))
    report: list[str] = []

    found = packer.unpack(packed.stream, report=report)

    assert found["b"][0] == 1
    assert found["b"][1][0] == 103.0
    assert report == [f"{path} was written since, and is mapped as it is now"]


def test_a_file_that_is_shorter_than_its_map_was_is_lost_and_not_extended(tmp_path: Any):
    path = tmp_path / "a.dat"
    a = np.memmap(path, "u1", "w+", shape=9_000)
    packer = Packer({})
    packed = packer.pack({"a": a})
    path.write_bytes(b"short")

    found = packer.unpack(packed.stream, report=[])

    assert type(found["a"]) is Lost
    assert path.read_bytes() == b"short"


LARGE_MAP = 65 * 1024 * 1024


def test_writes_to_one_page_of_a_large_map_of_a_file_are_all_noticed(tmp_path: Any):
    """The system notes the first one in the time of the file, and not those before it stored the page."""
    a = np.memmap(tmp_path / "a.dat", "u1", "w+", shape=LARGE_MAP)
    packer = Packer({})
    packs: list[Any] = []
    for value in (1, 2, 3):
        a[5] = value
        packs.append(packer.pack({"a": a}).stream)
    report: list[str] = []
    found = packer.unpack(packs[0], report=report)

    assert len(set(map(bytes, packs))) == 3
    assert found["a"][5] == 3
    assert "may have been written since, and is mapped as it is now" in report[0]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages were written")
def test_a_large_map_of_a_file_that_is_only_read_is_unchanged(tmp_path: Any):
    """Also where it could be written to."""
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, check=True).stdout == b"tmpfs\n":
        pytest.skip("run with --basetemp=FOLDER on a disk: here it is in memory, whose files are never stored")
    with open(tmp_path / "a.dat", "wb") as file:
        file.truncate(LARGE_MAP)
        file.flush()
        os.fsync(file.fileno())
    a = np.memmap(tmp_path / "a.dat", "u1", "r+")
    packer = Packer({})
    first = packer.pack({"a": a}).stream
    assert a[7] == a[-1] == 0
    report: list[str] = []

    packer.unpack(first, report=report)

    assert bytes(packer.pack({"a": a}).stream) == bytes(first)
    assert not report


def test_an_array_that_looks_beyond_its_memory_is_not_stored():
    """What an array sees outside of its owner is not the user's."""
    owner = np.arange(10.0)
    beyond = np.lib.stride_tricks.as_strided(owner, (10_000,), (8,))

    packed = Packer({}).pack({"beyond": beyond, "x": 1})

    assert "beyond" in packed.faults
    assert set(packed.faults) == {"beyond"}


def test_a_frame_is_not_copied_and_not_regrouped():
    """Half a gigabyte takes no longer than its columns are many."""
    frame = pd.DataFrame({"a": np.zeros(2_000_000), "b": np.zeros(2_000_000)})
    frame["c"] = np.arange(2_000_000)
    packer = Packer({})

    packed = packer.pack({"frame": frame, "shallow": frame[:], "column": frame["c"]})

    assert sum(one.nbytes for one in packed.buffers) == 48_000_000
    assert len(packed.stream) < 8000
    owners = [block.values for block in frame._mgr.blocks]
    assert all(any(np.shares_memory(np.frombuffer(one, "u1"), own) for own in owners) for one in packed.buffers)


def test_what_is_no_pack_is_refused():
    """Bytes of another kind raise ValueError before anything of them is read."""
    for data in (b"", b"x" * 100, pickle.dumps([1])):
        with pytest.raises(ValueError, match="pack"):
            Packer({}).unpack(data)


def test_an_object_without_weak_references_is_held_until_only_the_table_has_it():
    names = Named()
    variable = contextvars.ContextVar("some")
    names.hold("v", variable)
    names.release()
    assert names.object("v") is variable
    assert names.get(variable) == "v"
    del variable
    names.release()
    assert names.object("v") is None
    assert "v" not in names.names
    assert names.held == {}


def test_an_object_that_took_the_place_of_a_held_one_stays_when_held_ones_are_released():
    names = Named()
    first, second = contextvars.ContextVar("first"), contextvars.ContextVar("second")
    names.hold("v", first)
    names.hold("v", second)
    del first
    names.release()
    assert names.object("v") is second
    assert names.get(second) == "v"


def test_a_forgotten_object_is_not_held():
    names = Named()
    names.hold("v", contextvars.ContextVar("some"))
    names.forget("v")
    names.release()
    assert names.object("v") is None
    assert names.held == {}
