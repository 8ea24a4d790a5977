"""Which names a cell can touch, read from its text before it runs.

The text is compiled as IPython would compile it, and the names are read from the code: the compiler knows which names
are global and which are a function's own. A cell that is no plain Python (magics, `!shell`) is rewritten first, by
IPython where `transform` is given, else line by line. A cell that cannot be compiled will not run either; its words
are the names then, so that nothing depends on that.
"""

from __future__ import annotations

import ast
import contextlib
import re
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ctxkernel.state.codes import attribute_names, cell_names, used_names

Transform = Callable[[str], str]

_FILE = "<ctxkernel: names of a cell>"
_QUIET = ("ignore", None, Warning, re.compile(re.escape(_FILE)), 0)
_WORD = re.compile(r"[^\W\d]\w*")
_MAGIC_LINE = re.compile(r"^(\s*)(?:[\w.\[\]'\", ]+=\s*)?(%|!|\?)(?!%)\s*(\w*)(.*)$")

ANYTHING = frozenset(
    ("exec", "eval", "globals", "locals", "vars", "get_ipython", "__main__", "__builtins__", "Out", "_oh", "breakpoint")
)
"""Global names through which a cell can reach any variable."""
ANYTHING_IN_A_FUNCTION = ANYTHING - {"vars", "locals"}
"""Those through which a function can: its `locals()` are its own."""
_BELOW = """
_getframe currentframe f_globals f_locals __globals__ user_ns user_global_ns get_objects get_referrers run_cell __main__
"""
ANYTHING_BELOW = frozenset(_BELOW.split())
"""Attributes through which code can reach any variable."""

_RUNS = "time timeit prun capture memit mprun lprun snakeviz pyinstrument heat debug scalene"
RUNS_ITS_TEXT = frozenset(_RUNS.split())
"""Magics whose line and body are Python."""

_WORDS_ONLY = """
alias autoawait automagic autosave bash bookmark cat cd clear code_wrap colors conda config connect_info cp dhist dirs
doctest_mode env file hist history html image javascript js killbgscripts latex less load_ext loadpy logoff logon
logstart logstate logstop ls lsmagic magic man markdown matplotlib mkdir more mv notebook page pastebin pdb pdoc perl
pfile pinfo pinfo2 pip popd pprint precision psearch psource pushd pwd pycat pylab pypy python python2 python3 quickref
recall
rehashx reload_ext reset reset_selective rm rmdir ruby sc script set_env sh store subshell svg sx system tb uv unalias
unload_ext who who_ls whos writefile xdel xmode ask ctx group view
"""
TOUCHES_ITS_WORDS = frozenset(_WORDS_ONLY.split())
"""Magics that touch no variable but those that they name."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What can be read from the text of a cell."""

    names: frozenset[str] = frozenset()
    """Every global name that it mentions."""
    replaced: frozenset[str] = frozenset()
    """Names that it binds anew."""
    anything: str = ""
    """Why it may touch any variable, or empty."""


@dataclass(slots=True)
class _Found:
    names: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    anything: str = ""
    used: set[str] | None = None
    """Names whose value it uses, where these are asked for."""

    def add_words(self, text: str) -> None:
        words = _WORD.findall(text)
        self.names.update(words)
        if self.used is not None:
            self.used.update(words)


_cells: dict[tuple[str, bool], Cell] = {}
_MOST_CELLS = 256


def read_cell(source: str, transform: Transform | None = None) -> Cell:
    """Return what `source` can touch. Never raises; an unreadable cell gives its words."""
    key = source, transform is None
    cell = _cells.get(key)
    if cell is None:
        found = _Found()
        _read(source, transform, found, 0)
        cell = Cell(frozenset(found.names), frozenset(found.replaced), found.anything)
        if len(_cells) >= _MOST_CELLS:
            _cells.clear()
        if len(source) <= 20_000:
            _cells[key] = cell
    return cell


def names_used(source: str, transform: Transform | None = None) -> frozenset[str]:
    """Return the global names whose value `source`, or a function in it, uses: loads, deletes, or changes by `+=`.

    A name that a statement at the top level has bound before, whatever happens, is the cell's own and does not count.
    Never raises; of magics, and of what cannot be read, every word counts.
    """
    found = _Found(used=set())
    _read(source, transform, found, 0)
    return frozenset(found.used or ())


def is_python(source: str) -> bool:
    """Whether `source` can be compiled once its magics and shell lines are left out."""
    return _compile(source) is not None or _compile(_without_magics(source, None, _Found(), 0)) is not None


def _compile(source: str | ast.Module) -> CodeType | None:
    return _quietly(source, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def syntax_tree(source: str) -> ast.Module | None:
    """Return the syntax tree of `source`, or None where it is no plain Python. Shows no warning about it."""
    return _quietly(source, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


def _quietly(source: str | ast.Module, flags: int) -> Any:
    # Our filter is put in by hand: `catch_warnings` makes the interpreter forget which warnings the user has seen.
    warnings.filters.insert(0, _QUIET)  # type: ignore[attr-defined]
    try:
        return compile(source, _FILE, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return None
    finally:
        with contextlib.suppress(ValueError):  # another thread has replaced the filters
            warnings.filters.remove(_QUIET)  # type: ignore[attr-defined]


def _read(source: str, transform: Transform | None, found: _Found, depth: int) -> None:
    code = _compile(source)
    text = source
    if code is None:
        text = _without_magics(source, transform, found, depth)
        code = _compile(text)
    if code is None:
        found.add_words(source)
        if transform is None:  # else IPython cannot compile it either, and it will not run
            found.anything = found.anything or "a cell that could not be read"
        return
    names, replaced = cell_names(code)
    if "get_ipython" in names and _only_magics(text, transform, found, depth):
        names.discard("get_ipython")
    found.names |= names
    found.replaced |= replaced
    if found.used is not None:
        found.used |= _used(text)
    reached = names & ANYTHING or attribute_names(code) & ANYTHING_BELOW
    if reached:
        found.anything = found.anything or min(reached)
        _texts(code, found)


_BINDS = (
    ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
)


def _used(text: str) -> set[str]:
    """Return the names that a cell which can be compiled uses before it has bound them."""
    used: set[str] = set()
    own: set[str] = set()
    tree = syntax_tree(text)
    for statement in tree.body if tree is not None else ():
        code = _compile(ast.Module([statement], []))
        if code is None:  # by itself it is none: take its words
            used.update(_WORD.findall(ast.unparse(statement)))
            continue
        used |= used_names(code) - own
        # `a = b or (c := 1)` may bind c, or not.
        if isinstance(statement, _BINDS) and not any(isinstance(one, ast.NamedExpr) for one in ast.walk(statement)):
            own |= cell_names(code)[1]
    return used


def _texts(code: CodeType, found: _Found) -> None:
    # What is executed or looked up by name often stands there as a text: these are looked at first.
    for const in code.co_consts:
        if type(const) is str:
            found.add_words(const)
        elif type(const) is CodeType:
            _texts(const, found)


def _without_magics(source: str, transform: Transform | None, found: _Found, depth: int) -> str:
    """Return `source` as plain Python, as far as it can be had."""
    if transform is not None:
        try:
            return transform(source)
        except Exception:  # whatever the user's input transformers raise; IPython will say it
            pass
    text = textwrap.dedent(source).lstrip("\n")
    if text.startswith("%%"):
        head, _, body = text.partition("\n")
        words = head[2:].split(None, 1)
        _magic(words[0] if words else "", " ".join(words[1:]), body, transform, found, depth)
        return ""
    lines: list[str] = []
    for line in text.split("\n"):
        match = _MAGIC_LINE.match(line)
        if match is None and not line.rstrip().endswith("?"):
            lines.append(line)
            continue
        if match is None:
            found.add_words(line)
            lines.append("pass")
            continue
        indent, mark, name, rest = match.groups()
        if mark == "%":
            _magic(name, rest, "", transform, found, depth)
        else:
            found.add_words(line)
        lines.append(f"{indent}pass")
    return "\n".join(lines)


def _only_magics(text: str, transform: Transform | None, found: _Found, depth: int) -> bool:
    """Read the magics in `text`; say whether `get_ipython` is used for nothing else."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    uses = seen = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "get_ipython":
            uses += 1
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = node.func.value
        if not (isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "get_ipython"):
            continue
        texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if len(texts) != len(node.args):
            continue
        match node.func.attr, texts:
            case "run_line_magic" | "run_cell_magic", [name, *rest]:
                line, body = [*rest, "", ""][:2]
                _magic(name, line, body, transform, found, depth)
                seen += 1
            case "system" | "getoutput" | "getoutput_pty", _:
                found.add_words(" ".join(texts))
                seen += 1
            case _:
                pass
    return uses == seen


def _magic(name: str, line: str, body: str, transform: Transform | None, found: _Found, depth: int) -> None:
    found.add_words(line)
    if name in RUNS_ITS_TEXT:
        if depth > 5:
            found.add_words(body)
            return
        for text in (line, body):
            if text.strip() and _compile(text) is not None:
                _read(text, transform, found, depth + 1)
            elif text is body and body.strip():
                _read(body, transform, found, depth + 1)
        if re.search("|".join(sorted(ANYTHING)), line):
            found.anything = found.anything or name
    elif name in TOUCHES_ITS_WORDS:
        found.add_words(body)
    else:
        found.anything = found.anything or f"%{name}"
