"""Objects whose classes say what is shown of them: `__ctx_render__`, and `trust_repr`."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ctxkernel.sources import trust_repr
from ctxkernel.sources.objects import own_renderings
from ctxkernel.testing.renderings import opened, render

PAGE = Path(__file__).parents[1] / "docs" / "sources.md"


class Sensor:
    """An object with readings that shows itself."""

    def __init__(self, place: str = "roof") -> None:
        self.place = place
        self.readings = [20.5, 21.0]
        self.asked: list[tuple[int, int | None]] = []

    def __ctx_render__(self, level: int, tokens: int | None) -> str | list[str]:
        if level == 2:
            return f"{self.place}: {len(self.readings)} readings"
        return [f"hour {at}: {reading} °C" for at, reading in enumerate(self.readings)]


class Reading:
    """An object with a `__repr__`."""

    def __init__(self) -> None:
        self.degrees = 20

    def __repr__(self) -> str:
        return f"Reading(\n  {self.degrees} °C, of {object.__repr__(self)})"


@pytest.fixture(autouse=True)
def nothing_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_renderings, "_trusted", [])


def test_a_class_with_ctx_render_says_what_each_level_shows():
    sensor = Sensor()

    assert render(opened(sensor, "roof"), 0).text == "roof · Sensor · 2 lines\nhour 0: 20.5 °C\nhour 1: 21.0 °C"
    assert render(opened(sensor, "roof"), 2).text == "roof · Sensor\nroof: 2 readings"
    assert render(sensor, pos="/21/").text.endswith("\nhour 1: 21.0 °C")


def test_what_it_says_is_cut_to_the_budget_with_a_mark():
    sensor = Sensor()
    sensor.readings = list(map(float, range(1000)))

    text = render(sensor, tokens=100).text

    shown = text.count("hour ")
    assert f"[… {1000 - shown} more lines, ~" in text


def test_the_code_of_a_class_that_did_not_opt_in_is_not_run():
    class Loud(Reading):
        def __repr__(self) -> str:
            raise SystemExit("ran")

        __str__ = __repr__
        __ctx_render__ = None

    loud = Loud()
    loud.__ctx_render__ = Loud.__repr__  # type: ignore[assignment,method-assign]

    for lod in (0, 1, 2, 3):
        assert "degrees" in render(loud, lod).text


def test_trust_repr_shows_objects_of_a_class_by_their_repr_without_addresses():
    reading = Reading()
    before = render(reading, 1).text

    trust_repr(Reading)

    assert "degrees: int = 20" in before
    shown = f"Reading(\n  20 °C, of <{Reading.__module__}.Reading object>)"
    assert render(opened(reading, "r"), 1).text == f"r · Reading\n{shown}"
    assert "20 °C" in render(type("Warm", (Reading,), {})()).text, "of a subclass too"
    with pytest.raises(TypeError, match="trust_repr takes classes"):
        trust_repr(reading)  # type: ignore[arg-type]


def test_a_change_is_found_from_the_attributes_and_told_as_a_diff():
    sensor = Sensor()
    source = opened(sensor, "roof")
    before, stamp = render(source), source.stamp()

    sensor.readings.append(22.0)

    assert source.stamp() != stamp
    assert "+.readings = [20.5, 21.0, 22.0]" in render(source, 3, basis=before.basis).text
    assert "hour 2: 22.0 °C" in render(source).text


def endless(level: int, tokens: int | None) -> str:
    """Loop, and swallow every ordinary exception."""
    while True:
        try:
            time.sleep(0.001)
        except Exception:
            continue


def leaves(level: int, tokens: int | None) -> str:
    raise SystemExit("bye")


def fails(level: int, tokens: int | None) -> str:
    raise ValueError("no reading")


BAD = {
    "endless": (endless, "__ctx_render__: no answer in 0.2 s"),
    "leaves": (leaves, "__ctx_render__: SystemExit: bye"),
    "fails": (fails, "__ctx_render__: ValueError: no reading"),
    "returns a number": (
        lambda level, tokens: 3,
        "it returned a value of type int, expected a text or a list of texts",
    ),
    "returns numbers": (
        lambda level, tokens: [3],
        "it returned a value of type list, expected a text or a list of texts",
    ),
}


@pytest.mark.parametrize(("hook", "why"), BAD.values(), ids=BAD)
def test_code_that_fails_or_takes_too_long_is_stopped_and_the_attributes_are_shown(
    monkeypatch: pytest.MonkeyPatch, hook: Any, why: str
):
    monkeypatch.setattr(own_renderings, "SECONDS", 0.2)
    monkeypatch.setattr(Sensor, "__ctx_render__", lambda self, level, tokens: hook(level, tokens))
    source = opened(Sensor(), "roof")

    text = render(source).text

    assert re.match(rf"roof · Sensor · .*\n\[.*{re.escape(why)}; its attributes:\]\n\.place = 'roof'\n", text)
    deadline = time.monotonic() + 60
    while any(thread.name == "ctxkernel rendering" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the thread ends"
        time.sleep(0.01)


def test_code_that_failed_is_asked_again_when_the_object_changed(monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []

    def hook(self: Sensor, level: int, tokens: int | None) -> str:
        calls.append(level)
        if self.place == "roof":
            raise ValueError("no reading")
        return "fine"

    monkeypatch.setattr(Sensor, "__ctx_render__", hook)
    sensor = Sensor()
    source = opened(sensor)
    for lod in (0, 1, 2):
        render(source, lod)

    assert calls == [0]
    sensor.place = "cellar"
    assert render(source).text.endswith("\nfine")


def test_the_example_of_the_page_works_as_it_says():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    block = next(one for one in blocks if "__ctx_render__" in one)
    names: dict[str, Any] = {}

    exec(block, names)

    assert "3 readings" in render(opened(names["cellar"], "cellar"), 2).text
    assert "Reading(cellar, 12 °C)" in render(opened(names["reading"], "reading")).text
