"""Which names a cell can touch, read from its text before it runs.

The text is compiled as IPython would compile it, and the names are read from the code: the compiler knows which names
are global and which are a function's own. A cell that is no plain Python (magics, `!shell`) is rewritten first, as
IPython does it where no `transform` is given. A cell that cannot be compiled will not run either; to be
safe, all its words count as names.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import warnings
from collections.abc import Callable, Generator
from types import CodeType
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.state.base.code_objects import attribute_names, cell_names, used_names

Transform = Callable[[str], str]

_FILE = "<ctxkernel: names of a cell>"
_QUIET = ("ignore", None, Warning, re.compile(re.escape(_FILE) + r"|IPython\.core\.inputtransformer2"), 0)
WORD = re.compile(r"[^\W\d]\w*")

_NAMES = """
exec eval globals locals vars get_ipython __main__ __builtins__ Out _oh breakpoint sys.modules testmod
"""
ANYTHING = frozenset(_NAMES.split())
"""Global names through which a cell can reach any variable."""
ANYTHING_IN_A_FUNCTION = ANYTHING - {"vars", "locals"}
"""Those through which a function can: its `locals()` are its own."""
_BELOW = """
_getframe currentframe f_globals f_locals __globals__ user_ns user_global_ns get_objects get_referrers run_cell __main__
testmod
"""
ANYTHING_BELOW = frozenset(_BELOW.split())
"""Attributes through which code can reach any variable."""
_LISTS_NAMES = re.compile(r"\bdir\s*\(\s*\)")

_RUNS = "time timeit prun capture memit mprun lprun snakeviz pyinstrument heat debug scalene"
RUNS_ITS_TEXT = frozenset(_RUNS.split())
"""Magics whose line and body are Python."""

_WORDS_ONLY = """
alias autoawait automagic autosave bash bookmark cat cd clear code_wrap colors conda config connect_info cp dhist dirs
doctest_mode env file hist history html image javascript js killbgscripts latex less load_ext loadpy logoff logon
logstart logstate logstop ls lsmagic magic man markdown matplotlib mkdir more mv notebook page pastebin pdb pdoc perl
pfile pinfo pinfo2 pip popd pprint precision psearch psource pushd pwd pycat pylab pypy python python2 python3 quickref
recall rehashx reload_ext reset reset_selective rm rmdir ruby sc script set_env sh store subshell svg sx system tb uv
unalias unload_ext who who_ls whos writefile xdel xmode ask ctx group view
"""
TOUCHES_ITS_WORDS = frozenset(_WORDS_ONLY.split())
"""Magics that touch no variable but those that they name."""
_TEXT_CELL = re.compile(r"(\s*%%(?:writefile|file|html|HTML|svg|SVG|latex|markdown|javascript|js)\b.*)\n[\s\S]*")
"""A cell whose magic takes the lines below it as a text."""


_KEPT_CHARS = 20_000
"""What was read of a longer cell is not kept."""


@dataclass(frozen=True, slots=True)
class CellNames:
    """The names in the text of a cell."""

    names: frozenset[str] = frozenset()
    """Every global name that it mentions."""
    replaced: frozenset[str] = frozenset()
    """Names that it binds anew."""
    anything: str = ""
    """Why it may touch any variable, or empty."""
    magics: bool = False
    """Whether it calls a magic, which can change the process without naming a variable."""


def code_in(source: str) -> str:
    """Return a cell without the body that its magic takes as a text, such as that of `%%writefile`."""
    found = _TEXT_CELL.fullmatch(source)
    return source if found is None else f"{found[1]}\n"


def read_cell(source: str, transform: Transform | None = None) -> CellNames:
    """Return the names that `source` can touch. Never raises; an unreadable cell gives its words."""
    source = code_in(source)
    return (_read_cell if len(source) <= _KEPT_CHARS else _read_cell.__wrapped__)(source, transform)


@functools.lru_cache(256)
def _read_cell(source: str, transform: Transform | None) -> CellNames:
    found = _Reading(transform)
    found.read(source)
    return CellNames(frozenset(found.names), frozenset(found.replaced), found.anything, found.magics)


def names_used(source: str, transform: Transform | None = None) -> frozenset[str]:
    """Return the global names whose value `source`, or a function in it, uses: loads, deletes, or changes by `+=`.

    A name that a statement at the top level has bound before, whatever happens, is the cell's own and does not count.
    Never raises; of magics, and of what cannot be read, every word counts.
    """
    found = _Reading(transform, uses=True)
    found.read(code_in(source))
    return frozenset(found.used)


def is_python(source: str) -> bool:
    """Return whether `source` can be compiled once its magics and shell lines are left out."""
    return _compile(source) is not None or _compile(plain_source(source)) is not None


def _compile(source: str | ast.Module) -> CodeType | None:
    return _quietly(source, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def syntax_tree(source: str) -> ast.Module | None:
    """Return the syntax tree of `source`, or None where it is no plain Python. Shows no warning about it.

    Several callers ask for the tree of the same cell in a row, and get the same one: nobody changes it.
    """
    return (_syntax_tree if len(source) <= _KEPT_CHARS else _syntax_tree.__wrapped__)(source)


@functools.lru_cache(4)
def _syntax_tree(source: str) -> ast.Module | None:
    return _quietly(source, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


def binds_literals(source: str) -> bool:
    """Return whether a cell only gives literals to names: it calls nothing, and looks up nothing."""
    tree = syntax_tree(source)
    return tree is not None and all(
        isinstance(one, ast.Assign) and all(isinstance(target, ast.Name) for target in one.targets) and _is_literal(one)
        for one in tree.body
    )


def _is_literal(statement: ast.Assign) -> bool:
    todo: list[ast.expr] = [statement.value]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Tuple | ast.List):
            todo += node.elts
        elif isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            todo += node.values
        elif not _is_constant(node):
            return False
    return True


def _is_constant(node: ast.expr) -> bool:
    """Return whether an expression is of numbers and texts alone, such as `-1`, `'a'` and `60 * 60`."""
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and _is_constant(node.right)
    return isinstance(node, ast.Constant)


def plain_source(source: str, transform: Transform | None = None) -> str:
    """Return `source` with calls of `get_ipython()` in place of magics, as far as possible. Never raises."""
    try:
        with _no_warnings():
            return (transform or _stock_transform())(source)
    except Exception:  # whatever the user's input transformers raise; IPython will say it
        return source


def _quietly(source: str | ast.Module, flags: int) -> Any:
    with _no_warnings():
        try:
            return compile(source, _FILE, "exec", flags, dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            return None


@contextlib.contextmanager
def _no_warnings() -> Generator[None]:
    # Our filter is put in by hand: `catch_warnings` makes the interpreter forget which warnings the user has seen.
    warnings.filters.insert(0, _QUIET)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # another thread has replaced the filters
            warnings.filters.remove(_QUIET)  # type: ignore[attr-defined]


class _Reading:
    """The names in a cell, and in the cells that its magics run."""

    def __init__(self, transform: Transform | None, *, uses: bool = False) -> None:
        self.transform = transform
        self.uses = uses
        self.names: set[str] = set()
        self.replaced: set[str] = set()
        self.used: set[str] = set()
        self.anything = ""
        self.magics = False

    def add_words(self, text: str) -> None:
        words = WORD.findall(text)
        self.names.update(words)
        self.used.update(words)

    def read(self, source: str, depth: int = 0) -> None:
        text, code = source, _compile(source)
        if code is None:
            text = plain_source(source, self.transform)
            code = _compile(text)
        if code is None:
            self.add_words(source)
            if self.transform is None:  # else IPython cannot compile it either, and it will not run
                self.anything = self.anything or "a cell that could not be read"
            return
        names, replaced = cell_names(code)
        if "get_ipython" in names and self._only_magics(text, depth):
            names.discard("get_ipython")
        self.names |= names
        self.replaced |= replaced
        if self.uses:
            self.used |= _used(text)
        reached = names & ANYTHING or attribute_names(code) & ANYTHING_BELOW
        if "dir" in names and _LISTS_NAMES.search(text):
            reached |= {"dir"}
        if reached:
            self.anything = self.anything or min(reached)
            self._texts(code)

    def _texts(self, code: CodeType) -> None:
        # Code often holds names that it executes or looks up as texts: these are checked first.
        for const in code.co_consts:
            if type(const) is str:
                self.add_words(const)
            elif type(const) is CodeType:
                self._texts(const)

    def _only_magics(self, text: str, depth: int) -> bool:
        """Read the magics in `text`; return whether `get_ipython` is used for nothing else."""
        tree = syntax_tree(text)
        uses = seen = 0
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Name) and node.id == "get_ipython":
                uses += 1
            match node:
                case ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), method), args):
                    pass
                case _:
                    continue
            texts = [arg.value for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if len(texts) != len(args):
                continue
            if method in ("run_line_magic", "run_cell_magic") and texts:
                name, line, body = [*texts, "", ""][:3]
                self._magic(name, line, body, depth)
                seen += 1
            elif method in ("system", "getoutput", "getoutput_pty"):
                self.add_words(" ".join(texts))
                seen += 1
        return uses == seen

    def _magic(self, name: str, line: str, body: str, depth: int) -> None:
        self.magics = True
        self.add_words(line)
        if name in RUNS_ITS_TEXT:
            if depth > 5:
                self.add_words(body)
                return
            if _compile(line) is not None:
                self.read(line, depth + 1)
            self.read(body, depth + 1)
            if re.search("|".join(sorted(ANYTHING)), line):
                self.anything = self.anything or name
        elif name in TOUCHES_ITS_WORDS:
            self.add_words(body)
        else:
            self.anything = self.anything or f"%{name}"


@functools.cache
def _stock_transform() -> Transform:
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell


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
            used.update(WORD.findall(ast.unparse(statement)))
            continue
        used |= used_names(code) - own
        # `a = b or (c := 1)` may bind c, or not.
        if isinstance(statement, _BINDS) and not any(isinstance(one, ast.NamedExpr) for one in ast.walk(statement)):
            own |= cell_names(code)[1]
    return used
