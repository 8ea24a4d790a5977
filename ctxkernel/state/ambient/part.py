"""What a part of the ambient state is."""

from __future__ import annotations

from typing import Any, ClassVar


class Part:
    """One part of the ambient state. Subclass it, and `register` an instance.

    Holds: `capture` returns a plain value (text, numbers, lists, dicts), a new one where something changed;
    `restore(capture())` changes nothing.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    """What it holds, in one line, for people."""
    needs: ClassVar[str] = ""
    """The module that must be loaded for it to mean anything; empty for none."""

    def capture(self) -> Any:
        """Return the value as it is now."""
        raise NotImplementedError

    def restore(self, value: Any) -> None:
        """Put a value back that `capture` returned, maybe in another process. Raises whatever stands in the way."""
        raise NotImplementedError

    def stamp(self) -> object:
        """Return something cheap that is equal as long as nothing changed; the value itself where that is cheap."""
        return self.capture()

    def default(self) -> Any:
        """Return the value of a library that was just loaded, None where that is not known."""
        return None
