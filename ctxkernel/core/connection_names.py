"""The environment variables that decide where a request to a model goes, and with which key.

Rule 1: only a person changes them: they are no part of a state, and a cell of a model cannot set them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

_NAME = re.compile(r"(?:ANTHROPIC|CTXKERNEL)_\w+|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)", re.IGNORECASE)


def is_connection_name(name: str) -> bool:
    """Return whether an environment variable decides where requests to models go, or under which rules."""
    return _NAME.fullmatch(name) is not None


def connection_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return these variables with their values."""
    return {name: text for name, text in environ.items() if is_connection_name(name)}


def restore_connections(environ: MutableMapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Give these variables the values of `before`. Return the names of those that had another one."""
    now = connection_variables(environ)
    changed = sorted(name for name in {*now, *before} if now.get(name) != before.get(name))
    for name in changed:
        if name in before:
            environ[name] = before[name]
        else:
            del environ[name]
    return changed
