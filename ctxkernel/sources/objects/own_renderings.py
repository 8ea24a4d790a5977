"""Objects of the user's classes that say themselves what is shown of them.

    class Sensor:
        def __ctx_render__(self, level, tokens):
            return f"{self.place}: {self.degrees} °C"

    trust_repr(Reading)        # `repr(reading)` is good to read

Rule 1: code of a class runs only where the class has `__ctx_render__`, or was named to `trust_repr`; and then only to
        render: whether the object changed is found from its attributes, as of any other.
Rule 2: it runs in a thread of its own for at most `SECONDS`, then it is stopped. Its attributes are shown instead, and
        why, also if it raises or returns no text. It is asked again when the attributes have changed.
"""

from __future__ import annotations

import contextvars
import ctypes
import re
import threading
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.reflection import class_dict, class_mro, class_of, is_kind, type_name
from ctxkernel.core.text import one_line
from ctxkernel.sources.base.amounts import moved
from ctxkernel.sources.base.fitting import NO_CAP
from ctxkernel.sources.base.rendering import Draft, Names, Place, fit_lines, parse_place, titled, with_remark
from ctxkernel.sources.files.text_documents import lines_document
from ctxkernel.sources.files.text_levels import render_document
from ctxkernel.sources.objects.objects import ObjectSource

SECONDS = 1.0
"""So long the code of a class may take for one rendering."""
HOOK = "__ctx_render__"
_MOST_LINES = 5_000
_MOST_CHARS = 1 << 20
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_trusted: list[type] = []


class _TooLongError(BaseException):
    """Raised within code that took too long. No `except Exception` in it catches this."""


class CallFailed(Exception):
    """The exception that the code of a class raised, in words."""


def trust_repr(*classes: type) -> None:
    """Let views show objects of these classes, and of their subclasses, by their `__repr__`.

    Raises TypeError for what is no class. It holds for the process; call it in the notebook's first cell.
    """
    for cls in classes:
        if not is_kind(class_of(cls), type):
            raise TypeError(f"trust_repr takes classes: {one_line(repr(cls), 80)} is a {type_name(class_of(cls))}")
    _trusted.extend(cls for cls in classes if not any(cls is known for known in _trusted))


def is_shown_by_itself(target: Any) -> bool:
    """Return whether the class of `target` opted in."""
    cls = class_of(target)
    return _hook(cls) is not None or any(is_kind(cls, known) for known in _trusted)


def _hook(cls: type) -> Callable[..., Any] | None:
    found = next((class_dict(base)[HOOK] for base in class_mro(cls) if HOOK in class_dict(base)), None)
    return found if class_of(found) is types.FunctionType else None


def call_within(call: Callable[[], Any], seconds: float) -> Any:
    """Return `call()`, which runs in a thread. Raises CallFailed where it raises, TimeoutError where it took too long.

    Python code is stopped then; a call into C that does not return stays behind as a thread that waits.
    """
    found: list[Any] = []
    failed: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            found.append(context.run(call))
        except BaseException as fault:  # a SystemExit in it must not end a thread without a word
            failed.append(fault)

    thread = threading.Thread(target=run, name="ctxkernel rendering", daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:
        if thread.is_alive() and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_TooLongError))
    if failed and not isinstance(failed[0], _TooLongError):
        raise CallFailed(f"{type_name(class_of(failed[0]))}: {failed[0]}") from failed[0]
    if not found:
        raise TimeoutError(f"no answer in {seconds:g} s")
    return found[0]


class OwnSource(ObjectSource):
    """A view of an object by what its class says of it. 3: what changed in its attributes."""

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._failed: tuple[str, str] | None = None

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the object as it is now."""
        draft = super().draft(request, place, budget)
        if request.lod == 3:
            return draft
        lines, why = self._asked(request.lod, None if budget >= NO_CAP else budget)
        if why:
            return with_remark(super().draft(request, place, max(1, budget - 40)), f"[{why}; its attributes:]")
        head = titled(self.label, self.target)
        if request.lod == 0:
            made = render_document(lines_document(head, lines), request, place, budget)
        else:
            made = fit_lines([head], lines, budget, "lines")
        return replace(made, fingerprint=draft.fingerprint, basis=draft.basis)

    def names(self) -> Names:
        """Return no names: what a line of such a text is about is not known. Lines and patterns are positions."""
        return Names()

    def length(self) -> int:
        """Return the number of lines of level 0."""
        lines, why = self._asked(0, None)
        return super().length() if why else len(lines)

    def last_parts(self, most: int) -> list[str]:
        """Return the last lines of level 0."""
        lines, why = self._asked(0, None)
        return super().last_parts(most) if why else lines[-most:]

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`. Never raises."""
        lines, why = self._asked(0, None)
        at = parse_place(place)
        if why or at is None or not lines:
            return super().further(place, tokens, lod)
        return str(moved(lines, at.line, tokens))

    def find(self, pos: str) -> Place | None:
        """Return the line of a pattern in the text of level 0."""
        lines, why = self._asked(0, None)
        return super().find(pos) if why else lines_document(self.label, lines).find(pos)

    def _asked(self, level: int, tokens: int | None) -> tuple[list[str], str]:
        """Return the lines that the class gives, or why there are none."""
        stamp = self.stamp()
        if self._failed is not None and self._failed[0] == stamp:
            return [], self._failed[1]
        hook, target = _hook(class_of(self.target)), self.target
        what = HOOK if hook is not None else "__repr__"
        try:
            found = call_within(lambda: repr(target) if hook is None else hook(target, level, tokens), SECONDS)
            lines = _lines_of(found)
        except (CallFailed, TimeoutError, TypeError) as fault:
            self._failed = stamp, f"{what}: {one_line(str(fault), 120)}"
            return [], self._failed[1]
        return lines, ""


def _lines_of(found: Any) -> list[str]:
    """Return the lines of what a class gave: a text, or some texts. Raises TypeError for anything else."""
    if class_of(found) in (list, tuple) and all(isinstance(one, str) for one in found):
        found = "\n".join(found[:_MOST_LINES])
    if not isinstance(found, str):
        raise TypeError(f"it returned a value of type {type_name(class_of(found))}, expected a text or a list of texts")
    lines = _ADDRESS.sub("", found[:_MOST_CHARS]).split("\n")
    cut = [f"[… the rest of {len(found):,} characters is not shown]"] if len(found) > _MOST_CHARS else []
    return lines[:_MOST_LINES] + cut
