"""All settings, with type, default, unit and bounds. Other modules read files and the environment."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadPolicy

SettingValue = bool | int | float | str
T = TypeVar("T", bool, int, float, str)

_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,199}")
_PLACE = re.compile(r"(~?/|[A-Za-z]:[\\/]|[a-z][a-z0-9+]{0,30}://)[^\s?@#'\"<>\0]{0,1000}")
AUTO = -1
"""A number that is found by itself; smaller than all that may be set."""
MODES = ("ask", "auto", "off")
_ANSWERS = ("auto", "recorded")
EXTRACTIVE = "extractive"
"""Instead of a model's name: summaries consist of lines of the text, and nothing is sent."""
_TRUTHS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Spec:
    """The properties of a setting beside its type and its default."""

    unit: str
    about: str
    least: float
    most: float
    choices: tuple[str, ...]
    """The allowed texts; empty where it is a model's name."""
    at_start: bool
    """Whether it is read once, when the kernel starts."""
    personal: bool
    """Whether it is valid for all notebooks of a user: then a file beside a notebook cannot set it."""
    matters: bool
    """Whether it sends, spends, runs, writes or decides: then a file beside a notebook sets it only if trusted."""
    is_place: bool
    """Whether it is a folder or a URL, or nothing."""


def _is(
    default: T,
    unit: str,
    about: str,
    least: float = 0,
    most: float = 10**9,
    *,
    choices: tuple[str, ...] = (),
    at_start: bool = False,
    personal: bool = False,
    matters: bool = False,
    is_place: bool = False,
) -> T:
    spec = Spec(unit, about, least, most, choices, at_start, personal, matters, is_place)
    made: Any = field(default=default, metadata={"spec": spec})
    return made


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a session."""

    stream_bytes: int = _is(64 * 1024, "bytes", "bounded copy of stdout and of stderr of a statement", 1024)
    artifact_bytes: int = _is(1024**2, "bytes", "largest rich output that is kept whole; a larger one by size and hash")
    artifacts_bytes: int = _is(8 * 1024**2, "bytes", "bound on all rich outputs of one statement")
    file_scan_entries: int = _is(1000, "entries", "most directory entries looked at for files that a cell wrote")
    file_hash_bytes: int = _is(32 * 1024**2, "bytes", "largest written file that is hashed", 0, 10**12)
    files: str = _is(
        "leave",
        "",
        "restore: a return brings back files that cells wrote in the notebook's folder; leave: it touches no file",
        choices=("leave", "restore"),
        matters=True,
    )
    file_keep_bytes: int = _is(
        10**9, "bytes", "largest file whose content is kept for `files = restore`", 0, 10**12, matters=True
    )
    repr_chars: int = _is(120, "characters", "cap of a variable's repr in a namespace diff", 20, 10_000)
    end_phase_ms: int = _is(250, "ms", "bound on the work after a cell; then it goes on with less", 10, 60_000)
    view_tokens: int = _is(2000, "tokens", "default budget of a view (seed 002 §9.1)", 1)
    group_tokens: int = _is(500, "tokens", "default budget of a group's summary (seed 002 §9.1)", 1)
    projection_tokens: int = _is(
        AUTO,
        "tokens",
        "budget of the whole projection; auto: half of the model's context, 32,000 where that is not known",
        1000,
        10**7,
    )
    variable_rows: int = _is(80, "rows", "most rows of the projection's variable table, newest first", 1, 10_000)
    statement_tokens: int = _is(2000, "tokens", "most of one statement's outputs in the projected history", 50, 10**6)
    recent_tokens: int = _is(
        1600, "tokens", "your newest statements are projected whole up to so many; older ones take a line each", 0
    )
    image_tokens: int = _is(
        6000,
        "tokens",
        "most of all images in a request, those that cells displayed and those of handles; 0: no image is sent",
        0,
        10**6,
        matters=True,
    )
    images: str = _is(
        "",
        "",
        "whether the model takes images; auto: as is known of it, and no where nothing is",
        choices=("", "yes", "no"),
        matters=True,
    )
    ready_per_turn: int = _is(64, "payloads", "most prepared payloads that one tick applies (seed 002 §6.2)", 1, 10_000)
    model: str = _is(
        "claude-sonnet-5-5", "name", "model that %%ask asks, and that the projection is checked for", matters=True
    )
    mode: str = _is(
        "ask",
        "",
        "whether a model's cell waits for your approval, runs at once, or no model is asked",
        choices=MODES,
        personal=True,
    )
    answers: str = _is(
        "auto",
        "",
        "recorded: asks replay recorded turns and send nothing; auto: they do where there is no key",
        choices=_ANSWERS,
        matters=True,
    )
    ask_rounds: int = _is(20, "requests", "maximal number of requests of one ask. 0: no limit", 0, 10_000, matters=True)
    ask_tokens: int = _is(
        1_000_000,
        "tokens",
        "maximal number of tokens of one ask: input and output, cached ones included. 0: no limit",
        matters=True,
    )
    summary_model: str = _is(
        EXTRACTIVE,
        "name",
        "model that writes summaries (level 2) of texts, in the background; extractive: no model, and nothing is sent",
        personal=True,
    )
    ask_usd: float = _is(
        2.0,
        "USD",
        "maximal cost of one ask, and of all summaries of a kernel. 0: no limit",
        0,
        10**6,
        personal=True,
    )
    ask_seconds: float = _is(
        3600.0,
        "s",
        "maximal time of one ask, without the time that it waits for you. 0: no limit",
        0,
        10**7,
        matters=True,
    )
    stall_seconds: float = _is(120.0, "s", "end the request to a model that sends nothing for this long", 1, 3600)
    fetch_seconds: float = _is(10.0, "s", "time that a view of a URI waits for the server", 0.1, 600)
    insert_cells: bool = _is(
        False,
        "",
        "JupyterLab puts the cells of the model below the ask, and folds its output; those of an agent, too",
        matters=True,
    )
    dialect: str = _is(
        "", "name", "how the model acts; auto: chosen by the model", choices=("", "tools", "script"), matters=True
    )
    enforce_history_invariants: bool = _is(
        False,
        "",
        "repair the history after a return and before a request (seed 003 §5); what is sent is always checked",
        matters=True,
    )
    auto_recover_from_crash: bool = _is(
        True, "", "repair the history when a session is loaded (seed 003 §5)", matters=True
    )
    warn_on_invariant_violations: bool = _is(
        True, "", "say what was found broken in the history (seed 003 §5)", matters=True
    )
    max_tokens: int = _is(8192, "tokens", "`max_tokens` of the request body", 1, 10**6, matters=True)
    token_limit: int = _is(0, "tokens", "property TokenLimit: the shown history at most; the oldest goes. 0: off")
    call_depth: int = _is(0, "batches", "property ToolCallDepth: calls within calls at most. 0: off", 0, 1000)
    message_pairing: bool = _is(False, "", "property MessagePairing: no two messages of one role in a row")
    tolerance: float = _is(
        1e-12, "", "floats of a re-run count as the same up to it, relative or absolute", 0, 1, matters=True
    )
    opaque_cells: str = _is(
        "run",
        "",
        "what `rerun --affected` does with a cell that it cannot see through; ask: stop before it",
        choices=("run", "ask"),
        matters=True,
    )
    affected_tolerance: float = _is(
        0.0,
        "",
        "floats that a cell read count as unchanged up to it, in `rerun --affected`. 0: only if equal",
        0,
        1,
        matters=True,
    )
    recall: bool = _is(
        False,
        "",
        "a cell whose text and inputs equal those of an earlier execution takes its result instead of running",
        matters=True,
    )
    resume: bool = _is(False, "", "go on where the last kernel of the notebook ended", at_start=True, matters=True)
    quota_gb: float = _is(
        20.0, "GB", "what the checkpoints of all notebooks may take together", 1e-6, 10**6, personal=True
    )
    store: str = _is(
        "",
        "",
        "a second place for sessions, which outlives this machine, such as s3://bucket/folder; off: none",
        personal=True,
        is_place=True,
    )
    store_seconds: float = _is(30.0, "s", "least time between two pushes to `store`", 1, 86_400, personal=True)


DEFAULTS: Mapping[str, SettingValue] = {
    one.name: cast("SettingValue", one.default) for one in dataclasses.fields(Settings)
}
SPECS: Mapping[str, Spec] = {one.name: one.metadata["spec"] for one in dataclasses.fields(Settings)}


def allowed(name: str) -> str:
    """Return a phrase for the allowed values of a setting."""
    default, spec = DEFAULTS[name], SPECS[name]
    if isinstance(default, bool):
        return "true or false"
    if spec.is_place:
        return "an absolute folder or a URL without credentials and query, such as s3://bucket/folder, or off"
    if isinstance(default, str):
        return " or ".join(one or "auto" for one in spec.choices) or "a name of letters, digits and . _ - : / @"
    kind = "a whole number" if isinstance(default, int) else "a number"
    bounds = f"from {shown(name, type(default)(spec.least))} to {shown(name, type(default)(spec.most))}"
    return f"{kind} {bounds}{', or auto' if default == AUTO else ''}"


def shown(name: str, value: SettingValue) -> str:
    """Return a value with its unit, for people."""
    unit = SPECS[name].unit
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value or ("off" if SPECS[name].is_place else "auto")
    if value == AUTO:
        return "auto"
    text = f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return f"{text} {unit}" if unit else text


def checked(name: str, value: object) -> SettingValue:
    """Return a valid value of a setting, in its type. Raises BadPolicy that says what is allowed."""
    default, spec = DEFAULTS[name], SPECS[name]
    if isinstance(default, float) and type(value) is int:
        value = float(value) if abs(value) < 2**53 else math.inf
    if type(value) is type(default):
        if isinstance(value, str) and spec.is_place:
            if value in ("", "off", "auto") or _PLACE.fullmatch(value):
                return "" if value in ("off", "auto") else value
        elif isinstance(value, str):
            value = "" if value == "auto" and "" in spec.choices else value
            if value in spec.choices or (not spec.choices and _MODEL.fullmatch(value)):
                return value
        elif isinstance(value, bool) or value == default or spec.least <= cast("float", value) <= spec.most:
            return value
    raise BadPolicy(f"{name} is {allowed(name)}")


def from_text(name: str, text: str) -> SettingValue:
    """Return the value that a text means: `8_000`, `8,000`, `1e-6`, `on`. Raises BadPolicy as `checked`."""
    default, word = DEFAULTS[name], text.strip()
    found: object = word
    if isinstance(default, bool):
        found = _TRUTHS.get(word.lower())
    elif default == AUTO and word == "auto":
        found = AUTO
    elif isinstance(default, int | float) and len(word) <= 40:
        number = word.replace(",", "")
        try:
            found = int(number) if isinstance(default, int) else float(number)
        except ValueError:
            found = None
    return checked(name, found)
