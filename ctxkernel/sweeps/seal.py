"""Messages signed with the key of a sweep: JSON, its HMAC-SHA256 before it.

Rule: a message without a valid signature is not parsed. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, cast

from ctxkernel.core.errors import CtxError

_BYTES = 32


class Unsealed(CtxError):
    """A message without a valid signature."""


def seal(key: bytes, purpose: str, message: Any) -> bytes:
    """Return a message for one purpose (`task <key>`, `result <key>`), signed."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=True).encode("utf-8", "surrogatepass")
    return _signature(key, purpose, body) + body


def unseal(key: bytes, purpose: str, sealed: bytes) -> dict[str, Any]:
    """Return the message. Raises Unsealed if it was not signed with this key for this purpose."""
    signature, body = sealed[:_BYTES], sealed[_BYTES:]
    if not hmac.compare_digest(signature, _signature(key, purpose, body)):
        raise Unsealed(f"a message of the sweep ({purpose}) has no valid signature: it is not used")
    found: Any = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(found, dict):
        raise Unsealed(f"a message of the sweep ({purpose}) is no object")
    return cast("dict[str, Any]", found)


def _signature(key: bytes, purpose: str, body: bytes) -> bytes:
    return hmac.digest(key, purpose.encode() + b"\0" + body, hashlib.sha256)
