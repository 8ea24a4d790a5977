"""Texts that would do harm where one of them is taken for more than text, by kind.

A text that becomes active sets `window.__pwned`, or asks a host whose name ends in `evil.test`. `cells_of` brings a
text into every field of a session that a cell can reach.
"""

from __future__ import annotations

import json

SETS = "window.__pwned=1"
AT = "http://evil.test/hit"

HTML = {
    "a script": f"<script>{SETS}</script>",
    "a script from another host": f"<script src={AT}.js></script>",
    "an image that fails": f'<img src="x:" onerror="{SETS}">',
    "an image of another host": f"<img src={AT}.png>",
    "an SVG": f"<svg onload={SETS}><script>{SETS}</script></svg>",
    "a frame": f"<iframe srcdoc='<script>parent.{SETS}</script>'></iframe><object data={AT}></object><embed src={AT}>",
    "the end of a script": f"</script></style></title></textarea></pre><script>{SETS}</script>",
    "the end of an attribute": f"\" onmouseover=\"{SETS}\" autofocus onfocus='{SETS}' x='",
    "styles": f"<style>@import url({AT}.css);*{{display:none!important}}</style><link rel=stylesheet href={AT}.css>",
    "a page that moves": f'<meta http-equiv=refresh content="0;url={AT}"><base href={AT}>',
    "a form": f"<form action={AT}><input autofocus onfocus={SETS}><button>Run</button></form>",
    "details that open": f"<details open ontoggle={SETS}><video><source onerror={SETS}></video></details>",
    "entities": f"&lt;script&gt;{SETS}&lt;/script&gt;&#60;img src=x onerror={SETS}&#62;",
    "broken markup": f"<img src=`x` onerror={SETS}//<<script>{SETS}</scr\0ipt><![CDATA[<script>{SETS}</script>]]>",
    "a comment": f"<!--><script>{SETS}</script>--><noscript><p title='</noscript><img src=x onerror={SETS}>'>",
    "MathML": f"<math><mtext><table><mglyph><style><img src=x onerror={SETS}></style></mglyph></table></mtext></math>",
    "a template": f"{{{{constructor.constructor('{SETS}')()}}}} ${{{SETS}}} <%= {SETS} %> #{{{SETS}}} {{% x %}}",
}
MARKDOWN = {
    "a link to a script": f"[click](javascript:{SETS}) [c](java\tscript:{SETS}) <javascript:{SETS}>",
    "a link to data": f"[click](data:text/html;base64,PHNjcmlwdD4x) [c](vbscript:{SETS})",
    "an image in Markdown": f'![a]({AT}.png "b") ![c][d]\n\n[d]: {AT}.png',
    "HTML in Markdown": f'**x** <img src=x onerror="{SETS}">\n\n<details><script>{SETS}</script></details>',
    "an address": f"{AT} <{AT}> www.evil.test/hit mailto:a@evil.test",
    "LaTeX": f"$\\href{{javascript:{SETS}}}{{x}}$ $$\\style{{background:url({AT})}}{{x}}$$ \\(\\require{{html}}\\)",
    "a fence that ends": f"```\n<img src=x onerror={SETS}>\n````\n~~~html\n<script>{SETS}</script>",
    "a table": f"|<img src=x onerror={SETS}>|![a]({AT}.png)|\n|-|-|\n|[x](javascript:{SETS})|y|",
    "mermaid": f'```mermaid\ngraph TD; A["<img src=x onerror={SETS}>"] --> B; click A "javascript:{SETS}"\n```',
}
ORDER = {
    "an override": "access = '\u202eresu\u202c' # \u2066 if admin\u2069",
    "isolates": "\u2067\u2066 x \u2069\u2069 \u202a\u202b\u202d\u202c \u200e\u200f\u061c",
    "zero widths": "pass\u200bword = pass\u2060word\ufeff # a\u00adb\u200c\u200d",
    "blank letters": "\u3164 = \u1160\u115f\uffa0\u2800",
    "tags and selectors": "x\U000e0065\U000e0076\U000e0069\U000e006c y\ufe00\ufe0f\U000e0100",
    "line separators": "a = 1\u2028b = 2\u2029c = 3\x85d = 4\x0be = 5\x0cf = 6\x1cg = 7",
}
TERMINAL = {
    "colours": "\x1b[31;8mhidden\x1b[0m\x9b31mred\x9b0m",
    "a title and the clipboard": "\x1b]0;evil\x07\x1b]52;c;ZXZpbA==\x07\x1b]2;x\x1b\\",
    "a link of a terminal": f"\x1b]8;;{AT}\x07click\x1b]8;;\x07 \x1b]8;;javascript:{SETS}\x1b\\x\x1b]8;;\x1b\\",
    "a cleared screen": "\x1b[2J\x1b[H\x1b[1A\x1bc\x1b[6n\x1bP$q\x1b\\",
    "an overwritten line": "os.system('evil')\rprint('harmless')        \rx = 1",
    "a sequence without an end": "x = 1 # \x1b]0;\nimport os; os.system('evil')",
    "backspaces": "evil\x08\x08\x08\x08fine\x7f\x00\x07\x1a\x04",
}
SHAPES = {
    "a long line": "x" * 1_000_000 + f"<img src=x onerror={SETS}>",
    "many lines": "\n" * 5_000 + f"<script>{SETS}</script>",
    "many marks": "a" + "\u0301" * 3_000 + "\u202e" * 500,
    "a prototype": json.dumps({"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}),
    "words of objects": "__proto__ constructor toString hasOwnProperty __defineGetter__ valueOf",
    "a lone surrogate": "\ud800 x \udfff",
}
TEXTS = {**HTML, **MARKDOWN, **ORDER, **TERMINAL, **SHAPES}

BUNDLES: dict[str, dict[str, object]] = {
    "HTML": {"text/html": f"<img src=x onerror={SETS}><script>{SETS}</script>"},
    "JavaScript": {"application/javascript": SETS, "text/plain": "js"},
    "SVG": {"image/svg+xml": f"<svg xmlns='http://www.w3.org/2000/svg' onload='{SETS}'><script>{SETS}</script></svg>"},
    "Markdown": {"text/markdown": f'<img src=x onerror="{SETS}"> [x](javascript:{SETS})'},
    "LaTeX": {"text/latex": f"$\\href{{javascript:{SETS}}}{{x}}$"},
    "a widget": {"application/vnd.jupyter.widget-view+json": {"version_major": 2, "model_id": f"<img onerror={SETS}>"}},
    "an unknown type": {f"text/<img src=x onerror={SETS}>": f"<script>{SETS}</script>"},
    "a handle": {
        "application/vnd.ctxkernel.handle+json": {"model_id": {"toString": f"<img src=x onerror={SETS}>"}},
        "text/html": f"<img src=x onerror={SETS}><script>{SETS}</script>",
        "text/plain": f"<script>{SETS}</script>",
    },
    "a proposal": {
        "application/vnd.ctxkernel.proposal+json": {
            "id": "s2.1:2", "kind": "cell", "ask": "s1.1", "code": f"<img src=x onerror={SETS}>", "told": ["x"],
            "more": "9<b>", "state": "waits", "reason": f"<script>{SETS}</script>",
        },
        "text/markdown": f"<img src=x onerror={SETS}>",
    },
    "no proposal": {"application/vnd.ctxkernel.proposal+json": [None, {"code": {"a": SETS}, "state": "constructor"}]},
    "a proposal of odd types": {
        "application/vnd.ctxkernel.proposal+json": {"id": {}, "code": 5, "told": None, "state": "toString", "more": "9"}
    },
    "the table of a sweep": {
        "application/vnd.ctxkernel.sweep+json": {
            "session": f"<img src=x onerror={SETS}>",
            "sweep": {
                "parameters": [f"<img src=x onerror={SETS}>", "b"], "collected": ["fig", "__proto__"], "more": "1<b>",
                "rows": [
                    {
                        "values": [
                            {"text": f"<script>{SETS}</script>", "number": 1}, {"text": "b", "number": 1e308},
                            {"text": "fig", "image": f"x' onerror='{SETS}"},
                            {"text": "url", "image": "https://evil.example/x.png"},
                        ],
                        "status": f"<img src=x onerror={SETS}>", "why": f"<script>{SETS}</script>",
                        "branch": f"s1.1\nimport os; {SETS}", "seconds": f"<b onload={SETS}>",
                        "output": f"<i>{SETS}</i>",
                    },
                    {"values": [{"text": "a", "number": "1"}, 5, None, [SETS]], "branch": "s1.1 --lose x", "status": 1},
                ],
            },
        },
        "text/html": f"<img src=x onerror={SETS}><script>{SETS}</script>",
    },
    "a sweep of odd types": {
        "application/vnd.ctxkernel.sweep+json": {
            "session": {}, "sweep": {"parameters": [5, None], "rows": [None, 5, "x", {"values": "x", "branch": {}}]}
        }
    },
    "no sweep": {"application/vnd.ctxkernel.sweep+json": [None, 5]},
}  # fmt: skip
"""MIME bundles of outputs, as a notebook file can have any.

Without images of Markdown and data of Vega charts on another host: JupyterLab loads those itself, in any notebook.
"""


def cells_of(number: int, text: str) -> list[str]:
    """Return cells that bring one text into every field of a session that a cell can reach."""
    lines = "\n".join(f"# {line}" for line in sendable(text[:5000]).split("\n"))
    name = text.replace("\0", "").replace("/", "").encode(errors="replace")[:120].decode(errors="ignore") or "x"
    return [
        f"{lines}\nt = {text!r}\nprint(t)",
        "import sys; print(t, file=sys.stderr); globals()[t] = 1",
        f"class Shown:\n    def __repr__(self): return t\nv{number} = Shown(); globals()[t] = Shown()",
        f"Named{number} = type({name!r}, (Exception,), {{}})\nraise Named{number}(t)",
        f"""import os; os.makedirs('d{number}', exist_ok=True); p = os.path.join('d{number}', {name!r})
n = open(p, 'w', encoding='utf-8', errors='replace').write(t)
h{number} = view(p, tokens=200); globals()[{name!r}] = view('d{number}'); pin(h{number}, t)""",
        f"""k{number} = note(t, tokens=100); g{number} = group(h{number}, k{number}, tokens=200)
shown = show(h{number})""",
        "from IPython.display import display; display({t[:200]: t[:5000], 'text/plain': t[:5000]}, raw=True)",
        f"print('an output', {number}, '\\n'.join(str(i) for i in range(400)))",
        f"%ctx redact {9 * number + 8} {quoted(text)}",
    ]


def sendable(text: str) -> str:
    """Return a text as a message can carry it: without lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def quoted(text: str) -> str:
    """Return a text as one word of a `%ctx` line."""
    shown = " ".join(sendable(text[:300]).split())
    return '"' + "".join(char for char in shown if char not in '"\\\\${}\0') + '"'
