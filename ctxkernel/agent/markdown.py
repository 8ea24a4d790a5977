r"""Make a model's answer safe for display as Markdown, as it streams: text, links and code, and nothing else.

Rule 1: no renderer loads (images), runs (`javascript:`) or interprets as HTML any of it.
Rule 2: code keeps its characters exactly. So that every renderer recognises the same code, code is written in one form:
        a fence of more backticks than any in it, closed, each line indented like the fence; a span on one line.
        Backticks that are not code are escaped.
Rule 3: a span that some front end reads differently (with `|`, which separates the cells of a table, with a delimiter
        of LaTeX, with other backticks, or directly after `\`, `~` or an address) becomes a `<code>` element with its
        characters as numbers: the only HTML in the result.
Rule 4: LaTeX is kept, with a space inserted where something active would begin. Commands that create links, styles or
        other elements are broken up. JupyterLab removes LaTeX before it parses Markdown and restores it in the HTML; so
        none may be in an address or a title, or cross the border of code: an address ends before it, and blank lines
        surround a fence, which LaTeX does not cross.
Rule 5: the cost is linear in the length of the text: one pass, and no pattern with backtracking.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_FENCE = re.compile(
    r"(?P<quote>(?: {0,4}>)*+)(?P<indent>[ \t]*)(?P<item>(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
    r"(?P<fence>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<language>[\w+#.-]{0,40})"
)
_QUOTE = re.compile(r" {0,4}>")
_DRAWN = frozenset({"mermaid"})
"""Languages that a front end draws instead of displaying the code."""

_MACRO = r"\\(?=(?:href|style|class|cssId|data|mmlToken|csname|require)(?![a-zA-Z]))"
_TOKEN = re.compile(
    rf"(?P<macro>{_MACRO})|(?P<at>@@)|\\(?P<tick>`+)|\\(?P<less><)|(?P<pair>\\[!-/:-@\[-`{{-~])"
    r"|(?P<label>^[ \t>*+.)\d-]*+\[)|(?P<run>`+)|(?P<tilde>~{3,})|(?P<lt><)|(?P<bang>!(?=\[))|(?P<link>\](?=[(:]))"
    r"|(?P<math>\$\$(?:[^$`\n\\]|\\[^\n`]|\n(?![ \t]*(?:\n|\Z)))+\$\$|\$(?:[^$`\n\\]|\\[^\n`])+\$)|(?P<other>[$\\])",
    re.MULTILINE,
)
_LABEL = re.compile(r"\[(?:[^\[\]\\`\n]|`[^`\[\]\n]*`)*+\]")
_IN_MATH = re.compile(rf"<(?=[A-Za-z/!?])|!(?=\[)|\](?=[(:])|~~(?=~)|{_MACRO}")
_CHAR = r"[^\s()<>\\`$\"'@]|@(?!@)"
_TITLE = r"(?:\"[^\"\\`$@\n]*\"|'[^'\\`$@\n]*')"
_SAFE_TARGET = re.compile(
    rf"\((?:(?:https?://|mailto:|#)(?:{_CHAR}|\((?:{_CHAR})*+\))*+|(?:\.{{0,2}}/)?\w[\w./-]*+(?:[?#](?:{_CHAR})*+)?)"
    rf"(?:[ \t]+{_TITLE})?[ \t]*\)"
    rf"|:[ \t]*\n?[ \t]*https?://(?:{_CHAR})*+[ \t]*(?=\n(?![ \t]*[\"'(])|\Z)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?:(?:https?|ftp)://|www\.)[^ \t\n]*", re.IGNORECASE)
"""Text that a renderer can take for an address."""
_DOUBTFUL = re.compile(r"[`|]|@@|\\(?:begin|end)\b|\\\\[()\[\]]")
_RUN = re.compile(r"`+|\n")


def safe_markdown(text: str) -> str:
    """Return `text` as Markdown that loads nothing, runs nothing and contains no HTML."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    out: list[str] = []
    at = begin = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            at += 1
            continue
        if begin < at:
            out.append(_prose("\n".join(lines[begin:at])))
        end, code = _fenced(lines, at + 1, opening)
        out += _block(opening, code, first=not out)
        if end < len(lines) and lines[end].strip():
            out.append("")
        at = begin = end
    if begin < at:
        out.append(_prose("\n".join(lines[begin:])))
    return "\n".join(out)


# -- fences ----------------------------------------------------------------------------------------


def _fenced(lines: Sequence[str], at: int, opening: re.Match[str]) -> tuple[int, list[str]]:
    """Return the line after the fence that was opened before `at`, and its code."""
    depth, indent = opening["quote"].count(">"), _indent(opening)
    closing = re.compile(rf"[ \t]*{opening['fence'][0]}{{{min(len(opening['fence']), 999)},}}[ \t]*")
    code: list[str] = []
    for number in range(at, len(lines)):
        line = _unquoted(lines[number], depth)
        if line is None:
            return number, code
        if closing.fullmatch(line) and len(line) - len(line.lstrip()) <= indent + 3:
            return number + 1, code
        code.append(_less_indented(line, indent))
    return len(lines), code


def _indent(opening: re.Match[str]) -> int:
    wide = opening["indent"].expandtabs(4)
    return max(len(wide) - bool(opening["quote"]), 0) + len(opening["item"] or "")


def _unquoted(line: str, depth: int) -> str | None:
    """Return a line without its `depth` quotation marks; None if it has fewer."""
    if not depth:
        return line
    at = 0
    for _ in range(depth):
        mark = _QUOTE.match(line, at)
        if mark is None:
            return None
        at = mark.end()
    return line[at:].removeprefix(" ")


def _less_indented(line: str, indent: int) -> str:
    """Return a line without the blanks in its first `indent` columns."""
    head = len(line) - len(line.lstrip(" \t"))
    blank = line[:head].expandtabs(4) if indent and "\t" in line[:head] else line[:head]
    return blank[min(indent, len(blank)) :] + line[head:]


def _block(opening: re.Match[str], code: Sequence[str], *, first: bool) -> list[str]:
    """Return the lines of a fenced block."""
    quote = "> " * opening["quote"].count(">")
    before = [] if first else [""]  # otherwise a paragraph would continue with a deeply indented fence
    if opening["item"]:
        before.append(quote + " " * (_indent(opening) - len(opening["item"])) + opening["item"].rstrip())
    longest = max((len(run) for line in code for run in re.findall("`{3,}", line)), default=2)
    fence, lead = "`" * (longest + 1), quote + " " * _indent(opening)
    language = "text" if opening["language"].lower() in _DRAWN else opening["language"]
    return [*before, f"{lead}{fence}{language}", *[lead + line for line in code], f"{lead}{fence}"]


# -- prose -----------------------------------------------------------------------------------------


def _prose(text: str) -> str:
    closings = _closings(text)
    addresses = _ADDRESS.finditer(text)
    address = next(addresses, None)
    out: list[str] = []
    done = 0
    while found := _TOKEN.search(text, done):
        start = found.start()
        out.append(text[done:start])
        done = found.end()
        while address is not None and address.end() < start:
            address = next(addresses, None)
        within = address is not None and address.start() < start
        if within and found[0][0] in "$\\@":
            out.append(" ")
        match found.lastgroup:
            case "macro":
                out.append("\\ ")
            case "lt" | "less":
                out.append("&lt;")
            case "label" if not _LABEL.match(text, done - 1):  # some renderers search for its end in the following code
                out.append(found[0][:-1] + "\\[")
            case "bang":
                out.append("\\!")
            case "link":
                out.append("]" if _SAFE_TARGET.match(text, done) else "]\\")
            case "math":
                out.append(_IN_MATH.sub(r"\g<0> ", found[0]))
            case "run" if start in closings:
                end = closings[start]
                code, done = text[done:end], end + len(found[0])
                doubtful = within or _DOUBTFUL.search(code) or text[max(start - 1, 0) : start] in ("\\", "~")
                out.append(_code(code) if doubtful else text[start:done])
            case "tick" | "tilde" | "run":
                out.append("".join(["\\" + char for char in found[0].lstrip("\\")]))
            case _:
                out.append(found[0])
    return "".join([*out, text[done:]])


def _code(text: str) -> str:
    """Return a span of code in which no rule of Markdown or LaTeX applies."""
    shown = text[1:-1] if text.strip(" ") and text[0] == text[-1] == " " else text
    return f"<code>{''.join([c if c.isalnum() or c == ' ' else f'&#{ord(c)};' for c in shown])}</code>"


def _closings(text: str) -> dict[int, int]:
    """Return the start of each run of backticks → the start of the next run of its length on the same line."""
    closings: dict[int, int] = {}
    last: dict[int, int] = {}
    for run in _RUN.finditer(text):
        if run[0] == "\n":
            last.clear()
            continue
        before = last.get(len(run[0]))
        if before is not None:
            closings[before] = run.start()
        last[len(run[0])] = run.start()
    return closings
