"""The sources of settings: defaults < the user's ctxkernel.toml < the one beside the notebook < CTXKERNEL_*.

Rule 1: The content of a file or a variable never raises: an unusable setting is a notice, and the others apply.
Rule 2: A notice names the place, the key and the allowed values; it never repeats a value, which may be a secret.
Rule 3: A file beside a notebook may be a stranger's: it cannot set settings that concern other notebooks, and sets
        those that send, spend, run, write or decide only if the user trusts its content.
"""

from __future__ import annotations

import difflib
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import platformdirs

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.settings import DEFAULTS, SPECS, Settings, SettingValue, allowed, checked, from_text
from ctxkernel.store.regular_files import read_within
from ctxkernel.store.trust_registry import SETTINGS, content_digest, is_trusted

_MOST_BRACKETS = 100
"""Nested values are read by recursion: a deep one would exhaust the stack, where even cleaning up fails."""
FILE = "ctxkernel.toml"
TABLE = "context"
"""A table of the file whose keys are settings too (seed 003 §5)."""
PREFIX = "CTXKERNEL_"
PLACES = frozenset(
    ("SESSION", "TURNS", "HOME", "CACHE", "FORK", "CHROMIUM", "DEBUG", "TRUSTED", "SWEEP_FOLDER", "SWEEP_KEY")
)
"""Variables for paths and for the work of a process, which are no settings."""
MOST_BYTES = 1024 * 1024
"""Largest file of settings."""
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


def read_settings(env: Mapping[str, str], folder: Path | None = None) -> Configured:
    """Return the settings of a kernel whose notebook is in `folder`; None if there is no notebook."""
    found = Configured()
    values: dict[str, SettingValue] = {}
    own = user_file()
    for path in dict.fromkeys((own, own if folder is None else folder / FILE)):
        for name, value in _of_file(path, found.notices, env, personal=path == own).items():
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


def _of_file(path: Path, notices: list[str], env: Mapping[str, str], *, personal: bool) -> dict[str, SettingValue]:
    """Return the settings of a file, and add notices about its other content."""
    try:
        content = _read_own(path) if personal else read_within(path, MOST_BYTES, path.parent)
        values = settings_in(content, path, notices, personal=personal)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as fault:
        why = (isinstance(fault, OSError) and fault.strerror) or f"{fault}"[:200]
        notices.append(f"{path} is not used: {why}")
        return {}
    if not personal and (names := those_that_matter(values)) and not is_trusted(SETTINGS, content_digest(content), env):
        notices.append(
            f"{path}: {', '.join(names)} not used, since you have not trusted this file; "
            f"`ctxkernel trust {shlex.quote(str(path))}` shows and trusts it"
        )
        values = {name: value for name, value in values.items() if name not in names}
    return values


def _read_own(path: Path) -> bytes:
    """Return the content of the user's own file. Raises OSError, and ValueError if it is too large."""
    if not path.is_file():  # reading a pipe would block
        raise FileNotFoundError
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError("it is larger than 1 MiB")
    return content


def those_that_matter(values: Mapping[str, SettingValue]) -> list[str]:
    """Return the names of the settings that an untrusted file cannot set."""
    return [name for name in values if SPECS[name].matters]


def settings_in(content: bytes, path: Path, notices: list[str], *, personal: bool) -> dict[str, SettingValue]:
    """Return the settings in a file's content, and add notices about other content.

    Raises ValueError if it is no TOML, RecursionError if the stack is deep already.
    """
    if content.count(b"[") + content.count(b"{") > _MOST_BRACKETS:
        raise ValueError(f"it has more than {_MOST_BRACKETS} brackets, and settings need few")
    said = tomllib.loads(content.decode("utf-8-sig"))
    table = said.pop(TABLE, {})
    if isinstance(table, dict):
        said |= cast("dict[str, object]", table)
    else:
        notices.append(f"{path}: {TABLE} is a table of settings, [{TABLE}]")
    values: dict[str, SettingValue] = {}
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
