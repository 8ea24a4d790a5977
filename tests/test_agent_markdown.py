"""A model's answer, shown as Markdown, loads nothing, runs nothing and holds no HTML, whoever renders it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from scale import examples

from ctxkernel.agent.markdown import safe_markdown

TAGS = """
a blockquote br code dd del div dl dt em h1 h2 h3 h4 h5 h6 hr input li ol p pre s section strong sup table tbody td th
thead tr ul
"""
OURS = frozenset(TAGS.split())
"""Tags that Markdown itself makes; `input` is the box of a task."""
SAFE_LINK = re.compile(r"(?:https?://|mailto:|#|[\w./%-]*(?:$|[#?]))", re.IGNORECASE)


def renderers() -> list[Callable[[str], str]]:
    """Return what turns Markdown into HTML, with raw HTML and every target allowed."""
    mistune = import_module("mistune")
    plugins = ["table", "strikethrough", "footnotes", "task_lists", "url", "def_list"]
    renderer = mistune.HTMLRenderer(escape=False, allow_harmful_protocols=True)
    made: list[Any] = [mistune.create_markdown(renderer=renderer, plugins=plugins)]
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return made
    plain = MarkdownIt("commonmark", {"html": True})
    gfm = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for one in (plain, gfm):
        one.validateLink = lambda url: True  # type: ignore[method-assign]
        made.append(one.render)
    return made


RENDERERS = renderers()


class Page(HTMLParser):
    """What a browser would make of a text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.codes: list[str] = []
        self.text = ""
        self._code = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in OURS:
            self.faults.append(f"<{tag}>")
        for name, value in attrs:
            target = re.sub(r"[\x00-\x20]", "", value or "")
            if name.startswith("on") or name in ("src", "srcset", "background", "action"):
                self.faults.append(name)
            if name == "style" and not re.fullmatch(r"text-align:\s*\w+;?", value or ""):
                self.faults.append(f"style={value}")
            if name == "href" and not SAFE_LINK.match(target):
                self.faults.append(f"href={value}")
        if tag == "code":
            self._code = True
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self._code = self._code and tag != "code"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._code:
            self.codes[-1] += data

    def handle_comment(self, data: str) -> None:
        self.faults.append("a comment")

    def handle_decl(self, decl: str) -> None:
        self.faults.append("a declaration")

    def handle_pi(self, data: str) -> None:
        self.faults.append("an instruction")

    def unknown_decl(self, data: str) -> None:
        self.faults.append("a section")


def pages(text: str) -> list[Page]:
    return [Page(render(text)) for render in RENDERERS]


EVIL = "<img src=x onerror=alert(1)>"
TRICKS = [
    EVIL,
    "<script>alert(1)</script>",
    "</div><iframe src='//e'></iframe>",
    "<!-- --><b>",
    "<?php x ?><![CDATA[x]]><!DOCTYPE x>",
    "<a href='javascript:alert(1)'>x</a>",
    "<https://e.org> <me@e.org> <javascript:alert(1)>",
    "![x](https://e/i.png)",
    "![x][r]\n\n[r]: https://e/i.png",
    "![r]\n\n[r]:\nhttps://e/i.png 'title'",
    "[![x](https://e/i.png)](https://e)",
    "\\\\![x](https://e/i.png)",
    "![a\nb](https://e/i.png)",
    "!\\[x](https://e/i.png)",
    "[x](javascript:alert(1))",
    "[x](  JaVaScRiPt:alert(1) 'title')",
    "[x](\njavascript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](java\\script:alert(1))",
    "[x](<javascript:alert(1)>)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x) [y](file:///etc/passwd) [z](\x01javascript:x)",
    "[x]\n\n[x]: javascript:alert(1)",
    "> [x]\n\n- [x]: javascript:alert(1)",
    "[x][y]\n\n[y]:\n  <data:text/html,x>",
    f"`a\n\n{EVIL}`",
    f"foo ` bar\n`{EVIL}` baz",
    f"`` a ` {EVIL} ``` b",
    f"\\`{EVIL}`",
    f"\\\\`{EVIL}`",
    f"\\``{EVIL}`",
    f"a `\\`{EVIL}`\\`",
    f"```{EVIL}```",
    f"| a | b |\n|---|---|\n| `x | {EVIL}` |",
    f"[``a`](javascript:alert(1))``{EVIL}",
    f"[`](javascript:alert(1))`]{EVIL}",
    f"```\ncode\n{EVIL}",
    f"```\ncode\n```\n{EVIL}",
    f"~~~ `a`\n{EVIL}\n~~~\n{EVIL}",
    f"````\n```\n{EVIL}\n````\n{EVIL}",
    f"1. foo\n   ```\n{EVIL}\n   ```\n{EVIL}",
    f"foo\n      ```\n      {EVIL}\n\n      ```\n{EVIL}",
    f"- a\n  - b\n      ```\n      x\n      ```\n{EVIL}",
    f"- ```\n\n{EVIL}\n  ```\n{EVIL}",
    f"- - ~~~\n\n{EVIL}\n~~~\n{EVIL}\n",
    f"> ```\n{EVIL}\n> ```\n{EVIL}",
    f"> > ```\n> {EVIL}\n```\n{EVIL}",
    f"\t```\n\t{EVIL}\n{EVIL}",
    f"``` a`b\n{EVIL}\n```\n{EVIL}",
    f'```x" onload="alert(1)\n{EVIL}\n```',
    f"```\r{EVIL}\r```\r{EVIL}",
    f"    {EVIL}\n\n\t`{EVIL}`",
    f"$x$ {EVIL} $$\n{EVIL}\n$$ $a{EVIL}$",
    "$![x](https://e/i.png)$ $[x](javascript:y)$\n$$\n[x]: javascript:y\n$$\n[x]",
    f"$$\n- - ~~~\n$$\n\n    ```\n    ~~~\n    {EVIL}\n    ```",
    f"[x](https://e/{EVIL}) [y](https://e '{EVIL}')",
    f"# `a` {EVIL}\n{EVIL}\n===",
    f"[^1]\n\n[^1]: {EVIL}",
    f"term\n: {EVIL}",
    "x\\<b>y\\\\<b>z",
    f"```\n\\begin{{a}}\n```\n\\end{{a}}\n\n```\n{EVIL}\n```",
    f"`\\begin{{a}}` x \\end{{a}} `{EVIL}`",
    f"\\\\( `x \\\\) {EVIL}` y",
    f"> ```\n> $\n> ```\n> $ `{EVIL}`",
    '[x](https://e "$" onmouseover="alert(1)$") https://e/$" onclick="alert(1)" $ [y](https://e/$"onx=$)',
    '[x]: https://e\n"$" onx="$"\n\n[x]',
    '$" onx="$ @@0@@ [x](https://e/@@0@@)',
    f"https://e`{EVIL}` https://e<`{EVIL}` www.e.org`{EVIL}`",
    f"\\~~~`{EVIL}` ~~`{EVIL}`",
    f"[a\n\n```\nb]: c\n===\n{EVIL}\n```",
    f"> - [a `\n\n```\nb]: c\n{EVIL}\n```",
    "[y](https://e/a_(b)) [z](https://e/a_(b(c)d)) [w](javascript:a(b)c)",
]


@pytest.mark.parametrize("text", TRICKS)
def test_no_trick_makes_html_of_an_answer(text: str):
    assert [page.faults for page in pages(safe_markdown(text))] == [[]] * len(RENDERERS)


PIECES = [
    *(
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        "\n\n",
        "    ",
        "   ",
        "  ",
        " ",
        "> ",
        "- ",
        "1. ",
        "|",
        "|---|",
        "\t",
        "\r",
        "\\",
    ),
    *(
        EVIL,
        "<b>",
        "<",
        ">",
        "![",
        "[",
        "]",
        "](",
        "]:",
        "(",
        ")",
        "javascript:x",
        "https://e",
        "$",
        "$$",
        "x",
        "#",
        "!",
    ),
    *(f"`{EVIL}`", "\\begin{a}", "\\end{a}", "\\\\(", "\\\\)", '"$', '" onx="', "@@0@@", f"\n```\n{EVIL}\n```\n"),
    *("&#33;", "===", "---", "*", "_", "[x]", "data:,x", "<!--", "-->", "\x0b", "\u2028"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=20))
@profile(max_examples=examples(300))
@example(["- ", "```", "\n\n", EVIL, "\n", "  ", "```"])
def test_no_mixture_of_marks_makes_html_of_an_answer(pieces: list[str]):
    shown = safe_markdown("".join(pieces))

    assert [page.faults for page in pages(shown)] == [[]] * len(RENDERERS), shown


@given(st.text(st.sampled_from("`~<>![]()\\:$|- \n1.ab&#\t"), max_size=60))
@profile(max_examples=examples(300))
def test_no_text_at_all_makes_html_of_an_answer(text: str):
    shown = safe_markdown(text)

    assert [page.faults for page in pages(shown)] == [[]] * len(RENDERERS), shown


# -- what is meant -------------------------------------------------------------------------------

CODES = [
    ("a `x < y` b", ["x < y"]),
    ("`` a ` b `` and `&lt;`", ["a ` b", "&lt;"]),
    ("`list[str](x)` and `![x](y)`", ["list[str](x)", "![x](y)"]),
    ("| `a` | `b < c` |\n|---|---|\n| `d` | e |", ["a", "b < c", "d"]),
    ("```python\nif a < b:\n    x = '![x](y)'\n```", ["if a < b:\n    x = '![x](y)'\n"]),
    ("~~~\n```\n<b>\n```\n~~~", ["```\n<b>\n```\n"]),
    ("```\na\n\n\tb <c>\n", ["a\n\n\tb <c>\n"]),
    ("1. do\n   ```sh\n   a < b\n\n     c\n   ```\n2. then `x<y`", ["a < b\n\n  c\n", "x<y"]),
    ("- a\n  - b\n\n    ```\n    <c>\n    ```\n", ["<c>\n"]),
    ("- ```\n  <c>\n  ```\n- d", ["<c>\n"]),
    ("10. ```\n    <c>\n    ```", ["<c>\n"]),
    ("> says\n> ```\n> a < b\n>\n>  c\n> ```\n> end", ["a < b\n\n c\n"]),
    ("```\n```\n", [""]),
    ("`Dict<str | int>` and `\\\\(a\\\\)` and `` `<b>` ``", ["Dict<str | int>", "\\\\(a\\\\)", "`<b>`"]),
]


@pytest.mark.parametrize(("text", "codes"), CODES)
def test_code_keeps_its_characters(text: str, codes: list[str]):
    shown = pages(safe_markdown(text))

    assert [[code.rstrip("\n") for code in page.codes] for page in shown if "|" not in text or page.codes] == [
        [code.rstrip("\n") for code in codes]
    ] * len(shown)
    assert all(not page.faults for page in shown)


SHOWN = [
    ("a < b, <b>c</b> & &lt;", "a < b, <b>c</b> & <"),
    ("x\\<y", "x<y"),
    ("an ![image](https://e/i.png)", "an !image"),
    ("<https://e.org>", "<https://e.org>"),
    ("half a `span", "half a `span"),
    ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
    ("[note]: see", "[note]: see"),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_what_is_no_code_reads_as_it_was_written(text: str, shown: str):
    assert [page.text.strip() for page in pages(safe_markdown(text))] == [shown] * len(RENDERERS)


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\n*a* **b** [c](https://e.org 'd') [e](../f/g.ipynb) [h](#i)\n\n- j\n- k\n\n> l\n\n---\n\n1. m",
        "$a_1 < b$, $$\\int_0^1 x\\,dx$$ and \\(a\\) \\[b\\]",
        "see [a][b]\n\n[b]: https://e.org/",
        "| a | b |\n|---|:-:|\n| 1 | `2` |",
        "```python\nx = 1\n```",
        "it costs $5 and 10 % of $x$",
        "- [ ] a\n- [x] b\n\n[c](https://e.org)\n[`d`](e.md)",
    ],
)
def test_plain_markdown_stays_as_it_is(text: str):
    assert safe_markdown(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("$a<b$", "$a< b$"),
        ("$\\href{javascript:x}{y}$ \\(\\style{a}{b}\\)", "$\\ href{javascript:x}{y}$ \\(\\ style{a}{b}\\)"),
        ("```mermaid\na\n```", "```text\na\n```"),
        ("a\n```\nb\n```\nc", "a\n\n```\nb\n```\n\nc"),
        ('https://e/$" onx="$', 'https://e/ $" onx="$'),
        ('[a](https://e "$x$")', '[a]\\(https://e "$x$")'),
    ],
)
def test_what_a_front_end_would_draw_or_load_is_broken_up(text: str, shown: str):
    assert safe_markdown(text) == shown


WORST = [
    *((mark, 1_000_000) for mark in "[`<!"),
    *((mark, 200_000) for mark in ("$", "~", "\\", " ", "\n", "](", "](a", "]: ", "$$", "$a ", "![", "- ", "> ")),
    *((mark, 200_000) for mark in ("\\`", "\\\\`", "` `` ", "```\n", "~~~ ", "    ", "> > ", "1. ```\n")),
]


@pytest.mark.parametrize(("unit", "size"), WORST)
def test_a_megabyte_of_anything_takes_no_time(unit: str, size: int):
    costs: list[float] = []
    for length in (size // 8, size):
        start = time.process_time()
        safe_markdown(unit * (length // len(unit)))
        costs.append(time.process_time() - start)

    assert costs[1] < 0.1 + 20 * costs[0]


def test_runs_of_every_length_take_no_time():
    runs = [" ".join("`" * length for length in range(1, most)) for most in (250, 700)]
    costs: list[float] = []
    for text in runs:
        start = time.process_time()
        safe_markdown(f"{text} {text}")
        costs.append(time.process_time() - start)

    assert len(runs[1]) > 200_000
    assert all(after < 0.1 + 20 * before for before, after in pairwise(costs))
