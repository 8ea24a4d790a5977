"""The tables of steps as Markdown: `python tests/turn_tables.py` writes them into docs/architecture.md."""

from __future__ import annotations

from pathlib import Path

from ctxkernel.core.loop import Loop
from ctxkernel.core.steps import Step
from ctxkernel.kernel.turn.turns import Turns

PAGE = Path(__file__).resolve().parent.parent / "docs/architecture.md"
BEGIN = "<!-- tables of steps: written by tests/turn_tables.py, which a test compares -->\n"
END = "<!-- end of the tables -->"
TABLES = {"Turns.BEGIN": Turns.BEGIN, "Turns.END": Turns.END, "Loop.END": Loop.END}


def table(name: str, steps: tuple[Step, ...]) -> str:
    """Return one table as Markdown."""
    lines = [f"`{name}`", "", "| part | function | needs | gives | |", "|---|---|---|---|---|"]
    for step in steps:
        needs, gives = ", ".join(step.needs), step.gives
        marks = ", ".join(
            [
                *(["bounded"] if step.bounded else []),
                *(["essential"] if step.essential else []),
                *([f"when `{step.when}`"] if step.when else []),
            ]
        )
        lines.append(f"| {step.part} | `{step.name}` | {needs} | {gives} | {marks} |")
    return "\n".join(lines)


def tables() -> str:
    """Return all tables as Markdown."""
    return "\n" + "\n\n".join(table(name, steps) for name, steps in TABLES.items()) + "\n\n"


def parts(page: str) -> tuple[str, str, str]:
    """Return a page's text before the tables, the tables, and the text after them."""
    before, _, rest = page.partition(BEGIN)
    found, _, after = rest.partition(END)
    return before + BEGIN, found, END + after


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(before + tables() + after, encoding="utf-8")
