"""The sources of settings: defaults < the user's ctxkernel.toml < the one beside the notebook < CTXKERNEL_*.

Rule 1: The content of a file or a variable never raises: an unusable setting is a notice, and the others apply.
Rule 2: A notice names the place, the key and the allowed values; it never repeats a value, which may be a secret.
Rule 3: A file beside a notebook may be a stranger's: it cannot set settings that concern other notebooks.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import platformdirs

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.settings import DEFAULTS, SPECS, Settings, Value, allowed, checked, from_text

FILE = "ctxkernel.toml"
TABLE = "context"
"""A table of the file whose keys are settings too (seed 003 §5)."""
PREFIX = "CTXKERNEL_"
PLACES = frozenset(("SESSION", "TURNS", "HOME", "CACHE", "FORK", "CHROMIUM", "DEBUG"))
"""Variables for paths and for the work of a process, which are no settings."""
_MOST_BYTES = 1024 * 1024
_SECRET = re.compile(r"(?i)secret|passw|passphrase|credential|(api|access|private)[_-]?key|(api|auth|access)[_-]?token")


@dataclass(slots=True)
class Configured:
    """The settings at the start of a kernel."""

    settings: Settings = field(default_factory=Settings)
    origins: dict[str, str] = field(default_factory=dict[str, str])
    """Setting → the source of its value, without settings at their default."""
    notices: list[str] = field(default_factory=list[str])


def user_file() -> Path:
    """Return the user's own file. It need not exist."""
    return platformdirs.user_config_path("ctxkernel", appauthor=False) / FILE


def read(env: Mapping[str, str], folder: Path | None = None) -> Configured:
    """Return the settings of a kernel whose notebook is in `folder`; None if there is no notebook."""
    found = Configured()
    values: dict[str, Value] = {}
    own = user_file()
    for path in dict.fromkeys((own, own if folder is None else folder / FILE)):
        for name, value in _of_file(path, found.notices, personal=path == own).items():
            values[name], found.origins[name] = value, str(path)
    for variable, text in sorted(env.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in PLACES or not text.strip():
            continue
        name = name.lower()
        try:
            _known(name)
            values[name], found.origins[name] = from_text(name, text), variable
        except BadPolicy as fault:
            found.notices.append(f"{variable} is not used: {fault}")
    found.settings = Settings(**cast("dict[str, Any]", values))
    return found


def _of_file(path: Path, notices: list[str], *, personal: bool) -> dict[str, Value]:
    """Return the settings of a file, and add notices about its other content."""
    try:
        if not path.is_file():  # reading a pipe would block
            return {}
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError("it is larger than 1 MiB")
        said = tomllib.loads(raw.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as fault:
        why = os.strerror(fault.errno) if isinstance(fault, OSError) and fault.errno else f"{fault}"[:200]
        notices.append(f"{path} is not used: {why}")
        return {}
    table = said.pop(TABLE, {})
    if isinstance(table, dict):
        said |= cast("dict[str, object]", table)
    else:
        notices.append(f"{path}: {TABLE} is a table of settings, [{TABLE}]")
    values: dict[str, Value] = {}
    for name, value in said.items():
        try:
            _known(name)
            if SPECS[name].personal and not personal:
                raise BadPolicy(f"it concerns all your notebooks; set it in {user_file()}")
            values[name] = checked(name, value)
        except BadPolicy as fault:
            notices.append(f"{path}: {name[:60]!r} is not used: {fault}")
    return values


def _known(name: str) -> None:
    if name in SPECS:
        return
    if _SECRET.search(name):
        raise BadPolicy("a secret is no setting; take it out")
    near = difflib.get_close_matches(name, list(DEFAULTS), 1)
    means = f"did you mean {near[0]} ({allowed(near[0])})? " if near else ""
    raise BadPolicy(f"there is no such setting; {means}%ctx config lists what there is")
