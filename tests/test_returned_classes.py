"""A class of the user's comes back whole, or the return names the variables that hold it."""

from __future__ import annotations

import sys
import textwrap

import pytest
from told import named_by

MAPPED = """
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
class Base(DeclarativeBase): pass
class User(Base):
    __tablename__ = 'users'
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
"""


def run_all(kernel, *cells: str) -> str:
    told = ""
    for cell in cells:
        ran = kernel.run(textwrap.dedent(cell).strip("\n"))
        assert ran.status == "ok", ran.outputs
        told = ran.stdout
    return told


def test_a_class_that_its_library_does_not_store_whole_is_named_by_each_return(start_kernel):
    """In a new kernel, SQLAlchemy's columns of a mapped class are not there: no return keeps silent about that."""
    kernel = start_kernel()
    run_all(kernel, MAPPED, "x = 1")
    kernel.stop()
    kernel = start_kernel()

    for command in ("%ctx resume", "%ctx goto 1"):
        assert "User" in named_by(run_all(kernel, command), ("User",)), command


def test_a_class_that_its_library_does_not_store_whole_is_the_same_class_after_a_return(kernel):
    """The mapping of the class works on as before."""
    query = "print(sa.select(User.id).where(User.id == 1), User(id=1).id)"
    shown = run_all(kernel, "import sys", MAPPED, "first = id(User)", "x = 1", query)
    assert "WHERE users.id = :id_1" in shown

    for moves in (("%ctx goto 1", "%ctx undo"), ("%ctx goto 3",)):
        run_all(kernel, *moves)
        assert kernel.evaluate("id(User) == first") == "True"
        assert run_all(kernel, query) == shown


def test_a_base_of_a_library_with_a_hook_for_subclasses_does_not_run_it_again(start_kernel, tmp_path):
    """A class whose base in a library has a layout of its own is made without `__init_subclass__`."""
    (tmp_path / "registry_library.py").write_text(
        "class Open:\n    __slots__ = ()\n"
        "class Registered(Open):\n    made = []\n"
        "    def __init_subclass__(cls): Registered.made.append(cls.tag.upper())\n"
    )
    kernel = start_kernel()
    run_all(kernel, "from registry_library import Registered\nclass One(Registered):\n    tag = 'one'", "x = 1")
    kernel.stop()
    kernel = start_kernel()

    run_all(kernel, "%ctx resume")

    assert kernel.evaluate("(One.tag, One.__bases__ == (Registered,), Registered.made)") == "('one', True, ['ONE'])"


def test_a_method_in_a_table_of_its_class_is_the_method_after_a_return(start_kernel):
    """A return that gives a class its former content keeps each method one object, wherever the class holds it."""
    kernel = start_kernel()
    run_all(
        kernel,
        """
        import functools
        class Editor:
            count = 0
            def open(self): return 1
            table = {'open': open}
            @functools.singledispatchmethod
            def show(self, value): return 'object'
            @show.register
            def show_number(self, value: int): return 'number'
        """,
        "first = 1",
        "Editor.count = 5\n@Editor.show.register(list)\ndef show_list(self, value): return 'list'",
    )

    run_all(kernel, "%ctx goto 2")

    assert kernel.evaluate("Editor.open is Editor.table['open']") == "True"
    assert kernel.evaluate("Editor.show_number is vars(Editor)['show'].dispatcher.registry[int]") == "True"
    assert kernel.evaluate("(Editor().show([1]), Editor().show(1), Editor.count)") == "('object', 'number', 0)"


def test_a_bound_method_that_is_kept_equals_that_of_its_class_after_a_return(start_kernel):
    """A callback can be removed by its method after a return that changes the class, also a decorated method."""
    kernel = start_kernel()
    run_all(
        kernel,
        """
        import functools
        log = []
        def counted(method):
            calls = []
            @functools.wraps(method)
            def run(self):
                calls.append(method.__name__)
                return len(calls)
            return run
        class Sensor:
            def __init__(self): super().__init__()
            def read(self): return super().__repr__()
            @counted
            def reset(self): pass
        class Monitor(Sensor):
            events = log
            def on_value(self): return 1
        """,
        "monitor = Monitor(); sensor = Sensor(); callbacks = [monitor.on_value, sensor.read, sensor.reset]",
        "log.append(1); Sensor.extra = 1; sensor.reset(); sensor.reset()",
    )

    run_all(kernel, "%ctx goto 2")

    assert kernel.evaluate("callbacks == [monitor.on_value, sensor.read, sensor.reset]") == "True"
    assert kernel.evaluate("(log, callbacks[2](), sensor.reset())") == "([], 1, 2)"


def test_a_function_that_replaced_a_method_stays_itself_after_a_return(start_kernel):
    """The method comes back, and a variable that holds the replacement still holds the replacement."""
    kernel = start_kernel()
    run_all(
        kernel,
        "class Sensor:\n    def read(self): return 'own'\ndef patched(self): return 'patched'",
        "sensor = Sensor()",
        "Sensor.read = patched",
    )

    run_all(kernel, "%ctx goto 2")

    assert kernel.evaluate("(sensor.read(), patched(sensor))") == "('own', 'patched')"


@pytest.mark.parametrize("new_kernel", [False, True])
def test_the_function_of_a_class_method_is_that_of_its_class_after_a_return(start_kernel, tmp_path, new_kernel):
    """No name leads to it: Python gives a bound method for the name. Such a function is found through its class."""
    (tmp_path / "own_makers.py").write_text("class Base:\n    @classmethod\n    def make(cls): return cls()\n")
    kernel = start_kernel()
    run_all(
        kernel,
        """
        import fractions, own_makers
        class Made(own_makers.Base):
            count = 0
        Made.again = Made.make
        functions = [own_makers.Base.make.__func__, fractions.Fraction.from_float.__func__]
        """,
        "first = 1",
        "Made.count = 1; functions.append(1)",
    )
    if new_kernel:
        kernel.stop()
        kernel = start_kernel()
        run_all(kernel, "%ctx resume")

    run_all(kernel, "%ctx goto 2")

    assert kernel.evaluate("(Made.again == Made.make, type(Made.again()) is Made)") == "(True, True)"
    found = "[own_makers.Base.make.__func__, fractions.Fraction.from_float.__func__]"
    assert kernel.evaluate(f"functions == {found}") == "True"


def test_a_class_whose_instance_holds_an_alias_of_it_comes_into_a_new_kernel(start_kernel):
    """`Box[int](3)` keeps `Box[int]`, whose class says how it is stored: the class is compared with a copy of it."""
    kernel = start_kernel()
    run_all(
        kernel,
        """
        import typing
        T = typing.TypeVar('T')
        class Box(typing.Generic[T]):
            def __init__(self, value: T): self.value = value
        """,
        "box = Box[int](3)",
    )
    kernel.stop()
    kernel = start_kernel()

    told = run_all(kernel, "%ctx resume")

    assert not named_by(told, ("Box", "box", "T"))
    assert kernel.evaluate("(box.value, type(box) is Box, box.__orig_class__ == Box[int])") == "(3, True, True)"


def test_what_a_cell_added_to_an_own_class_is_gone_before_that_cell_in_a_new_kernel(start_kernel, tmp_path):
    """A new kernel learns what the file of a module defines before it puts back what cells changed."""
    (tmp_path / "own_models.py").write_text("class Model:\n    def fit(self): return 1\n")
    kernel = start_kernel()
    run_all(kernel, "import own_models", "own_models.Model.fit_before = own_models.Model.fit")
    kernel.stop()
    kernel = start_kernel()
    run_all(kernel, "%ctx resume")
    assert kernel.evaluate("own_models.Model().fit_before()") == "1"

    run_all(kernel, "%ctx goto 1")

    assert kernel.evaluate("hasattr(own_models.Model, 'fit_before')") == "False"


def test_a_function_that_wraps_a_method_still_wraps_that_of_the_class_after_a_return(start_kernel):
    """A return that gives a class its former content knows a method also where a variable of the same pack holds it."""
    kernel = start_kernel()
    run_all(
        kernel,
        """
        import functools
        class Model:
            hooks = []
            def fit(self): return 1
        class Scaled(Model):
            hooks = Model.hooks
        """,
        """
        table = {'fit': Model.fit, 'hooks': Model.hooks}
        @functools.wraps(Model.fit)
        def timed(self): return table['fit'](self)
        """,
        "Model.hooks.append(1); Model.__doc__ = 'later'",
    )

    run_all(kernel, "%ctx goto 2")

    assert kernel.evaluate("timed.__wrapped__ is Model.fit and table['fit'] is Model.fit") == "True"
    assert kernel.evaluate("(table['hooks'] is Scaled.hooks, Model.hooks, Model.__doc__)") == "(True, [], None)"


def test_a_dataclass_that_was_removed_and_in_a_new_kernel_keeps_the_methods_that_were_written_for_it(start_kernel):
    """Its `__repr__` has the globals of `dataclasses` and the module of the class, whose pack must hold it."""
    kernel = start_kernel()
    run_all(kernel, "import dataclasses, functools, reprlib")
    run_all(
        kernel,
        """
        def logged(f):
            return functools.update_wrapper(reprlib.recursive_repr()(f), f)

        @dataclasses.dataclass(order=True)
        class Place:
            at: int

            @logged
            def text(self):
                return f"at {self.at}"

        place, text = Place(1), Place.text
        """,
    )
    shown = "(repr(place), place.text(), text is Place.text, place < Place(2))"
    expected = "('Place(at=1)', 'at 1', True, True)"
    assert kernel.evaluate(shown) == expected

    run_all(kernel, "%ctx goto 1", "%ctx undo")
    assert kernel.evaluate(shown) == expected
    kernel.stop()
    kernel = start_kernel()
    run_all(kernel, "%ctx resume")
    assert kernel.evaluate(shown) == expected


def test_a_static_method_or_property_taken_out_of_a_class_is_that_of_the_class_after_a_return(kernel):
    """The class is kept by a return that loads the variable: a copy would be another object than that of the class."""
    run_all(
        kernel,
        """
        class Shape:
            @staticmethod
            def half(value): return value / 2
            @classmethod
            def make(cls): return cls()
            @property
            def sides(self): return 4
        half = Shape.half
        """,
    )
    run_all(kernel, "held = [vars(Shape)[name] for name in ('half', 'make', 'sides')]")
    run_all(kernel, "Shape.half = staticmethod(lambda value: 0); del Shape.sides")
    same = "[held[0] is vars(Shape)['half'], held[1] is vars(Shape)['make'], held[2] is vars(Shape).get('sides')]"

    for at, expected in ((1, None), (2, True), (3, False), (2, True), (1, None), (3, False), (2, True)):
        run_all(kernel, f"%ctx goto {at}")
        if expected is not None:
            assert kernel.evaluate(same) == str([expected, True, expected]), at
            assert kernel.evaluate("(held[0].__func__(2), held[0].__func__ is half)") == "(1.0, True)"


def test_a_method_with_a_cache_stays_that_of_its_class_where_a_return_changes_the_class(kernel):
    """A bound method holds the function with the cache: another one in the class would have another cache."""
    run_all(
        kernel,
        """
        import functools
        class Shape:
            @classmethod
            @functools.lru_cache
            def made(cls, sides): return [cls, sides]
            @functools.lru_cache(maxsize=3)
            def area(self, scale): return [scale]
        shape, made, area = Shape(), Shape.made, Shape.area
        """,
    )
    run_all(kernel, "Shape.size = 1; kept = Shape().area")
    run_all(kernel, "Shape.size = 2")
    run_all(kernel, "class Shape: pass")
    same = "(made(3) is type(shape).made(3), area is type(shape).area, kept.__func__ is area, area(shape, 2))"

    for at in (4, 2, 3, 4, 2):
        run_all(kernel, f"%ctx goto {at}")
        assert kernel.evaluate(same) == "(True, True, True, [2])", at


def test_a_class_whose_list_holds_an_instance_of_its_subclass_comes_into_a_new_kernel(start_kernel):
    """The subclass has a pack of its own, and needs its base while the instance is loaded."""
    kernel = start_kernel()
    run_all(
        kernel,
        """
        class Shape:
            parts = []
            def __init__(self, side): self.side = side; self.parts.append(side)
        class Square(Shape): pass
        """,
        "a = [1]",
        "b = Square(a)",
        "Shape.all = [b]",
    )
    kernel.stop()
    kernel = start_kernel()

    told = run_all(kernel, "%ctx resume")

    assert "not restored" not in told
    same = "(b.side is a, Shape.parts[0] is a, type(b) is Square, Square.__bases__ == (Shape,), Shape.all[0] is b)"
    assert kernel.evaluate(same) == "(True, True, True, True, True)"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="run with Python 3.12 or later, which has the statement `type`")
def test_a_type_alias_that_refers_to_itself_or_to_a_later_name_comes_back_and_is_computed_only_by_cells(start_kernel):
    """The value of a `type` statement is computed when a cell asks for it, as without ctxkernel."""
    kernel = start_kernel()
    run_all(
        kernel,
        "type Tree[T] = T | list[Tree[T]]\ntype Early = Later\ntype Known = int",
        "Later = list\nold = Early.__value__",
        "class Node:\n    type Own = list[Node | T]\n    T = str",
        "type Known = str\nLater = None",
        "x = 1",
    )
    kernel.evaluate("(Tree.__value__, Known.__value__)")
    assert "outside a cell" not in kernel.run("%ctx timeline").data[0]["text/plain"]
    state = "(Tree.__value__.__args__[1].__args__[0].__origin__ is Tree, Tree.__parameters__ == Tree.__type_params__"
    state += ", Early.__value__, Node.Own.__value__ == list[Node | str], Known.__value__, Tree.__module__, Tree)"
    shown = "(True, True, <class 'list'>, True, <class '{}'>, '__main__', Tree)"
    for new_kernel in (False, True):
        if new_kernel:
            kernel.stop()
            kernel = start_kernel()
            told = run_all(kernel, "%ctx resume")
            assert not named_by(told, ("Tree", "Early", "Known", "Node"))
        told = run_all(kernel, "%ctx goto 3")
        assert not named_by(told, ("Tree", "Early", "Known", "Node"))
        assert kernel.evaluate(state) == shown.format("int")
        assert not named_by(run_all(kernel, "%ctx goto 5"), ("Tree", "Early", "Known", "Node"))
        assert kernel.evaluate("Known.__value__") == "<class 'str'>"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="run with Python 3.12 or later, which has the syntax")
def test_a_type_parameter_whose_bound_is_its_class_or_a_later_name_comes_back_in_a_new_kernel(start_kernel):
    """The bound of `[T: bound]` is computed when a cell asks for it: it may be the class, a text or a later name."""
    kernel = start_kernel()
    run_all(
        kernel,
        "class Node[T: Node]: pass\nnode = Node()",
        "class Text[T: 'Text']: pass\ndef early[T: Later](x: T) -> T: return x",
        "class Some[T: (int, str), U: int]: pass\ntype Rows[T: Rows] = list[T]",
        "Later = int",
    )
    kernel.stop()
    kernel = start_kernel()

    told = run_all(kernel, "%ctx resume")

    assert not named_by(told, ("Node", "node", "Text", "early", "Some", "Rows"))
    assert "made again" not in told
    bounds = "[one.__type_params__[0].__bound__ for one in (Node, Text, early, Some, Rows)]"
    assert kernel.evaluate(f"{bounds} == [Node, 'Text', int, None, Rows]") == "True"
    assert kernel.evaluate("(Some.__type_params__[0].__constraints__, Some.__type_params__[1].__bound__)") == (
        "((<class 'int'>, <class 'str'>), <class 'int'>)"
    )
    assert kernel.evaluate("(early.__annotations__['x'] is early.__type_params__[0], type(node) is Node)") == (
        "(True, True)"
    )
