"""The key for the model: where it is looked for, and that it is shown nowhere.

Rule 1: a key is read when it is needed, and neither stored nor written by us.
Rule 2: its repr does not have it, so that no traceback that shows variables does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
"""Where a key is looked for, in this order. Both are sent alike, as `Authorization: Bearer`."""
SERVICE, USER = "ctxkernel", "anthropic"
"""The key's name in the system's keyring."""
MASKED = "[masked: key]"


class Key(str):
    """A key: the text itself, which its repr does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return MASKED

    def scrub(self, text: str) -> str:
        """Return `text` without the key."""
        return text.replace(str(self), MASKED) if self else text


def model_key(environ: Mapping[str, str]) -> Key | None:
    """Return the key of the environment, else that of the keyring where `keyring` is installed, else None."""
    for name in VARIABLES:
        value = environ.get(name, "").strip()
        if value:
            return Key(value)
    try:
        stored = importlib.import_module("keyring").get_password(SERVICE, USER)
    except Exception:  # not installed, locked, or without a backend: there is no key
        return None
    return Key(stored.strip()) if isinstance(stored, str) and stored.strip() else None
