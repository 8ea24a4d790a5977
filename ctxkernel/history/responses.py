"""Which blocks of a model's response may be sent back as they came."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

ResponseBlock = Mapping[str, Any]
_PROOFS = {"thinking": "signature", "redacted_thinking": "data", "tool_use": "id"}
"""Type of a block → its key that the server made, whose value is no text."""


def as_it_came(block: ResponseBlock, mask: Callable[[str], str]) -> str:
    """Return the JSON of a block that may be sent back as it came; empty if it may not.

    It may if the API accepts it, and `mask` finds no secret in it.
    """
    match block.get("type"):
        case "text":
            needed = bool(str(block.get("text") or "").strip())
        case "thinking":
            needed = isinstance(block.get("thinking"), str) and bool(block.get("signature"))
        case "redacted_thinking":
            needed = bool(block.get("data"))
        case "tool_use":
            needed = isinstance(block.get("input"), Mapping)
        case kind:
            needed = isinstance(kind, str) and kind not in ("tool_result", "image")
    if not needed:
        return ""
    proof = _PROOFS.get(str(block.get("type")))
    texts = _texts({key: value for key, value in block.items() if key != proof})
    return block_json(block) if all(mask(text) == text for text in texts) else ""


def block_json(block: ResponseBlock) -> str:
    """Return the JSON of a block, its type first (`receipt.marks` looks for it); empty if it has none."""
    try:
        text = dump({"type": block.get("type"), **block})
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return ""
    return text


dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
"""Returns the JSON of a value as a request has it. Raises TypeError, ValueError, RecursionError."""


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value; a text with a name as `name=text`, since the name may say that it is a secret."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            for key, item in cast("ResponseBlock", value).items():
                left += [key, f"{key}={item}" if isinstance(item, str) else item]
        elif isinstance(value, Sequence):
            left += cast("Sequence[Any]", value)
