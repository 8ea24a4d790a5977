"""Level 2 of code, prose and papers: what they say, in whole sentences, and what their classes and methods are for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_sources_pdf import pdf

from ctxkernel.core.ports import All
from ctxkernel.sources.outlines.papers import points_of_paper
from ctxkernel.sources.outlines.python_outline import python_outline
from ctxkernel.sources.outlines.sentences import first_sentence, sentences_of
from ctxkernel.testing.renderings import render, written

MODULE = '''"""Models of drift."""

from typing import TypeVar
import numpy as np

__all__ = ["Ridge"]
T = TypeVar("T")
LIMIT = 40


def _helper(): ...


class Base:
    def fit(self, X): ...


class Ridge(Base):
    """Least squares with a penalty
    on its weights. It has a long story.
    """

    def fit(self, X, y=None):
        """Fit the model."""
        return _helper()

    def predict(self, X): ...

    def _solve(self): ...
'''


def test_a_code_file_says_what_it_imports_and_which_classes_have_which_methods_for_what(tmp_path: Path):
    lines = render(written(tmp_path / "m.py", MODULE), 2, tokens=All).text.split("\n")

    assert lines[1:] == [
        '"""Models of drift."""',
        "imports: typing, numpy as np",
        "- 7: LIMIT = 40",
        "- 10: def _helper() (named 1×)",
        "- 13: class Base (named 1×; 1 method: fit)",
        "- 14: def Base.fit(self, X)",
        "- 17: class Ridge(Base) — Least squares with a penalty on its weights. (named 1×; 2 methods: fit, predict)",
        "- 22: def Ridge.fit(self, X, y=None) — Fit the model.",
        "- 26: def Ridge.predict(self, X)",
    ]


def test_what_a_module_exports_and_its_classes_come_before_methods_helpers_and_constants(tmp_path: Path):
    file = written(tmp_path / "m.py", MODULE)
    shown = [render(file, 2, tokens=tokens).text for tokens in range(60, 400, 10)]
    first = {name: next(at for at, text in enumerate(shown) if name in text) for name in
             ("class Ridge", "class Base", "def Ridge.fit", "def _helper", "LIMIT")}  # fmt: skip

    assert list(first.values()) == sorted(first.values())
    assert not any("TypeVar(" in text for text in shown)


def test_a_row_of_comment_signs_is_outlined_at_once():
    source = "def f():\n" + "    # " + "# " * 5000 + "\n    return 1\n"
    began = time.process_time()

    assert [entry.name for entry in python_outline(source).entries] == ["f"]
    assert time.process_time() - began < 1


def test_a_docstring_is_known_by_its_first_sentence_on_however_many_lines():
    source = (
        'def f():\n    """Return the part of a budget\n    that is left, e.g. 3. Then more.\n\n    x: it\n    """\n'
    )
    field = 'def f():\n    """Return it\n    :param x: y\n    """\n'

    assert python_outline(source).entries[0].doc == "Return the part of a budget that is left, e.g. 3."
    assert python_outline(field).entries[0].doc == "Return it"


# --- prose

NOTES = """# Drift

The residuals drift after 2019, which
nobody expected. We looked for causes.

- The sensors are old. They were made in 2001.
- short

```python
This is no sentence. It is code.
```

| a | b |
|---|---|

The calibration is to blame. It must be done each spring.

## Conclusion

Replace the sensors. Then calibrate them each year.

## References

A paper by somebody. Another paper.
"""


def test_prose_is_the_first_sentence_of_each_section_and_its_conclusion(tmp_path: Path):
    lines = render(written(tmp_path / "m.md", NOTES), 2, tokens=All).text.split("\n")[1:]

    assert lines == [
        "- 0: Drift — The residuals drift after 2019, which nobody expected.",
        "- 5: The sensors are old.",
        "- 15: The calibration is to blame.",
        "- 15: It must be done each spring.",
        "- 17: Conclusion — Replace the sensors.",
        "- 19: Then calibrate them each year.",
        "- 21: References",
    ]


def test_what_it_concludes_has_room_before_how_paragraphs_begin(tmp_path: Path):
    text = render(written(tmp_path / "m.md", NOTES), 2, tokens=90).text

    assert "Conclusion — Replace the sensors." in text
    assert "The sensors are old." not in text


def test_text_without_headings_and_rest_have_whole_sentences_too(tmp_path: Path):
    plain = "The first point is made\nover two lines. More of it.\n\nThe second one is short. It ends well.\n"
    rest = "Title\n=====\n\nIt is on ships. They are old.\n\n.. note:: not this.\n\nPart\n----\n\nThe end is near.\n"

    text = render(written(tmp_path / "a.txt", plain), 2, tokens=All).text
    guide = render(written(tmp_path / "a.rst", rest), 2, tokens=All).text

    assert text.split("\n")[1:] == [
        "- 0: The first point is made over two lines.",
        "- 3: The second one is short.",
        "- 3: It ends well.",
    ]
    assert guide.split("\n")[1:] == [
        "- 0: Title — It is on ships.",
        "- 3: They are old.",
        "- 7: Part — The end is near.",
    ]


LATEX = r"""% A comment that is no prose.
\documentclass[11pt]{article}
\newcommand{\loss}{\mathcal{L}}
\title{Calibration of \textbf{Small} Models}
\begin{document}
\begin{abstract}
Small models are badly calibrated. We show that scaling
reduces the error by 43\,\%.
\end{abstract}
\section[Short]{Introduction}\label{sec:intro} % first
Calibration matters \cite{guo}. Many models are overconfident.

\subsection*{Data}
We use six data sets.
\begin{equation}
\loss = \sum_i \log p(y_i) . \label{eq:loss} This is no sentence at all.
\end{equation}
\begin{figure}
\caption{A caption that is in a figure. It is no prose.}
\end{figure}
\section{Conclusions}
Scaling is enough for small models. Larger ones need more data.
\bibliography{refs}
\end{document}
"""


def test_a_latex_text_is_its_abstract_sections_and_conclusions_without_commands_and_equations(tmp_path: Path):
    source = written(tmp_path / "paper.tex", LATEX)

    assert render(source, 1, tokens=All).text.split("\n")[1:] == [
        r"3 Calibration of \textbf{Small} Models",
        "5 Abstract — Small models are badly calibrated.",
        r"9 Introduction — Calibration matters \cite{guo}.",
        "12   Data — We use six data sets.",
        "20 Conclusions — Scaling is enough for small models.",
    ]
    assert render(source, 2, tokens=All).text.split("\n")[1:] == [
        r"- 3: Calibration of \textbf{Small} Models",
        "- 5: Abstract — Small models are badly calibrated.",
        r"- 6: We show that scaling reduces the error by 43\,\%.",
        r"- 9: Introduction — Calibration matters \cite{guo}.",
        "- 10: Many models are overconfident.",
        "- 12: Data — We use six data sets.",
        "- 20: Conclusions — Scaling is enough for small models.",
        "- 21: Larger ones need more data.",
    ]


PAPER = """\
Drift of residuals in long series
A. Author, B. Author
Abstract. We study how residuals drift in long series of temper-
ature readings. The drift is 0.3 K in ten years. We conclude that the
sensors age.
1 Introduction
Residuals are what a model leaves. We look at 40 stations.
---
2 Results
The drift is found at 37 of 40 stations. It grows with age, as Fig. 3 shows.
No other cause was found.
---
3 Conclusions
Sensors that are older than eight years must be replaced. We recommend a
calibration each spring.
References
Smith et al. On residuals. Journal of Things."""


def test_a_paper_is_its_abstract_headings_and_conclusions_in_whole_sentences(tmp_path: Path):
    file = written(tmp_path / "a.pdf", pdf(PAPER.split("\n---\n")))

    lines = render(file, 2, tokens=All).text.split("\n")[1:]

    assert lines == [
        "begins: Drift of residuals in long series",
        "- page 1: Abstract — We study how residuals drift in long series of temperature readings.",
        "- page 1: The drift is 0.3 K in ten years.",
        "- page 1: We conclude that the sensors age.",
        "- page 1: 1 Introduction — Residuals are what a model leaves.",
        "- page 1: We look at 40 stations.",
        "- page 2: 2 Results — The drift is found at 37 of 40 stations.",
        "- page 2: It grows with age, as Fig. 3 shows.",
        "- page 2: No other cause was found.",
        "- page 3: 3 Conclusions — Sensors that are older than eight years must be replaced.",
        "- page 3: We recommend a calibration each spring.",
        "- page 3: References",
    ]
    short = render(file, 2, tokens=170).text
    assert "Abstract — " in short
    assert "Conclusions — " in short


def test_numbers_of_pages_and_running_titles_are_no_text():
    pages = [["A running title", f"Sentence {word} is here.", str(at)] for at, word in enumerate("abcd")]

    assert [point.text for point in points_of_paper(pages)] == ["Sentence a is here.", "Sentence d is here."]


# --- sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One is here. Two follows.", ["One is here.", "Two follows."]),
        ("See e.g. Smith et al. for more. Done!", ["See e.g. Smith et al. for more.", "Done!"]),
        ("It is 3.5 percent. So.", ["It is 3.5 percent.", "So."]),
        ("1. First. 2. Second.", ["1. First.", "2. Second."]),
        ("In 2019. Then.", ["In 2019.", "Then."]),
        ("os.path. is lower", ["os.path. is lower"]),
        ("", []),
    ],
)
def test_a_sentence_ends_where_one_does(text: str, expected: list[str]):
    assert [one.text for one in sentences_of([(0, text)])] == expected


@given(st.lists(st.text(), max_size=20))
def test_sentences_hold_all_words_in_their_order(lines: list[str]):
    found = sentences_of(enumerate(lines))

    joined = "".join("".join(one.text.split()) for one in found)
    # Only the hyphen of a word that a line end parts is left out.
    assert joined.replace("-", "") == "".join("".join(line.split()) for line in lines).replace("-", "")
    assert [one.line for one in found] == sorted(one.line for one in found)


def test_a_long_text_has_its_first_sentence_at_once():
    began = time.process_time()
    first_sentence("a." * 100_000 + " " + "b " * 100_000)

    assert time.process_time() - began < 1
