"""Parse the script dialect: prose, with cells in `<script type="text/x-python">` blocks.

Rule 1: the parts do not depend on the division of the text into deltas: `split_scripts` is one feed of the whole text.
Rule 2: the syntax is lenient for small models: any order, quotes and case of attributes, a Markdown fence around or
        inside the block, no end tag. A fence alone, a script of another type, and a tag in `single backticks` are
        prose here; `fences.py` reads the fences of a response without any script.
Rule 3: a script ends at the first `</script>` before which it is valid Python, so that one in a string literal does not
        end it. If there is none, it ends at the first, and the kernel reports the error. (One in a comment ends it.)
Rule 4: only the kernel reports results. If the model continues as if it were the kernel (a `<ctx:` tag, or
        `--- framework message ---`), the rest is cut: it depends on results that do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from ctxkernel.state.tracking.cell_names import is_python

ScriptPartKind = Literal["text", "script", "fenced", "unfinished", "cut"]


class ScriptPart(NamedTuple):
    """A part of a response, without surrounding blank lines. Only a cell can be empty.

    `unfinished` is a truncated script, which must not be run; `cut` is text of the model as if it were the kernel,
    which is neither shown as an answer nor recorded. Both are always the last part. `fenced` is a cell from a Markdown
    fence (`fences.py`), which this module does not look for.
    """

    kind: ScriptPartKind
    text: str


# A tag's attributes. Bounded, and without `--`, so that no other mark can begin within an incomplete one.
_ATTRIBUTES = r"(?:[^<>-]|-(?!-)){0,200}"
_OPEN = rf"<script\b(?={_ATTRIBUTES}?\btype\s{{0,4}}=\s{{0,4}}[\"']?text/(?:x-)?python\b){_ATTRIBUTES}>"
_FORGED = r"<[\s/]{0,4}ctx:|(?<!-)-{2,8}[ \t]{0,4}framework message[ \t]{0,4}--"
_UNQUOTED = r"(?<!(?<!`)`)"
_MARK = re.compile(rf"{_UNQUOTED}(?:(?P<open>{_OPEN})|{_FORGED})", re.IGNORECASE)
FORGED = re.compile(rf"{_UNQUOTED}(?:{_FORGED})", re.IGNORECASE)
"""Text as if it were the kernel's."""
FORGED_LINE = rf"^[ \t]{{0,40}}(?:{_FORGED})"
"""The same at the beginning of a line, where it ends a cell; a pattern."""
_END = re.compile(rf"(?P<tag></script\s{{0,8}}>)|^[ \t]{{0,40}}(?:{_FORGED}|{_OPEN})", re.IGNORECASE | re.MULTILINE)
_LONGEST = 500
"""A mark is shorter than this."""
_TRIES = 8
"""Most places that are tried as the end of one script."""
_DASHES = re.compile(r"(?<!-)-(?:-{1,7}[ \t]{0,4}[a-z ]{0,17}[ \t]{0,4}-?)?\Z", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(`+|~+)[ \t]*[\w+-]{0,20}[ \t]*")
_FENCE_END = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*(?=\r?\n|\Z)")


def split_scripts(text: str, *, complete: bool = True) -> tuple[ScriptPart, ...]:
    """Return the parts of a response. `complete` is false if a limit or an interrupt truncated it."""
    reader = Scripts()
    return joined([*reader.feed(text), *reader.close(complete=complete)])


def joined(deltas: Iterable[ScriptPart]) -> tuple[ScriptPart, ...]:
    """Join the deltas of a reader to parts."""
    parts: list[ScriptPart] = []
    for one in deltas:
        if parts and parts[-1].kind == one.kind == "text":
            one = ScriptPart("text", parts.pop().text + one.text)
        parts.append(one)
    return tuple(parts)


class Scripts:
    """Parses a response as it arrives. Prose is returned as soon as it is certain, a script when it has ended.

    Consecutive deltas of text belong to one part.
    """

    def __init__(self) -> None:
        self._text = ""
        self._kind: ScriptPartKind = "text"
        self._begin: int = 0
        """Start of the current part."""
        self._at: int = 0
        """Of prose: end of the text that was returned."""
        self._seen = 0
        """Of a script: end of the text that was searched for ends."""
        self._ends: list[tuple[int, int]] = []
        """Possible ends of the script, with the start of the following text."""
        self._fenced = False
        """Whether a fence was opened directly before the script."""

    def feed(self, delta: str) -> list[ScriptPart]:
        """Add a delta. Return the parts that are certain now."""
        self._text += delta
        return self._read(final=False)

    def close(self, *, complete: bool = True) -> list[ScriptPart]:
        """Return the rest. `complete` is false for a truncated response."""
        parts = self._read(final=True)
        rest = self._text[self._begin :]
        if self._kind == "script":
            parts.append(ScriptPart("script" if complete else "unfinished", _cell(rest)))
        elif self._kind == "cut":
            parts.append(ScriptPart("cut", rest.strip()))
        return parts

    def _read(self, *, final: bool) -> list[ScriptPart]:
        parts: list[ScriptPart] = []
        before = None
        while before != (self._kind, self._begin):
            before = self._kind, self._begin
            if self._kind == "text":
                parts += self._prose(final=final)
            elif self._kind == "script":
                parts += self._code(final=final)
        return parts

    # -- prose -----------------------------------------------------------------------------------

    def _prose(self, *, final: bool) -> list[ScriptPart]:
        if self._fenced and self._at == self._begin:
            rest = self._text[self._begin :]
            if not final and not rest.strip().strip("`~"):
                return []  # it can be the rest of the fence
            closing = _FENCE_END.match(rest)
            if closing is not None:
                self._fenced = False
                self._begin = self._at = self._begin + closing.end()
        found = _MARK.search(self._text, self._at)
        opens = found is not None and found["open"] is not None
        prose = self._prose_before(found.start() if found else len(self._text) if final else self._sure(), final, opens)
        if found is not None:
            self._kind = "script" if opens else "cut"
            self._begin = self._at = self._seen = found.end() if opens else found.start()
            self._ends = []
        return prose

    def _sure(self) -> int:
        """Return the end of the text that cannot become a mark, whatever follows."""
        text = self._text
        tag = text.rfind("<", max(self._at, len(text) - _LONGEST))
        if tag >= 0:
            low = text[tag:].lower()
            if "<script".startswith(low[:7]) or "ctx:".startswith(low[1:].lstrip(" \t\r\n/")):
                return tag
        dashes = _DASHES.search(text, max(self._at, len(text) - 50))
        return dashes.start() if dashes else len(text)

    def _prose_before(self, end: int, final: bool, opens: bool) -> list[ScriptPart]:
        """Return the prose up to `end`, without white space and a fence that can belong to a following script."""
        text = self._text
        end = self._at + len(text[self._at : end].rstrip())
        line = max(text.rfind("\n", self._begin, end) + 1, self._begin)
        fence = _FENCE.fullmatch(text, line, end)
        opened = opens and fence is not None and len(fence[1]) >= 3
        if opened or (fence is not None and not opens and not final):
            end = self._at + len(text[self._at : line].rstrip())
        prose = text[self._at : end]
        if self._at == self._begin:
            prose = prose.lstrip()
        self._fenced = opened or (self._fenced and not prose)
        if not prose:
            return []
        self._at = end
        return [ScriptPart("text", prose.replace("\r\n", "\n"))]

    # -- scripts ---------------------------------------------------------------------------------

    def _code(self, *, final: bool) -> list[ScriptPart]:
        for found in _END.finditer(self._text, self._seen):
            self._seen = found.end()
            after = found.end() if found["tag"] else found.start()
            self._ends.append((found.start(), after))
            code = self._text[self._begin : found.start()]
            if is_python(_cell(code)):
                return self._ended(found.start(), after)
            if len(self._ends) == _TRIES or not ("'" in code or '"' in code):  # without strings, so not in one
                return self._ended(*self._ends[0])
        if final and self._ends:
            return self._ended(*self._ends[0])
        self._seen = max(self._seen, len(self._text) - _LONGEST)
        return []

    def _ended(self, end: int, after: int) -> list[ScriptPart]:
        script = self._text[self._begin : end]
        self._kind, self._begin, self._at = "text", after, after
        return [ScriptPart("script", _cell(script))]


def _cell(text: str) -> str:
    """Return the code of a script, without surrounding blank lines or fence."""
    lines = text.replace("\r\n", "\n").rstrip().split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    fence = _FENCE.fullmatch(lines[first])
    if fence is not None and len(fence[1]) >= 3:
        first += 1
        if lines[-1].strip() == fence[1]:
            del lines[-1]
    return "\n".join(lines[first:]).rstrip()
