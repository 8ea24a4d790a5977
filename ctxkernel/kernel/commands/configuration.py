"""`%ctx config` and `%ctx properties`: the settings of a running kernel, and the rules of the model's history.

Rule 1: a new value is tried first: if no projection can be built with it, nothing is changed.
Rule 2: a change counts from the projection of the cell that makes it, and is stored with the session.
Rule 3: a property of the user's that fails is removed from the list and reported; the projection is built without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ctxkernel.core.errors import BadCommand, BadPolicy, CtxError
from ctxkernel.core.settings import DEFAULTS, EXTRACTIVE, SPECS, SettingValue, allowed, checked, from_text, shown
from ctxkernel.core.text import format_table, one_line, suggest
from ctxkernel.history.capabilities import MODELS, capabilities_for
from ctxkernel.history.invariants import PROPERTIES, OwnProperty, Property, with_extensions
from ctxkernel.kernel.commands.context import CommandContext
from ctxkernel.kernel.configuration import Configuration
from ctxkernel.store import config

EXTENSIONS = {"tokens": "token_limit", "depth": "call_depth", "message_pairing": "message_pairing"}
"""Name of an extension of seed 001 in `%ctx properties on` → its setting."""
_OFF: Mapping[str, SettingValue] = {"token_limit": 0, "call_depth": 0, "message_pairing": False}


def configure(ctx: CommandContext, args: Sequence[str]) -> str:
    """`%ctx config`: show all settings, show one, or set one."""
    held = ctx.configuration
    if not args:
        rows = [["setting", "value", "from", "what"]]
        for name, spec in SPECS.items():
            when = "; at start only" if spec.at_start else ""
            rows.append([name, shown(name, _value(held, name)), held.origin(name), spec.about + when])
        lines = [format_table(rows), *(f"notice: {one}" for one in held.notices)]
        lines.append(f"%ctx config NAME VALUE sets one for this session; {config.user_file()} for all")
        return "\n".join(lines)
    name, *rest = args
    if name not in SPECS:
        raise BadCommand(f"there is no setting {name!r}{suggest(name, SPECS)}; %ctx config lists them")
    spec = SPECS[name]
    if not rest:
        now = f"{name}: {shown(name, _value(held, name))}, from {held.origin(name)}"
        default = f"default {shown(name, DEFAULTS[name])}; it may be {allowed(name)}"
        when = "read when the kernel starts" if spec.at_start else "can be set at any time"
        places = f"`{name} = …` in {config.FILE}, or {config.PREFIX}{name.upper()}"
        return "\n".join([now, spec.about, default, f"{when}: {places}", *_of_model(name, _value(held, name))])
    if len(rest) > 1:
        raise BadCommand(f"%ctx config {name} VALUE: one value; it may be {allowed(name)}")
    if spec.at_start:
        raise BadCommand(
            f"{name} is read when the kernel starts: write `{name} = …` into {config.user_file()}, "
            f"or set {config.PREFIX}{name.upper()}"
        )
    try:
        held.set(name, None if rest[0] == "--reset" else from_text(name, rest[0]))
    except BadPolicy as fault:
        raise BadCommand(f"%ctx config: {fault}; nothing was changed") from None
    value = _value(held, name)
    lines = [f"{name}: {shown(name, value)}, from {held.origin(name)}", *_of_model(name, value)]
    if name in ("projection_tokens", "model", "dialect") and (told := held.too_small()):
        lines.append(f"notice: {told}; until then nothing is sent")
    return "\n".join(lines)


def _value(held: Configuration, name: str) -> SettingValue:
    value: SettingValue = getattr(held.settings, name)
    return value


def _models(name: str) -> list[str]:
    """Return the known models, if the setting is a model."""
    known = [row.model for row in MODELS]
    return {"model": known, "summary_model": [EXTRACTIVE, *known]}.get(name, [])


def _of_model(name: str, value: SettingValue) -> list[str]:
    """Return a warning about an unknown model: a typing error disables its capabilities."""
    names = _models(name)
    if not names or value in names or capabilities_for(str(value)).model:
        return []
    return [f"{value} is no model that is known here{suggest(str(value), names)}: the most cautious rules hold"]


def properties(ctx: CommandContext, args: Sequence[str]) -> str:
    """`%ctx properties`: show the list, or change it."""
    held = ctx.configuration
    before = _rows(held)
    match args:
        case []:
            numbered = [[str(number), *row] for number, row in enumerate(before, 1)]
            return format_table([["", "property", "", "what it does"], *numbered])
        case ["on", *words] if words:
            for word in words:
                _switch_on(held, word)
        case ["off", *words] if words:
            for word in words:
                held.set(_extension(word), None)
                if _value(held, _extension(word)):  # a file switches it on
                    held.set(_extension(word), _OFF[_extension(word)])
        case ["add", name]:
            _add(ctx, name)
        case ["remove", name]:
            if name not in held.own:
                raise BadCommand(
                    f"{name} is not one of your properties{suggest(name, held.own)}; %ctx properties lists them"
                )
            held.remove(name)
            return f"{name} is removed from the list"
        case _:
            raise BadCommand(
                "%ctx properties [on tokens=N | depth=N | message_pairing] [off …] [add NAME | remove NAME]"
            )
    return format_table([row for row in _rows(held) if row not in before]) or "nothing changed"


def _rows(held: Configuration) -> list[list[str]]:
    """Return all properties in their order: name, whether it is on, what it does."""
    whole = with_extensions(
        (*PROPERTIES, *held.own.values()), depth=1, message_pairing=True, tokens=1, count=lambda event: 1
    )
    on = {type(one).__name__: one for one in held.engine.past.properties}
    rows: list[list[str]] = []
    for one in whole:
        name = type(one).__name__
        if isinstance(one, OwnProperty):
            rows.append([one.name, "on, yours", _what(one.inner)])
            continue
        limit = getattr(on.get(name), "limit", None)
        state = "off" if name not in on else f"on, {limit:,}" if limit is not None else "on"
        rows.append([name, state, _what(one)])
    return rows


def _what(one: object) -> str:
    """Return the first sentence of a property's docstring."""
    text = type(one).__doc__
    if not isinstance(text, str) or text == Property.__doc__:  # inherited from the protocol
        return ""
    return one_line(" ".join(text.split()).partition(". ")[0].removesuffix("."), 110)


def _extension(word: str) -> str:
    if word not in EXTENSIONS:
        raise BadCommand(f"no property {word!r} to switch{suggest(word, EXTENSIONS)}: {', '.join(EXTENSIONS)}")
    return EXTENSIONS[word]


def _switch_on(held: Configuration, word: str) -> None:
    name, sign, text = word.partition("=")
    setting = _extension(name)
    try:
        value = from_text(setting, text) if sign else checked(setting, True)
        if not value:
            raise BadPolicy(f"{name}={text} is no limit")
        held.set(setting, value)
    except BadPolicy as fault:
        raise BadCommand(
            f"%ctx properties on {word}: {fault}; write tokens=20000, depth=3 or message_pairing"
        ) from None


def _add(ctx: CommandContext, name: str) -> None:
    space = ctx.shell.user_ns
    if name not in space:
        raise BadCommand(f"there is no {name!r}{suggest(name, _candidates(ctx))}; define a Property, then add its name")
    try:
        ctx.configuration.add(name)
    except CtxError as fault:
        raise BadCommand(str(fault)) from None
    except Exception as fault:
        raise BadCommand(
            f"{name} is not added: tried on this history it raised {type(fault).__name__}: {fault}"
        ) from None


def _candidates(ctx: CommandContext) -> list[str]:
    return [
        name
        for name, value in list(ctx.shell.user_ns.items())
        if not name.startswith("_")
        and value is not Property
        and Property in (value if isinstance(value, type) else type(value)).__mro__
    ]


def complete_setting(ctx: CommandContext, sub: str, words: Sequence[str]) -> list[str]:
    """Return the completions of `%ctx config …` and `%ctx properties …`."""
    held, given = ctx.configuration, words[2:]
    if sub == "config":
        if not given:
            return list(SPECS)
        name = given[0]
        if name not in SPECS or len(given) > 1:
            return []
        values = (
            ["true", "false"] if isinstance(DEFAULTS[name], bool) else [one or "auto" for one in SPECS[name].choices]
        )
        return [*(values or _models(name)), "--reset"]
    match given[:1]:
        case []:
            return ["on", "off", "add", "remove"]
        case ["on"]:
            return ["tokens=", "depth=", "message_pairing"]
        case ["off"]:
            return list(EXTENSIONS)
        case ["add"]:
            return _candidates(ctx)
        case ["remove"]:
            return list(held.own)
        case _:
            return []
