"""How far the token estimate is off, by kind of text: run it where `ctok` is installed (Python 3.12), read the table.

    python benchmarks/tokens.py [--texts 60] [--family 4.8] [--german FOLDER]

The texts are slices of files of this interpreter's own library and packages, picked by the hash of their path, and
printed data frames and logs that are made here. `error` is the mean of |estimate/count - 1|, `bias` that of the sums,
`worst` the largest error, `anchored` the mean error after a correction by the sums of the other texts. FOLDER has
German texts, such as those of Debian's package debian-faq-de. The last line counts the renderings of views of all these
texts that are over their budget by ctok.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import random
import re
import site
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ctok import token_count

from ctxkernel.core.ports import RenderRequest
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources import open_source

LENGTHS = (300, 4000)
"""Characters of a text: a note, and a whole statement with its output."""


def slices(patterns: list[str], texts: int, length: int) -> list[str]:
    """Return slices of `texts` files, from a line in the middle of each."""
    roots = [Path(sysconfig.get_path("stdlib")), *map(Path, site.getsitepackages())]
    files = {str(path.relative_to(root)): path for root in roots for one in patterns for path in root.rglob(one)}
    out: list[str] = []
    for name in sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest()):
        try:
            text = files[name].read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        start = text.find("\n", max(len(text) - length, 0) // 2) + 1
        piece = text[start : start + length]
        # Minified code and embedded data are none of the kind; so is a file that is almost empty.
        if len(piece) >= length * 0.9 and max(map(len, piece.split("\n"))) < 1000:
            out.append(piece)
        if len(out) == texts:
            break
    return out


def logs(texts: int, length: int) -> list[str]:
    """Return logs in four formats."""
    chance = random.Random(7)
    words = ["request", "worker", "cache", "timeout", "retry", "connected", "session", "started", "batch", "loss"]

    def line(kind: int) -> str:
        at = f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"
        said = " ".join(chance.choices(words, k=chance.randrange(3, 8)))
        one, other, some = chance.randrange(255), chance.randrange(99999), chance.random()
        return (
            f"2026-09-17 {at},{other % 1000:03} INFO {said} id={chance.getrandbits(32):08x}",
            f'10.0.{one}.17 - - [17/Sep/2026:{at} +0000] "GET /{words[one % 10]} HTTP/1.1" 200 {other}',
            f"[{at}] epoch {one}: loss={some:.4f} accuracy={1 - some:.3f} {said}",
            f"Sep 17 {at} node-{one} kernel: [{some * 1e5:.6f}] {said}",
        )[kind]

    return ["\n".join(line(n % 4) for _ in range(length // 40))[:length] for n in range(texts)]


def frames(texts: int, length: int) -> list[str]:
    """Return data frames as pandas prints them; none without pandas and scikit-learn."""
    try:
        import pandas
        from sklearn import datasets
    except ImportError:
        return []
    pandas.set_option("display.width", 120, "display.max_columns", 12, "display.max_rows", 400)
    loaders = (datasets.load_iris, datasets.load_wine, datasets.load_diabetes, datasets.load_breast_cancer)
    made = [loader(as_frame=True).frame for loader in loaders]
    chance = random.Random(7)
    out: list[str] = []
    for n in range(texts):
        frame = made[n % 4].sample(120, random_state=n)
        shown = (frame, frame.describe(), frame.iloc[:, : chance.randrange(2, 5)], frame.corr())[n // 4 % 4]
        out.append(str(shown)[:length])
    return out


def numbers(texts: int, length: int) -> list[str]:
    """Return tables of numbers: as CSV, in columns, and as lists."""
    chance = random.Random(9)

    def row(kind: int, digits: int) -> str:
        values = [chance.gauss(0, 10**digits) for _ in range(6)]
        if kind == 0:
            return ",".join(f"{value:.{digits}f}" for value in values)
        if kind == 1:
            return " ".join(f"{value:{digits + 8}.3f}" for value in values)
        return str([round(value) for value in values])

    return ["\n".join(row(n % 3, n % 5) for _ in range(length // 20))[:length] for n in range(texts)]


def german(folder: Path | None, texts: int, length: int) -> list[str]:
    """Return slices of the German texts in a folder; none without one."""
    read = (
        [path.read_text("utf-8", "replace") for path in sorted(folder.rglob("*")) if path.is_file()] if folder else []
    )
    whole = html.unescape(re.sub(r"<[^>]+>", "", "\n".join(read)))
    step = max(len(whole) // max(texts, 1), 1)
    return [whole[at : at + length] for at in range(0, len(whole), step)][:texts]


def over_budget(texts: Sequence[str], family: str, frame: int) -> tuple[int, int]:
    """Return (how many renderings of these texts are over their budget by ctok, how many there are)."""
    counts: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        for text in texts:
            path = Path(folder) / "text.txt"
            path.write_text(text, "utf-8")
            for tokens in (200, 500, 1000):
                shown = open_source(path).render(RenderRequest(0, "0", tokens)).text
                counts.append(token_count(shown, family) - frame > tokens)
    return sum(counts), len(counts)


KINDS: dict[str, Callable[[int, int], list[str]]] = {
    "Python": lambda n, length: slices(["*.py"], n, length),
    "JavaScript": lambda n, length: slices(["*.js"], n, length),
    "C": lambda n, length: slices(["*.h", "*.c"], n, length),
    "prose": lambda n, length: slices(["*.md", "*.rst", "METADATA"], n, length),
    "JSON": lambda n, length: slices(["*.json", "*.ipynb"], n, length),
    "CSV": lambda n, length: slices(["*.csv"], n, length),
    "log": logs,
    "table": frames,
    "numbers": numbers,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--family", default="4.8", help="version that ctok is asked for: 4.8, 4.7 or 3.0")
    parser.add_argument("--german", type=Path, help="a folder with German texts")
    arguments = parser.parse_args()
    KINDS["German"] = lambda n, length: german(arguments.german, n, length)
    frame = token_count("a", arguments.family) - 1
    for length in LENGTHS:
        print(f"\ntexts of up to {length} characters, family {arguments.family}")
        print(f"{'kind':12}{'texts':>6}{'error':>8}{'bias':>8}{'worst':>8}{'anchored':>10}{'ctok MB/s':>11}")
        for kind, make in KINDS.items():
            texts = [text for text in make(arguments.texts, length) if text.strip()]
            if not texts:
                continue
            start = time.process_time()
            counts = [token_count(text, arguments.family) - frame for text in texts]
            speed = sum(map(len, texts)) / (time.process_time() - start) / 1e6
            guesses = [count_tokens(text) for text in texts]
            pairs = list(zip(guesses, counts, strict=True))
            errors = [abs(guess / count - 1) for guess, count in pairs]
            guessed, counted = sum(guesses), sum(counts)
            scaled = [abs(g * (counted - c) / (guessed - g) / c - 1) for g, c in pairs] if len(pairs) > 1 else []
            print(
                f"{kind:12}{len(texts):6}{sum(errors) / len(errors):8.1%}{guessed / counted - 1:8.1%}{max(errors):8.1%}"
                f"{sum(scaled) / max(len(scaled), 1):10.1%}{speed:11.2f}"
            )
    every = [text for make in KINDS.values() for text in make(6, 8000)]
    over, made = over_budget(every, arguments.family, frame)
    print(f"\n{over} of {made} renderings are over their budget by ctok, family {arguments.family}")


if __name__ == "__main__":
    main()
