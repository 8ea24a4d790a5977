"""A class of the user's comes back whole, or the return names the variables that hold it."""

from __future__ import annotations

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
    pytest.importorskip("sqlalchemy")
    kernel = start_kernel()
    run_all(kernel, MAPPED, "x = 1")
    kernel.stop()
    kernel = start_kernel()

    for command in ("%ctx resume", "%ctx goto 1"):
        assert "User" in named_by(run_all(kernel, command), ("User",)), command


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
