"""Bundle several ES modules into one: the module of a widget, and of an exported page, cannot import other files.

Rule 1: a module begins with its imports and ends with one list of exports: `import { a } from './b.js';` and
        `export { c, d as default };`. eslint enforces this form, so that no parser of JavaScript is needed.
Rule 2: each module keeps its own scope: two modules can use the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ctxkernel.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Module:
    """A module: its imports by file, its code, its exports."""

    path: Path
    imports: Mapping[Path, str]
    """File → imported names, as the pattern of a destructuring assignment."""
    code: str
    exports: str
    """The exports, as the fields of an object literal."""

    def scoped(self, names: Mapping[Path, str]) -> str:
        """Return an expression for an object of the exports; `names` are the modules' variables."""
        imports = [f"const {{ {pattern} }} = {names[path]};" for path, pattern in self.imports.items()]
        return "\n".join(["(() => {", *imports, self.code, f"return {{ {self.exports} }};", "})()"])


def bundle_modules(entry: Path, *, comments: bool = True) -> str:
    """Return the module at `entry` and all its imports as one module with a default export."""
    modules = list(modules_of(entry))
    names = {module.path: f"$module{number}" for number, module in enumerate(modules)}
    parts = [f"const {names[module.path]} = {module.scoped(names)};" for module in modules]
    text = "\n".join([*parts, f"export default {names[entry.resolve()]}.default;\n"])
    return text if comments else _without_comments(text)


def modules_of(entry: Path) -> Iterator[Module]:
    """Yield the modules that `entry` needs, imports first, `entry` last. Raises ValueError for a circle."""
    yield from _walk(entry.resolve(), set(), ())


def _walk(path: Path, done: set[Path], above: tuple[Path, ...]) -> Iterator[Module]:
    if path in above:
        raise ValueError(f"{path.name} imports itself, by way of {', '.join(one.name for one in above)}")
    if path in done:
        return
    module = read_module(path)
    for imported in module.imports:
        yield from _walk(imported, done, (*above, path))
    done.add(path)
    yield module


def read_module(path: Path) -> Module:
    """Read a module in the form of rule 1. Raises ValueError for another form."""
    imports: dict[Path, str] = {}
    rest = _after_comments(path.read_text(encoding="utf-8"))
    while rest.startswith("import "):
        statement, _, rest = rest.partition(";")
        names, _, source = statement.removeprefix("import ").partition(" from ")
        pattern = ", ".join(f"{name}: {local}" for name, local in _pairs(names, path))
        imports[(path.parent / source.strip("'")).resolve()] = pattern
        rest = _after_comments(rest)
    code, found, exports = f"\n{rest}".rpartition("\nexport ")
    if not found or "\nexport " in code or "\nimport " in code:
        raise ValueError(f"{path.name} must begin with its imports and end with one list `export {{ … }};`")
    exported = _pairs(exports.strip().removesuffix(";"), path)
    return Module(path, imports, code, ", ".join(f"{name}: {local}" for local, name in exported))


def _pairs(names: str, path: Path) -> list[tuple[str, str]]:
    """Return `(a, a), (b, c)` for `{ a, b as c }`."""
    text = " ".join(names.split())
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(f"{path.name}: expected names in braces instead of {text[:80]!r}")
    parts = [name.strip().partition(" as ") for name in text[1:-1].split(",")]
    return [(old, new or old) for old, _, new in parts]


def _after_comments(text: str) -> str:
    text = text.lstrip()
    while text.startswith("/*"):
        text = text.partition("*/")[2].lstrip()
    return text


def _without_comments(text: str) -> str:
    """Remove comment lines and indentation: no template string in these modules has several lines."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("/*", "*", "//")))
