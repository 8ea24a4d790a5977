"""How long a projection is beside its notebook, and whether it answers what one would ask about the state.

    python benchmarks/projection.py [SESSION …] [--show] [--check]

Six recorded sessions (`benchmarks/sessions`) run in real kernels with the default settings, except that work after a
cell may take long: a busy machine gives the same texts. Nothing is sent. A row has
the tokens of the notebook's plain text (sources and text outputs, the tracebacks among them), of the texts of the
projection after the last cell, their ratio, of the fixed part (system text and tools), and how many of the questions
are answered: each question names a kind of block, and its answer is found in one block of that kind; of tables, in one
row. Images have a budget of their own, and plain text has none of them: they are not in the ratio, but in the last
column.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kernels import Kernel
from session_files import WRITERS

from ctxkernel.core.text import strip_ansi
from ctxkernel.projection.tokens import count_tokens

HERE = Path(__file__).resolve().parent / "sessions"
NAMES = tuple(WRITERS)
MANY = 100
"""So many cells make a session a long one."""
AIMS = {False: 1.2, True: 0.4}
"""The largest ratio for a session that is not long, and for a long one."""
SETTLE = 2.0
"""Seconds before the last cell, which is run again then."""
TABLES = frozenset({"variables", "handles", "deltas"})


class Question(NamedTuple):
    """A question on the state, the kinds of blocks that may answer it, and the texts of its answer."""

    text: str
    kinds: tuple[str, ...]
    answer: tuple[str, ...]

    def answered(self, blocks: list[dict[str, Any]]) -> bool:
        """Return whether all texts of the answer are in one block of the kinds, or in one row of such a table."""
        for block in blocks:
            if block["kind"] in self.kinds:
                parts = block["text"].splitlines() if block["kind"] in TABLES else [block["text"]]
                if any(all(text in part for text in self.answer) for part in parts):
                    return True
        return False


@dataclass(frozen=True)
class Session:
    """The cells of a session, and the questions about its state at the end."""

    name: str
    cells: tuple[str, ...]
    questions: tuple[Question, ...]

    @classmethod
    def read(cls, name: str) -> Session:
        lines = (HERE / f"{name}.cells").read_text("utf-8").splitlines()
        asked = [line.removeprefix("# ??") for line in lines if line.startswith("# ??")]
        text = "\n".join(line for line in lines if not line.startswith("# ??"))
        questions: list[Question] = []
        for line in asked:
            said, kinds, *answer = (part.strip() for part in line.split(" | "))
            questions.append(Question(said, tuple(kinds.split(",")), tuple(answer)))
        return cls(name, tuple(part.strip("\n") for part in text.split("# %%\n")), tuple(questions))


@dataclass(frozen=True)
class Measured:
    """What a session gave."""

    session: Session
    plain: int
    """Tokens of the notebook's plain text."""
    projection: dict[str, Any]

    @property
    def tokens(self) -> int:
        """Tokens of the texts."""
        images = sum(block["tokens"] for block in self.projection["blocks"] if block["kind"] in ("image", "picture"))
        return self.projection["tokens"] - images

    @property
    def fixed(self) -> int:
        """Tokens of the system text and of the tools."""
        return next(block["tokens"] for block in self.projection["blocks"] if block["kind"] == "system")

    @property
    def ratio(self) -> float:
        return self.tokens / self.plain

    @property
    def aim(self) -> float:
        return AIMS[len(self.session.cells) >= MANY]

    @property
    def open(self) -> list[Question]:
        """The questions without an answer."""
        return [one for one in self.session.questions if not one.answered(self.projection["blocks"])]


def run(kernel: Kernel, code: str) -> str:
    """Run a cell and return its text outputs, as a notebook that is saved at once has them."""
    client = kernel.client
    msg_id = client.execute(code, allow_stdin=False, stop_on_error=False)
    texts: list[str] = []
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            break
        if kind == "stream":
            texts.append(content["text"])
        elif kind == "error":
            texts.append(strip_ansi("\n".join(content["traceback"])))
        elif kind in ("display_data", "execute_result"):
            texts.append(str(content["data"].get("text/plain", "")) + "\n")
    while client.get_shell_msg(timeout=120)["parent_header"].get("msg_id") != msg_id:
        pass
    return "".join(texts)


def measure(session: Session, folder: Path) -> Measured:
    """Run a session in a kernel of its own, below `folder`."""
    (folder / "work").mkdir()
    WRITERS[session.name](folder / "work")
    kernel = Kernel("ctxkernel.kernel", folder, env={"CTXKERNEL_END_PHASE_MS": "20000"})
    try:
        plain = sum(count_tokens(text) for cell in session.cells for text in (cell + "\n", run(kernel, cell)) if text)
        time.sleep(SETTLE)  # nobody types a hundred cells in a row: let comparisons in the background end
        run(kernel, session.cells[-1])
        projection = json.loads(run(kernel, "%ctx projection --json"))
    finally:
        kernel.stop()
    return Measured(session, plain, projection)


def row(one: Measured) -> str:
    """Return the row of a session."""
    kinds: Counter[str] = Counter()
    for block in one.projection["blocks"]:
        kinds[block["kind"]] += block["tokens"]
    parts = ", ".join(f"{kind} {tokens:,}" for kind, tokens in kinds.most_common())
    asked = len(one.session.questions)
    verdict = "reached" if one.ratio <= one.aim else "NOT reached"
    return (
        f"{one.session.name:12} {len(one.session.cells):5} {one.plain:8,} {one.tokens:10,} {one.ratio:7.2f}"
        f"  ≤ {one.aim} {verdict:12} {one.fixed:6,} {asked - len(one.open):5} of {asked:2}   {parts}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help=f"of {', '.join(NAMES)}; all if none is named")
    parser.add_argument("--show", action="store_true", help="print the text of every block, too")
    parser.add_argument("--check", action="store_true", help="fail if an aim is missed or a question is not answered")
    chosen = parser.parse_args()
    head = ("session", "cells", "notebook", "projection", "ratio", "aim", "fixed", "answered", "tokens by kind")
    print(("{:12} {:>5} {:>8} {:>10} {:>7}  {:18} {:>6} {:>11}   {}").format(*head))
    answered = asked = missed = 0
    for name in chosen.sessions or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            one = measure(Session.read(name), Path(folder))
        print(row(one), flush=True)
        for question in one.open:
            print(f"{'':12} not answered: {question.text}")
        missed += one.ratio > one.aim
        asked += len(one.session.questions)
        answered += len(one.session.questions) - len(one.open)
        if chosen.show:
            for block in one.projection["blocks"]:
                print(f"--- {block['id']} {block['kind']} ~{block['tokens']}: {block['why']}\n{block['text']}")
    print(f"{answered} of {asked} questions are answered by a named block")
    if chosen.check and (missed or answered < asked):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
