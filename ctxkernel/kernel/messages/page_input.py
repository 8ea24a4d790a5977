"""Checks of the messages of a page.

Rule 1: a page is untrusted: a message can be any JSON, of any size and depth.
"""

from __future__ import annotations

from typing import cast

from ctxkernel.core.errors import BadCommand

Field = str | int | bool | None
MOST_TEXT = 1000
"""Most characters of a text in a message."""
MOST_NUMBER = 10**9
_MOST_FIELDS = 20
_MOST_NAMES = 50


def short_fields(value: object, what: str) -> dict[str, Field]:
    """Return the fields of a message. Raises BadCommand for anything but an object of a few short texts and numbers."""
    found = cast("dict[object, object]", value) if isinstance(value, dict) else None
    if found is None or len(found) > _MOST_FIELDS:
        raise BadCommand(f"{what} is no object of at most {_MOST_FIELDS} fields")
    for name, one in found.items():
        if not is_short(name) or not is_short(one):
            raise BadCommand(
                f"{what}: the field {ascii(name)[:40] if is_short(name) else ''} is no short text or number"
            )
    return {str(name): cast("Field", one) for name, one in found.items()}


def is_short(value: object) -> bool:
    """Return whether a value is null, a boolean, a whole number or a text, each within its bound."""
    if type(value) is str:
        return len(value) <= MOST_TEXT
    return value is None or type(value) is bool or (type(value) is int and abs(value) <= MOST_NUMBER)


def short_text(value: object) -> str | None:
    """Return a text within its bound; None for anything else."""
    return value if type(value) is str and len(value) <= MOST_TEXT else None


def request_fields(value: object, what: str) -> dict[str, Field | list[str]]:
    """Return the fields of a request: `names` is a list of short texts. Raises BadCommand for anything else."""
    found = cast("dict[object, object]", value) if isinstance(value, dict) else None
    if found is None or "names" not in found:
        return {**short_fields(cast("object", value), what)}
    names = found["names"]
    texts = cast("list[object]", names) if isinstance(names, list) else []
    if not texts or len(texts) > _MOST_NAMES or any(short_text(one) is None for one in texts):
        raise BadCommand(f"{what}: names is no list of 1 to {_MOST_NAMES} short texts")
    rest = {name: one for name, one in found.items() if name != "names"}
    return {**short_fields(rest, what), "names": [str(one) for one in texts]}
