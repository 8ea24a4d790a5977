"""What the last question names, and what changed since the model saw it, has room before the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_groups import asking, real

from ctxkernel.core.nodes.references import phrases_of
from ctxkernel.core.ports import RenderRequest
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.amounts import NamedLine
from ctxkernel.sources.base.planner import Emphasis, plan
from ctxkernel.testing.fake_loop import Turns
from ctxkernel.testing.renderings import opened, written


def frame() -> pd.DataFrame:
    return pd.DataFrame({f"measure {at}": np.arange(50.0) * at for at in range(60)})


MODULE = "".join(f"class Part{at}:\n    def work(self, {', '.join('abcdefgh')}): ...\n\n\n" for at in range(60))
NESTED = {"first": {f"key{at}": {"deep": at, "other": "word " * 9} for at in range(50)}, "last": {"port": 5432}}


@pytest.fixture
def targets(tmp_path: Path) -> Mapping[str, Any]:
    """Return targets that do not fit, each with something named `wanted` in its middle."""
    columns = [*(f"c{at}" for at in range(40)), "wanted", *(f"d{at}" for at in range(40))]
    lines = [",".join(columns), *(",".join(str(at * row) for at in range(len(columns))) for row in range(30))]
    table = pd.DataFrame({name: np.arange(50.0) * at for at, name in enumerate(columns)})
    module = MODULE.replace("Part30", "wanted")
    fields = {name: {"y": at, "z": [1]} if at % 2 else {"x": {"y": at}, "w": 1} for at, name in enumerate(columns)}
    return {
        "frame": table,
        "csv": written(tmp_path / "a.csv", "\n".join(lines) + "\n"),
        "module": written(tmp_path / "m.py", module),
        "dict": {("wanted" if at == 30 else f"key {at} of it"): f"value {at} " * 9 for at in range(60)},
        "records": [dict.fromkeys(columns, at) for at in range(50)],
        "json": written(tmp_path / "a.json", json.dumps({name: {"x": [1, 2]} for name in columns})),
        "nested": fields | {"wanted": {"p": {"q": 1}, "r": [1]}},
    }


KINDS = ("frame", "csv", "module", "dict", "records", "json", "nested")
WHOLE = {
    "frame": "wanted: float64, 0.0 … ",
    "csv": "wanted: int, 0 … ",
    "module": "class wanted\n",
    "dict": "['wanted']: str = 'value 30",
    "records": "wanted: int, 0 … 49",
    "json": "wanted: object, 1 key",
    "nested": "wanted: dict, 2 items",
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_question_names_is_shown_whole_where_it_was_cut(targets: Mapping[str, Any], kind: str):
    source = opened(targets[kind], kind)
    asked = source.asked(phrases_of("Why does `wanted` drift?"))
    plain = source.render(RenderRequest(1, "0", 250)).text
    told = source.render(RenderRequest(1, "0", 250, asked=asked)).text

    assert asked == ("wanted",)
    assert WHOLE[kind] not in plain + "\n"
    assert WHOLE[kind] in told
    assert source.asked(phrases_of("What else is there?")) == ()


@pytest.mark.parametrize(
    ("question", "name"),
    [("what of mean area?", "mean area"), ("is Model.fit slow", "Model.fit"), ("see mean_area", "mean_area")],
)
def test_a_question_names_a_thing_by_all_words_of_its_name(question: str, name: str):
    frame = pd.DataFrame({name: [1], "mean": [2], "area of it": [3]})
    asked = opened(frame, "f").asked(phrases_of(question))

    assert asked == ((name, "mean") if name == "mean area" else (name,))


@given(
    names=st.lists(st.text("abc", min_size=1, max_size=3), unique=True, min_size=1, max_size=60),
    budget=st.integers(30, 300),
    data=st.data(),
)
def test_emphasis_keeps_budgets_and_counts(names: list[str], budget: int, data: st.DataObject):
    """Shown + more = all, whatever is asked for and whatever changed."""
    lines = [NamedLine(f"{name}: int, {'word ' * 9}{name}", name, "int") for name in names]
    asked = frozenset(data.draw(st.sets(st.sampled_from(names))))
    seen = dict.fromkeys(data.draw(st.sets(st.sampled_from(names))), 1)
    text = plan(["head"], lines, budget, "things", emphasis=Emphasis(asked, seen)).text

    assert count_tokens(text) <= budget
    assert text == plan(["head"], lines, budget, "things", emphasis=Emphasis(asked, seen)).text


def test_the_part_of_a_thing_that_is_asked_for_stands_below_that_thing():
    source = opened(NESTED, "config")
    text = source.render(RenderRequest(1, "0", 120, asked=("last.port",))).text

    assert re.search(r"\nlast: dict.*\n  port: int, 5432", text)


@pytest.mark.parametrize("lod", [1, 2])
def test_a_column_that_is_asked_for_is_described_however_many_come_before(lod: int):
    frame = pd.DataFrame({f"c{at}": np.arange(50.0) * at for at in range(301)})
    text = opened(frame, "f").render(RenderRequest(lod, "0", 300, asked=("c200",))).text

    assert re.search(r"^c200: float64, 0\.0.* 9800\.0", text, re.MULTILINE), text


# -- in a session


def session(target: Any, **policy: Any) -> tuple[Turns, Any]:
    turns = real(df=target)
    turns.run(f"v = view(df, lod=1, tokens=250, {', '.join(f'{key}={value!r}' for key, value in policy.items())})")
    return turns, turns.namespace["v"]


def test_a_running_view_shows_what_the_last_question_names_until_the_next_question():
    turns, v = session(frame(), mode="running")
    plain = v.rendered.text

    asking(turns, "what is measure 31?")
    named = v.rendered.text
    idle = turns.run()
    asking(turns, "and the rest?")

    assert "measure 31: float64, 0.0 … 1519.0" in named
    assert "measure 31: " not in plain
    assert named != plain == v.rendered.text
    assert not idle.deltas


def test_a_paused_view_stays_as_it_is():
    turns, v = session(frame())
    plain = v.rendered.text

    asking(turns, "what is measure 31?")

    assert v.rendered.text == plain


def test_a_column_of_a_wide_frame_that_changed_is_described():
    """Its line says only its type, and the values of the first columns only are looked at."""
    turns, v = session(pd.DataFrame({f"c{at}": np.arange(50.0) * at for at in range(301)}), mode="running")
    before = v.rendered.text

    turns.namespace["df"]["c180"] = -5.0
    turns.run()

    assert "c180: float64" not in before
    assert "c180: float64, -5.0 … -5.0" in v.rendered.text


def test_a_column_that_changed_has_room_first_until_the_model_saw_it():
    turns, v = session(frame(), mode="running")
    df = turns.namespace["df"]

    df["measure 31"] = -5.0
    turns.run()
    changed = v.rendered.text
    df["measure 17"] = -6.0
    turns.run()
    both = v.rendered.text
    asking(turns, "what now?")
    df["measure 44"] = -7.0
    turns.run()

    assert "measure 31: float64, -5.0 … -5.0" in changed
    assert "measure 31: float64, -5.0" in both and "measure 17: float64, -6.0" in both
    assert "measure 44: float64, -7.0" in v.rendered.text
    assert "measure 31: " not in v.rendered.text
    assert v.render().text == v.rendered.text


def test_a_return_brings_back_what_a_question_named():
    turns, v = session(frame(), mode="running")
    asking(turns, "what is measure 31?")
    turns.run()
    text, memento, here = v.rendered.text, v.memento(), turns.loop.log.head
    asking(turns, "and the rest?")

    turns.goto(here)
    idle = turns.run()

    assert turns.namespace["v"].rendered.text == text
    assert memento["asked"] == ["measure 31"]
    assert not idle.deltas


def test_a_map_of_code_begins_with_the_symbols_that_a_question_names(tmp_path: Path):
    folder = tmp_path / "ships"
    folder.mkdir()
    for at in range(12):
        written(folder / f"m{at}.py", MODULE.replace("Part", f"Mod{at}Part"))
    source = opened(str(folder), "ships")
    plain = source.render(RenderRequest(1, "0", 300)).text
    asked = source.asked(phrases_of("what does Mod7Part30 do?"))
    told = source.render(RenderRequest(1, "0", 300, asked=asked))

    assert asked == ("m7.Mod7Part30",)
    assert "Mod7Part30" not in plain
    assert "class m7.Mod7Part30" in told.text
    assert re.search(r"\[… (\d+) more symbols", told.text)
