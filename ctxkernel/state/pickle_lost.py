"""What stands where something was that could not be stored."""

from __future__ import annotations

from typing import Any, NoReturn


class Lost:
    """A stand-in. Says what it stands for; every use of it raises RuntimeError with the next move.

    Names with a leading underscore are simply missing, so that displays, copies and `hasattr` go by it.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        object.__setattr__(self, "_what", what)

    def __repr__(self) -> str:
        return f"<lost: {object.__getattribute__(self, '_what')}>"

    def __reduce__(self) -> tuple[type[Lost], tuple[str]]:
        return Lost, (object.__getattribute__(self, "_what"),)

    def _raise(self, *_: Any, **__: Any) -> NoReturn:
        what = object.__getattribute__(self, "_what")
        raise RuntimeError(f"this is only a stand-in for {what}; run the cell that made it again")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._raise()

    __setattr__ = __call__ = __iter__ = __next__ = __len__ = __getitem__ = __setitem__ = __contains__ = _raise
    __enter__ = __bool__ = __add__ = __sub__ = __mul__ = __truediv__ = __lt__ = __le__ = __gt__ = __ge__ = _raise
