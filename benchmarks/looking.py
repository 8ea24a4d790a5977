"""What looking shows for its tokens: 40 targets × levels × budgets, and facts that were named in advance.

    python benchmarks/looking.py [--quick] [--log GB] [--table GB] [--json MB] [--only TARGET]
                                 [--tokenizers PYTHON] [--maps PYTHON] [--folder DIR] [--json-sums]

Each target is looked at in a process of its own, at levels 0, 1 and 2 with six budgets. The columns:

- *first*: CPU time of the first look, opening it included, at level 1 with 1,000 tokens; *look*: the largest median of
  a first look by a new source, over the levels; both in milliseconds. *MB*: the most memory beyond what there was.
- *over*: renderings over their budget by a real tokenizer. PYTHON is an interpreter that has `ctok`, `bpe_openai` or
  `tiktoken`; without one only the estimate is checked.
- *false*: renderings with a mark that is wrong: shown + "more" is not what there is, a list of names that miscounts,
  or something cut without a mark. *used*: the share of the usable budget (what the reserve leaves) that was used,
  where something was cut: mean and least.
- *ours*: the facts that stand in 800 tokens at level 1, at level 2, in either, after the passes in the background (but
  for the large CSV file, whose pass takes minutes); *plain*: in as many tokens of what one would do without ctxkernel:
  `df.info()` and `df.describe()` of a table, beginning and end of a text, the listing of a folder, `pprint` of an
  object. `--maps PYTHON`, an interpreter that has aider, adds its repository map of code.

`--quick` looks at small versions in this process, without memory and times: tests run it.
"""

from __future__ import annotations

import argparse
import io
import json
import pprint
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from looking_targets import QUICK, TARGETS, Sizes, Target, Total
from views import memory

from ctxkernel.core.ports import Rendered, RenderRequest
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.sources import open_source
from ctxkernel.sources.base.amounts import lines_within
from ctxkernel.sources.base.rendering import within_reserve

BUDGETS = (100, 200, 400, 800, 1600, 4000)
LEVELS = (0, 1, 2)
RECALL = 800
USED = 0.95
_MARK = re.compile(r"^ *\[… (.*)\]$", re.MULTILINE)
_MORE = re.compile(r"([\d,]+)(\+?) more ([a-z]+(?: [a-z]+)*)")
_LIST = re.compile(r"^(.+) × ([\d,]+): (.*)$", re.MULTILINE)
_RANGE = re.compile(r"(.*?)(\d+)–(.*?)(\d+)")
_COUNT = """
import json, sys
counters = {}
try:
    import ctok
    frame = ctok.token_count("a", "4.8") - 1
    counters["ctok 4.8"] = lambda text: ctok.token_count(text, "4.8") - frame
except ImportError:
    pass
for module in ("bpe_openai", "tiktoken"):
    try:
        encoding = __import__(module).get_encoding("o200k_base")
        counters["o200k"] = lambda text: len(encoding.encode(text))
        break
    except Exception:  # not installed, or its vocabulary is not at hand
        pass
texts = json.load(sys.stdin)
print(json.dumps({name: [count(text) for text in texts] for name, count in counters.items()}))
"""
_MAP = """
import sys
from pathlib import Path
from aider.io import InputOutput
from aider.models import Model
from aider.repomap import RepoMap
root = Path(sys.argv[1])
class Counter:
    def token_count(self, text): return len(text) // 4
files = [str(root)] if root.is_file() else sorted(map(str, root.rglob("*.py")))
folder = root.parent if root.is_file() else root
found = RepoMap(int(sys.argv[2]), str(folder), Counter(), InputOutput(yes=True), map_mul_no_files=1)
print(found.get_repo_map([], files) or "")
"""

Row = dict[str, Any]


# -- marks


def listed(text: str, kind: str) -> int | None:
    """Return how many names stand in the lists of names of a kind; None where a list miscounts them."""
    total = 0
    for found, count, names in _LIST.findall(text):
        if not re.fullmatch(kind, found):
            continue
        counted = 0
        for name in names.split(", "):
            one = _RANGE.fullmatch(name)
            counted += int(one[4]) - int(one[2]) + 1 if one and one[1] == one[3] else 1
        if counted != int(count.replace(",", "")):
            return None
        total += counted
    return total


def faults(rendered: Rendered, totals: Sequence[Total], level: int) -> Iterator[str]:
    """Yield what marks say that is false."""
    text = rendered.text
    body = text.partition("\n--- from line ")[0]
    if rendered.cut_tokens and "…" not in text:
        yield "something is cut without a mark"
    told: dict[str, tuple[int, bool]] = {}
    for mark in _MARK.findall(body):
        for count, plus, what in _MORE.findall(mark):
            told[what if what.endswith("s") else f"{what}s"] = int(count.replace(",", "")), bool(plus)
    for one in totals:
        if one.level != level:
            continue
        names = listed(body, one.named)
        if names is None:
            yield "a list of names miscounts them"
            continue
        left = one.total - names - len(re.findall(one.shown, body, re.MULTILINE))
        more, open_end = told.get(one.what, (0, False))
        if one.what in told and (more > left if open_end else more != left):
            yield f"{more} more {one.what}, where {left} are left"
        if one.what not in told and left > 0 and "…" not in body:
            yield f"{left} {one.what} are missing and not counted"


# -- the other ways


def plain(target: Any, tokens: int) -> str:
    """Return what one would look at without ctxkernel, in so many tokens."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(target, pandas.DataFrame):
        told = io.StringIO()
        target.info(buf=told)
        return trim_to_tokens(f"{told.getvalue()}\n{target.describe().to_string()}", tokens)
    if isinstance(target, Path):
        return _of_file(target, tokens)
    return trim_to_tokens(pprint.pformat(target, compact=True)[: 40 * tokens], tokens)


def _of_file(path: Path, tokens: int) -> str:
    if path.is_dir():
        return trim_to_tokens("\n".join(sorted(str(one.relative_to(path)) for one in path.rglob("*"))), tokens)
    if path.suffix == ".parquet":
        return plain(__import__("pandas").read_parquet(path), tokens)
    if path.suffix == ".pdf":
        pages = __import__("pypdf").PdfReader(path).pages
        lines = "\n".join(page.extract_text() for page in pages).split("\n")
    else:
        with path.open("rb") as file:
            data = file.read(1 << 16)
            file.seek(max(0, path.stat().st_size - (1 << 16)))
            data = data if len(data) < 1 << 16 else data + b"\n" + file.read()
        lines = data.decode("utf-8", "replace").split("\n")
    first, last = (lines_within(lines, tokens // 2, last=end) for end in (False, True))
    return trim_to_tokens("\n".join([*lines[:first], "…", *lines[-last:]]), tokens)


def map_of(target: Any, python: str | None, tokens: int) -> str:
    """Return aider's map of a file or folder of Python; empty where there is none."""
    if python is None or not isinstance(target, Path) or not (target.is_dir() or target.suffix == ".py"):
        return ""
    with tempfile.TemporaryDirectory() as folder:  # aider writes a cache beside what it looks at
        copied = Path(folder) / target.name
        (shutil.copytree if target.is_dir() else shutil.copy)(target, copied)
        command = [python, "-c", _MAP, str(copied), str(tokens)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def recalled(facts: Sequence[str], *texts: str) -> int:
    """Return how many facts stand in one of some texts."""
    return sum(any(fact in text for text in texts) for fact in facts)


# -- one target


def milliseconds(run: Callable[[], Any]) -> float:
    """Return the CPU time of a run."""
    start = time.process_time()
    run()
    return 1000 * (time.process_time() - start)


def opened(target: Any) -> Any:
    """Return the source of a target: of a path as the user writes it."""
    source = open_source(str(target) if isinstance(target, Path) else target)
    if isinstance(target, Path):
        source.label = target.name
    return source


def prepared(source: Any) -> Any:
    """Return a source with all that the background finds out."""
    source.render(RenderRequest(1, "0", RECALL))
    while (job := source.preparation()) is not None:
        if not source.accept(job.work(lambda: False, lambda part: None)):
            break
    return source


def look(one: Target, folder: Path, sizes: Sizes, maps: str | None, *, timed: bool) -> Row:
    """Return the row of a target, its renderings included."""
    made = one.make(folder, sizes)
    found: Row = {"name": one.name, "facts": len(one.facts)}
    if timed:
        opened(__file__).render(RenderRequest(1, "0", 1000))
        with memory() as most:
            found["first"] = milliseconds(lambda: opened(made).render(RenderRequest(1, "0", 1000)))
            times = [
                [
                    milliseconds(lambda level=level: opened(made).render(RenderRequest(level, "0", 2000)))
                    for _ in range(3)
                ]
                for level in LEVELS
            ]
        found |= {"look": max(map(statistics.median, times)), "mb": most[0]}
    source = prepared(opened(made)) if one.prepared else opened(made)
    renderings: list[tuple[int, str]] = []
    used: list[float] = []
    wrong: list[str] = []
    for level in LEVELS:
        for budget in BUDGETS:
            rendered = source.render(RenderRequest(level, "0", budget))
            renderings.append((budget, rendered.text))
            wrong += [f"{one.name}, level {level}, {budget}: {fault}" for fault in faults(rendered, one.totals, level)]
            if rendered.cut_tokens:
                used.append(rendered.tokens / within_reserve(budget))
    texts = [source.render(RenderRequest(level, "0", RECALL)).text for level in (1, 2)]
    usable = within_reserve(RECALL)
    return found | {
        "renderings": renderings,
        "used": used,
        "wrong": wrong,
        "level 1": recalled(one.facts, texts[0]),
        "level 2": recalled(one.facts, texts[1]),
        "either": recalled(one.facts, *texts),
        "plain": recalled(one.facts, plain(made, usable)),
        "map": recalled(one.facts, told) if (told := map_of(made, maps, usable)) else None,
        "missing": [fact for fact in one.facts if not recalled([fact], *texts)],
    }


# -- the table


def over(renderings: Sequence[tuple[int, str]], python: str) -> dict[str, int]:
    """Return how many renderings are over their budget by the estimate, and by each tokenizer that `python` has."""
    texts = [text for _, text in renderings]
    done = subprocess.run([python, "-c", _COUNT], input=json.dumps(texts), capture_output=True, text=True, check=True)
    counts: dict[str, list[int]] = {"estimate": [count_tokens(text) for text in texts], **json.loads(done.stdout)}
    budgets = [budget for budget, _ in renderings]
    return {name: sum(map(int.__gt__, found, budgets)) for name, found in counts.items()}


def share(part: float, whole: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * part / whole:.0f} %" if whole else ""


def told(row: Row) -> str:
    """Return a row as text."""
    numbers = [f"{row[name]:,.0f}" if name in row else "" for name in ("first", "look", "mb")]
    used = [f"{100 * statistics.mean(row['used']):.0f}", f"{100 * min(row['used']):.0f}"] if row["used"] else ["", ""]
    found = [str(row[name]) for name in ("level 1", "level 2", "either")]
    other = [str(row["plain"]), "" if row["map"] is None else str(row["map"])]
    cells = [*numbers, str(sum(row["over"].values())), str(len(row["wrong"])), *used, str(row["facts"]), *found, *other]
    return " | ".join([f"{row['name']:32}", *(f"{cell:>6}" for cell in cells)])


NUMBERS = (
    "first",
    "look",
    "MB",
    "over",
    "false",
    "used",
    "least",
    "facts",
    "ours 1",
    "ours 2",
    "either",
    "plain",
    "map",
)
HEAD = " | ".join([f"{'target':32}", *(f"{name:>6}" for name in NUMBERS)])


def sums(rows: Sequence[Row]) -> Row:
    """Return what the rows come to."""
    used = [one for row in rows for one in row["used"]]
    mapped = [row for row in rows if row["map"] is not None]
    recall = {name: sum(row[name] for row in rows) for name in ("facts", "level 1", "level 2", "either", "plain")}
    return recall | {
        "targets": len(rows),
        "renderings": sum(len(row["renderings"]) for row in rows),
        "over": {name: sum(row["over"][name] for row in rows) for name in rows[0]["over"]},
        "false": [fault for row in rows for fault in row["wrong"]],
        "cut": len(used),
        "used": statistics.mean(used or [1.0]),
        "well used": sum(one >= USED for one in used),
        "code": [sum(row[name] for row in mapped) for name in ("facts", "either", "map")],
    }


def told_sums(found: Row) -> list[str]:
    """Return them as text."""
    recall = ", ".join(
        f"{name} {share(found[name], found['facts'])}" for name in ("level 1", "level 2", "either", "plain")
    )
    facts, ours, theirs = found["code"]
    return [
        f"{found['renderings']:,} renderings of {found['targets']} targets; over budget: {found['over']}",
        f"renderings with false marks: {len(found['false'])}",
        f"used of a budget where something was cut: {found['used']:.1%} (mean)",
        f"of these {found['cut']} renderings {found['well used']} used {USED:.0%} or more",
        f"of {found['facts']} facts stand in {RECALL} tokens: {recall}",
        *([f"of {facts} facts about code: ours {ours}, aider's map {theirs}"] if facts else []),
        *(f"false: {fault}" for fault in found["false"]),
    ]


def quick(targets: Sequence[Target]) -> Iterator[Row]:
    """Yield the rows of small versions of the targets, from this process."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [look(one, Path(folder), QUICK, None, timed=False) for one in targets]
    for row in rows:
        yield row | {"over": over(row["renderings"], sys.executable)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small versions, without times")
    parser.add_argument("--log", type=float, default=2.0, help="gigabytes of the log (default 2)")
    parser.add_argument("--table", type=float, default=5.0, help="gigabytes of the CSV file (default 5)")
    parser.add_argument("--json", type=float, default=50.0, help="megabytes of the nested JSON (default 50)")
    parser.add_argument("--tokenizers", default=sys.executable, metavar="PYTHON", help="who has the tokenizers")
    parser.add_argument("--maps", metavar="PYTHON", help="who has aider")
    parser.add_argument("--folder", help="where the files are written (default: the temporary folder)")
    parser.add_argument("--json-sums", action="store_true", help="only the sums, as JSON")
    parser.add_argument("--only", metavar="TARGET", help="the targets with this in their names")
    parser.add_argument("--row", metavar="TARGET", help="one target, in this process, as JSON")
    args = parser.parse_args()
    sizes = replace(
        Sizes(), log_bytes=int(args.log * 1e9), table_bytes=int(args.table * 1e9), json_bytes=int(args.json * 1e6)
    )
    if args.row:
        (one,) = (one for one in TARGETS if one.name == args.row)
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            print(json.dumps(look(one, Path(folder), sizes, args.maps, timed=True)))
        return
    some = [one for one in TARGETS if (args.only or "") in one.name]
    found = quick(some) if args.quick else measured(some, args.tokenizers)
    if args.json_sums:
        print(json.dumps(sums(list(found))))
        return
    print(HEAD, flush=True)
    rows: list[Row] = []
    for row in found:
        rows.append(row)
        print(told(row), *(f"  not there: {', '.join(row['missing'])}" for _ in row["missing"][:1]), flush=True)
    print("\n".join(told_sums(sums(rows))))


def measured(targets: Sequence[Target], python: str) -> Iterator[Row]:
    """Yield the row of each target, from a process of its own."""
    for one in targets:
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--row", one.name], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{one.name}: {done.stderr}")
        row: Row = json.loads(done.stdout)
        yield row | {"over": over(row["renderings"], python)}


if __name__ == "__main__":
    main()
