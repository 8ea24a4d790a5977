"""The combinations of a sweep, from parameters as a user writes them: `alpha=0.1,0.3,1 model=ridge,lasso`.

Rule 1: a value is a Python literal, or a plain word, which is a text. Nothing is evaluated.
Rule 2: equal arguments give equal combinations in the same order; random samples come from a seed.
"""

from __future__ import annotations

import ast
import csv
import io
import itertools
import json
import keyword
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand

MOST = 10_000
"""Most combinations of a sweep."""
Combination = Mapping[str, Any]
_WORD = re.compile(r"[^\W\d][\w.+/-]*")
_CALL = re.compile(r"(range|uniform|loguniform|randint)\((.*)\)", re.DOTALL)
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A parameter of which each combination gets a random value."""

    kind: str
    low: float
    high: float

    def draw(self, source: random.Random) -> Any:
        """Return a random value."""
        if self.kind == "randint":
            return source.randint(int(self.low), int(self.high))
        if self.kind == "loguniform":
            return math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        return source.uniform(self.low, self.high)


Values = list[Any] | Distribution


def read_parameter(text: str) -> tuple[str, Values]:
    """Return name and values of `NAME=VALUE,…`. Raises BadCommand."""
    name, equals, listed = text.partition("=")
    name = name.strip()
    if not equals or not name.isidentifier() or keyword.iskeyword(name):
        raise BadCommand(f"{text!r} is no parameter: write NAME=VALUE,VALUE, such as alpha=0.1,0.3")
    if call := _CALL.fullmatch(listed.strip()):
        return name, _called(name, call[1], call[2])
    values = read_values(listed, name)
    if not values:
        raise BadCommand(f"{name}= has no value: write {name}=VALUE,VALUE")
    return name, values


def read_values(text: str, name: str = "it") -> list[Any]:
    """Return the values of a list with commas. Raises BadCommand."""
    return [read_value(part, name) for part in _split(text)] if text.strip() else []


def read_value(text: str, name: str = "it") -> Any:
    """Return a literal, or a plain word as a text. Raises BadCommand."""
    word = text.strip()
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        if _WORD.fullmatch(word):
            return word
    raise BadCommand(
        f"{name}: {word[:60]!r} is neither a Python literal nor a plain word; put quotes around other texts, "
        f"such as {name}=\"'two words'\""
    )


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes."""
    parts, depth, quote, start = list[str](), 0, "", 0
    escaped = False
    for at, one in enumerate(text):
        if quote:
            quote = "" if one == quote and not escaped else quote
            escaped = one == "\\" and not escaped
        elif one in "'\"":
            quote = one
        elif one in _OPENING:
            depth += 1
        elif one in _CLOSING:
            depth -= 1
        elif one == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, *([text[start:]] if text[start:].strip() else [])]


def _called(name: str, kind: str, inside: str) -> Values:
    arguments = read_values(inside, name)
    if kind == "range" and 1 <= len(arguments) <= 3 and all(type(one) is int for one in arguments):
        if len(arguments) == 3 and not arguments[2]:
            raise BadCommand(f"{name}={kind}({inside}): the step must not be 0")
        made = range(*arguments)
        if not made:
            raise BadCommand(f"{name}={kind}({inside}) has no value: write range(STOP) with STOP above START")
        if len(made) > MOST:
            raise BadCommand(f"{name} has {len(made):,} values; a sweep has at most {MOST:,} combinations")
        return list(made)
    numbers = [one for one in arguments if type(one) in (int, float) and math.isfinite(one)]
    fits = len(numbers) == len(arguments) == 2 and numbers[0] < numbers[1]
    if kind == "loguniform":
        fits = fits and numbers[0] > 0
    if kind == "randint":
        fits = fits and all(type(one) is int for one in numbers)
    if kind == "range" or not fits:
        raise BadCommand(
            f"{name}={kind}({inside}) cannot be read: write range(STOP), uniform(LOW, HIGH), loguniform(LOW, HIGH) or "
            "randint(LOW, HIGH), with LOW < HIGH"
        )
    return Distribution(kind, *numbers)


def lists_of(given: Mapping[str, Any]) -> dict[str, Values]:
    """Return the parameters of a call of `sweep`, each with a list or a distribution. Raises BadCommand."""
    found: dict[str, Values] = {}
    for name, values in given.items():
        if not str(name).isidentifier() or keyword.iskeyword(name):
            raise BadCommand(f"{name!r} is no name of a variable")
        if isinstance(values, Distribution):
            found[name] = values
            continue
        is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
        found[name] = [_literal(name, one) for one in cast("Iterable[Any]", [values] if is_one else values)]
        if not found[name]:
            raise BadCommand(f"{name} has no value")
    return found


def combinations_of(given: Any) -> list[Combination]:
    """Return combinations from a list of dictionaries. Raises BadCommand."""
    if not isinstance(given, Iterable):
        raise BadCommand("parameters: a dictionary of lists, or a list of dictionaries is expected")
    found: list[Combination] = []
    for one in cast("Iterable[Any]", given):
        named = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        if not named or (found and named.keys() != found[0].keys()):
            raise BadCommand("parameters: each combination must be a dictionary with the same names")
        listed = cast("dict[str, list[Any]]", lists_of({name: [value] for name, value in named.items()}))
        found.append({name: values[0] for name, values in listed.items()})
    if not found or len(found) > MOST:
        raise BadCommand(f"{len(found):,} combinations: from 1 to {MOST:,} are possible")
    return _unique(found)


def _literal(name: str, value: Any) -> Any:
    """Return a value that a Python literal can express, a NumPy scalar as a Python number. Raises BadCommand."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if type(value) is float:
        return value
    try:
        if ast.literal_eval(text_of(value)) == value:
            return value
    except (ValueError, SyntaxError, TypeError):
        pass
    raise BadCommand(
        f"{name}: a value of type {type(value).__name__} has no literal. Use numbers, texts, lists or dictionaries, "
        "and look other objects up by a name in the cells"
    )


def combine(parameters: Mapping[str, Values], *, samples: int | None = None, seed: int = 0) -> list[Combination]:
    """Return all combinations of the values, or `samples` random ones. Raises BadCommand."""
    if not parameters:
        raise BadCommand("which parameters? Write NAME=VALUE,VALUE, such as alpha=0.1,0.3,1")
    drawn = [name for name, values in parameters.items() if isinstance(values, Distribution)]
    if drawn and samples is None:
        raise BadCommand(f"{drawn[0]} has a distribution and no list: --samples N says how many combinations to draw")
    if samples is not None and not 1 <= samples <= MOST:
        raise BadCommand(f"--samples {samples}: use a whole number from 1 to {MOST:,}")
    source = random.Random(seed)  # noqa: S311  a sweep is no secret
    if samples is None or not drawn:
        lists = [cast("list[Any]", values) for values in parameters.values()]
        total = math.prod(map(len, lists))
        if samples is None and total > MOST:
            raise BadCommand(f"{total:,} combinations are too many: at most {MOST:,}; --samples N draws N of them")
        if samples is None or total <= samples:
            return _unique(dict(zip(parameters, values, strict=True)) for values in itertools.product(*lists))
        chosen = sorted(source.sample(range(total), samples))
        return _unique(_nth(parameters, at) for at in chosen)
    return _unique(
        {
            name: values.draw(source) if isinstance(values, Distribution) else source.choice(values)
            for name, values in parameters.items()
        }
        for _ in range(samples)
    )


def combinations_of_words(
    words: Sequence[str], *, file: Path | None = None, samples: int | None = None, seed: int = 0
) -> list[Combination]:
    """Return the combinations that a command has: `NAME=VALUE,…` in words, or a file. Raises BadCommand."""
    if file is not None:
        if words or samples is not None:
            raise BadCommand("--file has the combinations: NAME=VALUE and --samples do not go with it")
        return read_file(file)
    parameters: dict[str, Values] = {}
    for word in words:
        name, values = read_parameter(word)
        if name in parameters:
            raise BadCommand(f"{name} is given twice: write all its values with commas")
        parameters[name] = values
    return combine(parameters, samples=samples, seed=seed)


def _nth(parameters: Mapping[str, Values], at: int) -> Combination:
    made: dict[str, Any] = {}
    for name in reversed(list(parameters)):
        listed = cast("list[Any]", parameters[name])
        at, place = divmod(at, len(listed))
        made[name] = listed[place]
    return {name: made[name] for name in parameters}


def _unique(combinations: Iterable[Combination]) -> list[Combination]:
    return list({text_of_all(one): one for one in combinations}.values())


def text_of_all(combination: Combination) -> str:
    """Return a combination as one line: `alpha = 0.1, model = 'ridge'`."""
    return ", ".join(f"{name} = {text_of(value)}" for name, value in combination.items())


def text_of(value: Any) -> str:
    """Return a value as Python text."""
    if type(value) is float and not math.isfinite(value):
        return f'float("{value}")'
    if type(value) in (list, tuple, set, dict):
        return _text_of_collection(value)
    return repr(value)


def _text_of_collection(value: Any) -> str:
    if type(value) is dict:
        inside = (f"{text_of(key)}: {text_of(one)}" for key, one in cast("dict[Any, Any]", value).items())
        return "{" + ", ".join(inside) + "}"
    listed = [text_of(one) for one in cast("Sequence[Any]", value)]
    if type(value) is tuple:
        return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"
    if type(value) is set:
        return "{" + ", ".join(sorted(listed)) + "}" if listed else "set()"
    return "[" + ", ".join(listed) + "]"


def read_file(path: Path) -> list[Combination]:
    """Return the combinations of a file: CSV with a head, JSON (a list of objects) or JSON Lines. Raises BadCommand."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        why = (fault.strerror if isinstance(fault, OSError) else None) or fault
        raise BadCommand(f"{path} cannot be read ({why}); give a CSV, JSON or JSON Lines file") from None
    read: Callable[[str, Path], list[Combination]] = _read_csv if path.suffix.lower() == ".csv" else _read_json
    found = read(text, path)
    if not found:
        raise BadCommand(f"{path} has no combination: a row (CSV) or an object (JSON) is one")
    if len(found) > MOST:
        raise BadCommand(f"{path} has {len(found):,} combinations; at most {MOST:,} are allowed")
    names = found[0].keys()
    for number, one in enumerate(found, 1):
        if one.keys() != names:
            raise BadCommand(
                f"{path}: combination {number} has {_names(one)}, and the first one has {_names(found[0])}"
            )
    if bad := next((name for name in names if not name.isidentifier() or keyword.iskeyword(name)), None):
        raise BadCommand(f"{path}: {bad[:40]!r} is no name of a variable")
    return _unique(found)


def _names(one: Combination) -> str:
    return ", ".join(map(str, one)) or "nothing"


def _read_csv(text: str, path: Path) -> list[Combination]:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    head = [name.strip() for name in rows[0]] if rows else []
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(head):
            raise BadCommand(f"{path}: line {number} has {len(row)} values, and the head has {len(head)} names")
    return [dict(zip(head, (_cell(one) for one in row), strict=True)) for row in rows[1:]]


def _cell(text: str) -> Any:
    """Return the value of a cell of a CSV file: a literal, else the text itself."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text.strip()


def _read_json(text: str, path: Path) -> list[Combination]:
    try:
        found: Any = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [*map(json.loads, filter(str.strip, text.splitlines()))]
        )
    except ValueError as fault:
        raise BadCommand(f"{path} is no JSON: {fault}") from None
    if not all(isinstance(one, dict) for one in found):
        raise BadCommand(f'{path}: each combination must be an object, such as {{"alpha": 0.1}}')
    return cast("list[Combination]", found)
