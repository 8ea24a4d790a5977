"""What the site makes from the code: directives for commands, settings and options, and the outputs of notebooks.

Rule 1: nothing that the code says is typed into a page.
Rule 2: nothing here executes a notebook.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]
EXECUTED = ROOT / "build" / "executed"
"""The executed notebooks: `tests/executed.py` and `docs/build.py --execute` write them."""


class Made(SphinxDirective):
    """A directive whose content is Markdown that is made from the code."""

    def markdown(self) -> Iterator[str]:
        """Yield the lines."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        self.content = StringList("\n".join(self.markdown()).splitlines(), source=type(self).__name__)
        return self.parse_content_to_nodes(allow_section_headings=True)


class Commands(Made):
    """`%ctx` and its subcommands."""

    def markdown(self) -> Iterator[str]:
        from ctxkernel.kernel.commands.table import COMMANDS

        for name, command in COMMANDS.items():
            options = [one for one in command.options if one.startswith("--")]
            yield f"## %ctx {name}\n"
            yield f"    %ctx {command.usage}\n"
            yield sentence(command.help)
            if options:
                yield f"\nOptions: {', '.join(f'`{one}`' for one in options)}."
            yield ""


class Options(Made):
    """`ctxkernel` and its commands, with all options."""

    def markdown(self) -> Iterator[str]:
        from ctxkernel.cli import build_parser

        parser = build_parser()
        (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
        for name, command in commands.choices.items():
            usage = re.sub(r"\s+", " ", command.format_usage().removeprefix("usage: ")).strip()
            yield f"## ctxkernel {name}\n\n    {usage}\n"
            yield f"{command.description}\n"
            rows = [action for action in command._actions if action.dest != "help"]
            if rows:
                yield "| argument | |\n|---|---|"
            for action in rows:
                names = ", ".join(action.option_strings) or action.metavar or action.dest
                value = (
                    f" {action.metavar or action.dest.upper()}" if action.option_strings and action.nargs != 0 else ""
                )
                told = command._get_formatter()._expand_help(action) if action.help else ""
                yield f"| `{names}{value}` | {told.replace('|', '&#124;')} |"
            yield ""


class Checks(Made):
    """The checks of `ctxkernel doctor`."""

    def markdown(self) -> Iterator[str]:
        from ctxkernel.cli.doctor import CHECKS

        yield "| check | |\n|---|---|"
        for name, check in CHECKS:
            yield f"| {name} | {(check.__doc__ or '').removeprefix('Check ').strip()} |"


class Exported(SphinxDirective):
    """What `ctxkernel.testing` exports, with docstrings."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        import importlib

        module = importlib.import_module(self.arguments[0])
        names = [name for name, value in vars(module).items() if not name.startswith("_") and hasattr(value, "__doc__")]
        made: list[str] = []
        for name in names:
            value = getattr(module, name)
            if not getattr(value, "__module__", "").startswith("ctxkernel") or not callable(value):
                continue
            kind = "autoclass" if isinstance(value, type) else "autofunction"
            made += [f".. {kind}:: {module.__name__}.{name}", *([] if kind != "autoclass" else ["   :members:"]), ""]
        self.content = StringList(["```{eval-rst}", *made, "```"], source=module.__name__)
        return self.parse_content_to_nodes()


class Diagram(SphinxDirective):
    """A Mermaid diagram, which a repository browser draws: here its text, since no script is loaded from elsewhere."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        return [nodes.literal_block("\n".join(self.content), "\n".join(self.content), language="text")]


def keep_tables(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Show the lines of a docstring that are aligned as a table as they are."""
    made: list[str] = []
    aligned = False
    for line in lines:
        begins = bool(re.match(r"^\w+ {2,}\S", line)) and not aligned
        if begins:
            made += ["::", ""]
            aligned = True
        elif aligned and not line.strip():
            aligned = False
        made.append(f"   {line}" if aligned else line)
    lines[:] = made


def sentence(text: str) -> str:
    """Return a line of help as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def sources(notebook: dict[str, Any]) -> list[str]:
    """Return the sources of a notebook's cells."""
    return ["".join(cell["source"]) for cell in notebook["cells"]]


def read_notebook(app: Sphinx, name: str, source: list[str]) -> None:
    """Take the execution of a notebook instead of it, if that was one of the same cells; colour magics as magics."""
    if not name.startswith("notebooks/"):
        return
    notebook = json.loads(source[0])
    executed = EXECUTED / f"{Path(name).name}.ipynb"
    if executed.exists():
        done = json.loads(executed.read_text(encoding="utf-8"))
        if sources(done) == sources(notebook):
            notebook = done
        else:
            print(f"{executed}: the execution of other cells; run python docs/build.py --execute", file=sys.stderr)
    notebook["metadata"]["language_info"]["pygments_lexer"] = "ipython3"
    source[0] = json.dumps(notebook)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("ctx-commands", Commands)
    app.add_directive("ctxkernel-options", Options)
    app.add_directive("doctor-checks", Checks)
    app.add_directive("exported", Exported)
    app.add_directive("mermaid", Diagram)
    app.connect("source-read", read_notebook)
    app.connect("autodoc-process-docstring", keep_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
