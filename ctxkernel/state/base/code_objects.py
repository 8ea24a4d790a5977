"""Code objects: the global names that they use, and a digest of their behaviour.

Rule: line numbers, file names and layout do not count: the same cell run again makes equal functions.
"""

from __future__ import annotations

import dis
import itertools
import marshal
import re
import types
from collections.abc import Collection
from typing import Any

from xxhash import xxh3_64_intdigest

_GLOBAL_LOAD = dis.opmap["LOAD_GLOBAL"]
_NAMED = "LOAD_NAME STORE_NAME DELETE_NAME STORE_GLOBAL DELETE_GLOBAL LOAD_FROM_DICT_OR_GLOBALS"
_NAME_OPS = frozenset(dis.opmap[name] for name in _NAMED.split() if name in dis.opmap)
_USES = _NAME_OPS - {dis.opmap["STORE_NAME"], dis.opmap["STORE_GLOBAL"]}
_STORES = frozenset(dis.opmap[name] for name in ("STORE_NAME", "STORE_GLOBAL"))
_IMPORT, _IMPORT_FROM = dis.opmap["IMPORT_NAME"], dis.opmap["IMPORT_FROM"]
_BINARY = dis.opmap["BINARY_OP"]
_IN_PLACE = 13
"""BINARY_OP arguments from here on are the augmented assignments."""

_CODES: dict[int, tuple[types.CodeType, CodeFacts]] = {}
_MOST_CODES = 4000


class CodeFacts:
    """The digest and the global names of one code object, with those inside it."""

    __slots__ = ("digest", "names")

    def __init__(self, code: types.CodeType) -> None:
        names, _ = _global_names(code)
        parts: list[object] = [code.co_name, code.co_qualname, code.co_argcount, code.co_posonlyargcount]
        parts += [code.co_kwonlyargcount, code.co_flags, code.co_code, code.co_names, code.co_varnames]
        parts += [code.co_freevars, code.co_cellvars, code.co_exceptiontable]
        for const in code.co_consts:
            if type(const) is types.CodeType:
                inner = code_facts(const)
                names |= inner.names
                parts.append(inner.digest)
            else:
                parts.append(_constant(const))
        self.names = frozenset(names)
        """Global names that are loaded, stored or deleted."""
        self.digest = xxh3_64_intdigest(marshal.dumps(parts, 2))


def _constant(const: Any) -> object:
    try:
        return marshal.dumps(const, 2)
    except ValueError:  # a slice, from Python 3.14 on
        return repr(const)


def _global_names(code: types.CodeType, ops: Collection[int] = _NAME_OPS) -> tuple[set[str], set[str]]:
    """Return the names that `code` mentions, without those of functions in it, and those that it binds anew.

    Of instructions on names, only `ops` count. An import of `a.b` mentions `module:a` and `module:a.b` as well, and
    code with both of these words `sys.modules`.
    """
    names: set[str] = set()
    replaced: set[str] = set()
    table, raw = code.co_names, code.co_code
    extended = previous = previous_argument = 0
    module = ""
    for at in range(0, len(raw), 2):
        op = raw[at]
        if op == 0:  # room for the interpreter's own caches
            continue
        argument = raw[at + 1] | extended
        if op == dis.EXTENDED_ARG:
            extended = argument << 8
            continue
        extended = 0
        if op == _GLOBAL_LOAD:
            names.add(table[argument >> 1])
        elif op in ops:
            names.add(table[argument])
            if op in _STORES and not (previous == _BINARY and previous_argument >= _IN_PLACE):
                replaced.add(table[argument])
        elif op == _IMPORT and ops is _NAME_OPS:
            module = "module"
            for depth, part in enumerate(table[argument].split(".")):
                module += f"{'.' if depth else ':'}{part}"
                names.add(module)
        elif op == _IMPORT_FROM and ops is _NAME_OPS:
            names.add(f"{module}.{table[argument]}")
        previous, previous_argument = op, argument
    if "modules" in table and "sys" in table and ops is _NAME_OPS:
        names.add("sys.modules")
    return names, replaced


def code_facts(code: types.CodeType) -> CodeFacts:
    """Return the facts of `code`. Code objects never change, so they are kept, up to a bound."""
    found = _CODES.get(id(code))
    if found is None:
        if len(_CODES) >= _MOST_CODES:
            _CODES.clear()
        facts = CodeFacts(code)
        _CODES[id(code)] = code, facts
        return facts
    return found[1]


_DEFINES = re.compile(
    "CACHE|RESUME|NOP|EXTENDED_ARG|POP_TOP|PUSH_NULL|COPY|SWAP|KW_NAMES|RETURN_.*|LOAD_(CONST.*|SMALL_INT|NAME)|IMPORT_.*"
    "|(STORE|DELETE)_(NAME|GLOBAL)|SETUP_ANNOTATIONS|MAKE_(FUNCTION|CELL)|SET_FUNCTION_ATTRIBUTE|BUILD_(TUPLE|LIST|MAP)"
)
_RUNS = frozenset(number for name, number in dis.opmap.items() if not _DEFINES.fullmatch(name))
"""Instructions that may run a function that the code defines: a call, an operator, an attribute with a setter."""


def attribute_names(code: types.CodeType) -> set[str]:
    """Return every attribute and imported name in the code, and in the functions in it."""
    names = set(code.co_names) - _global_names(code)[0]
    return names.union(*map(attribute_names, _inner(code)))


def used_names(code: types.CodeType) -> set[str]:
    """Return every global name that the code, or a function in it, loads or deletes: one of `+=` is loaded."""
    return _global_names(code, _USES)[0].union(*map(used_names, _inner(code)))


SETTERS = frozenset(("setattr", "delattr"))


def sets_only_self(code: types.CodeType) -> bool:
    """Return whether each `setattr` and `delattr` in the code, and in the functions in it, is one of `self`."""
    for step, first in itertools.pairwise(dis.get_instructions(code)):
        if step.opname.startswith("LOAD_") and step.argval in SETTERS:
            loaded: Any = first.argval  # several variables, where one instruction loads them
            if not first.opname.startswith("LOAD_FAST") or (loaded if type(loaded) is str else loaded[0]) != "self":
                return False
    return all(map(sets_only_self, _inner(code)))


def string_constants(code: types.CodeType) -> set[str]:
    """Return the texts in the code, and in the functions in it."""
    texts = {const for const in code.co_consts if type(const) is str}
    return texts.union(*map(string_constants, _inner(code)))


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [const for const in code.co_consts if type(const) is types.CodeType]


def cell_names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Return every global name that the code of a cell may use, and those that it binds other than by `+=`.

    Where the cell only defines and binds, it calls none of the functions that it defines: their names do not count.
    """
    names, replaced = _global_names(code)
    if _RUNS.isdisjoint(code.co_code[::2]):
        return names, replaced
    inner = _inner(code)
    for one in inner:
        names |= _global_names(one)[0]
        inner += _inner(one)
    return names, replaced
