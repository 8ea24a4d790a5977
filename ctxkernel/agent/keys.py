"""The key for the model: read from the environment or the keyring, and never shown.

Rule 1: a key is read when it is needed, and neither stored nor written.
Rule 2: its repr does not contain it, so that a traceback with variables does not either.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
"""Environment variables with a key, in this order. Both are sent as `Authorization: Bearer`."""
SERVICE, USER = "ctxkernel", "anthropic"
"""Name of the key in the system's keyring."""
MASKED = "[masked: key]"


class ApiKey(str):
    """A key, whose repr is masked."""

    __slots__ = ()

    def __repr__(self) -> str:
        return MASKED

    def scrub(self, text: str) -> str:
        """Return `text` without the key."""
        return text.replace(str(self), MASKED) if self else text


def model_key(environ: Mapping[str, str]) -> ApiKey | None:
    """Return the key of the environment, else that of the keyring if `keyring` is installed, else None."""
    for name in VARIABLES:
        value = environ.get(name, "").strip()
        if value:
            return ApiKey(value)
    try:
        stored = importlib.import_module("keyring").get_password(SERVICE, USER)
    except Exception:  # not installed, locked, or without a backend: there is no key
        return None
    return ApiKey(stored.strip()) if isinstance(stored, str) and stored.strip() else None
