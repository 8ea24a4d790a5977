"""Images in projections: which are sent, what they take, what stands for them; and how they are scaled and read."""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import PIL.Image
import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from scale import examples
from test_projection_history import OWN, after, sessions

from ctxkernel.agent.reply import read_reply, reply_events
from ctxkernel.core.image_headers import is_whole
from ctxkernel.core.ports import Picture
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact, Execution, Statement
from ctxkernel.core.turn_values import HandleState, Turn
from ctxkernel.history.capabilities import CAUTIOUS, MODELS, capabilities_for, image_tokens
from ctxkernel.history.events import Action, HistoryEvent, Observation, Pin, UserQuestion
from ctxkernel.history.rules import check
from ctxkernel.kernel.execution.pictures import scaled_pictures
from ctxkernel.projection.budget import HistoryFold
from ctxkernel.projection.displayed_images import image_displays, image_limits, images_of, number_of_images
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.layout import result_text
from ctxkernel.projection.masker import Masker
from ctxkernel.projection.secrets import mask
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.thumbnails import scaled_down
from ctxkernel.testing.remembering import parts_of, signature, unbound
from ctxkernel.testing.renderings import opened, render


def encoded(form: str = "PNG", size: tuple[int, int] = (280, 280), mode: str = "RGB", colour: Any = None) -> str:
    out = io.BytesIO()
    PIL.Image.new(mode, size, colour).save(out, form)
    return base64.b64encode(out.getvalue()).decode()


def noise(side: int) -> str:
    out = io.BytesIO()
    PIL.Image.effect_noise((side, side), 90).convert("RGB").save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


PLOTS = [encoded(size=(28 * n, 280)) for n in range(1, 6)]
"""Images of 10, 20, … 50 tokens."""


def display(data: Any, name: str = "out1", mime: str = "image/png") -> Artifact:
    return Artifact("display", name, mime, len(data or "") * 3 // 4, f"sha256:{name}", data)


def with_images(turn: Turn, shown: Sequence[Sequence[str]]) -> Turn:
    """Return the turn whose executions displayed these images."""
    path: list[tuple[Statement, Execution]] = []
    for (statement, execution), images in zip(turn.history, shown, strict=True):
        artifacts = tuple(display(data, f"out{n}") for n, data in enumerate(images, 1))
        path.append((statement, replace(execution, artifacts=artifacts)))
    return replace(turn, history=path)


def pinned(data: str, name: str = "h") -> HandleState:
    size = image_tokens(280, 280)
    return HandleState(
        name, name, "view", f"s{OWN}", {"lod": 0}, "a figure", 20 + size, True, "", False, False, picture=Picture(
            "image/png", data, 280, 280, size
        ),
    )  # fmt: skip


@st.composite
def pictured_sessions(draw: st.DrawFn) -> tuple[list[list[HistoryEvent]], list[list[str]]]:
    """A random history whose executions displayed images; some results are those of cells that did."""
    session = [part for events in draw(sessions()) for part in ([[], events] if draw(st.booleans()) else [events])]
    shown = [draw(st.lists(st.sampled_from(PLOTS), max_size=3)) for _ in session]
    for n, events in enumerate(session):
        # The result of a call is recorded with the execution of its cell.
        for at, event in enumerate(events):
            if isinstance(event, Observation) and draw(st.booleans()):
                events[at] = replace(event, event_id=f"s{OWN + n}.1:1")
                break
        if draw(st.integers(0, 9)) == 0:
            events.append(Pin(f"keep{n}", f"s{OWN + draw(st.integers(0, n))}.1"))
    return session, shown


@given(
    pictured_sessions(),
    st.sampled_from(["claude-sonnet-5-5", "claude-opus-4-5", "local-model"]),
    st.sampled_from([1_000, 3_000, 32_000]),
    st.sampled_from([0, 60, 200, 1_000, 6_000]),
    st.sampled_from(["tools", "script"]),
    st.sampled_from(["", "yes"]),
    st.booleans(),
)
@profile(max_examples=examples(200))
def test_images_of_any_history_hold_the_laws_of_projections(
    made: Any, model: str, budget: int, most: int, dialect: str, images: str, pins: bool
):
    """Valid, within both budgets, explained, and the same whether built step by step or anew."""
    session, shown = made
    given_settings = Settings(
        projection_tokens=budget, model=model, image_tokens=most, dialect=dialect, images=images, statement_tokens=200
    )
    stepwise = ProjectionEngine(given_settings, count_tokens)
    for end in range(1, len(session) + 1):
        step = with_images(after(session[:end], start=OWN), shown[:end])
        if pins:
            step = replace(step, handles=(pinned(PLOTS[0]), pinned(PLOTS[end % 5], "g")))
        projection = stepwise.project(step)
        fresh = ProjectionEngine(given_settings, count_tokens).project(step)

        assert projection.report == check(projection.request, stepwise.capabilities)
        assert projection.report.ok
        assert projection.request_bytes == fresh.request_bytes
        assert projection.tokens == sum(block.tokens for block in projection.blocks) <= budget
        count, tokens = projection.image_tokens
        assert tokens <= (most if stepwise.images.total else 0)
        assert count == sum(number_of_images(text) for text in [projection.request_bytes.decode()])
        assert stepwise.images.total or "images" in {one.id for one in projection.left_out} or not any(shown[:end])
        assert len({block.id for block in projection.blocks}) == len(projection.blocks)


# -- asks, answered as a strict server does ---------------------------------------------------------------


@st.composite
def asks(draw: st.DrawFn) -> list[tuple[str, list[str]]]:
    """Cells and asks, each with the images that it displays: `cell`, or `ask` with a letter for each cell of it."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(["cell", "cell", "ask", "askf", "askoo"]), st.lists(st.sampled_from(PLOTS), max_size=3)
            ),
            min_size=3,
            max_size=14,
        )
    )


class Session:
    """A session whose asks are answered by a server that binds thinking."""

    def __init__(self, settings: Settings, handles: tuple[HandleState, ...] = ()) -> None:
        self.settings, self.handles = settings, handles
        self.engine = self.fresh()
        self.path: list[tuple[Statement, Execution]] = []
        self.records: dict[str, list[HistoryEvent]] = {}
        self.numbers = itertools.count(1)

    def fresh(self) -> ProjectionEngine:
        return ProjectionEngine(self.settings, count_tokens)

    def ran(
        self, source: str, images: Sequence[str], status: Any = "ok", author: Any = "human", kind: Any = "python"
    ) -> str:
        n = next(self.numbers)
        before = self.path[-1][1].execution_id if self.path else None
        artifacts = tuple(display(data, f"out{at}") for at, data in enumerate(images, 1))
        execution = Execution(f"s{n}.1", f"s{n}", before, 0.0, 1.0, status, artifacts=artifacts)
        self.path.append((Statement(f"s{n}", n, 0.0, source, kind, author), execution))
        return execution.execution_id

    def project(self) -> Projection:
        turn = Turn(self.path, self.handles, (), 0, (), self.records)
        self.engine.tend(turn)
        projection = self.engine.project(turn)
        assert projection.report.ok, projection.violations
        assert projection.request_bytes == self.fresh().project(turn).request_bytes
        assert not self.engine.capabilities.bound_thinking or unbound(parts_of(projection.request)) == ""
        assert projection.image_tokens[1] <= self.settings.image_tokens
        return projection

    def respond(self, *blocks: dict[str, Any]) -> list[HistoryEvent]:
        """Record a response to the present projection; return the calls in it."""
        projection = self.project()
        thought = {"type": "thinking", "thinking": f"thought {len(self.path)}"}
        thought["signature"] = signature(parts_of(projection.request), thought["thinking"])
        dialect = "tools" if projection.tools else "script"
        reply = read_reply([thought, *blocks] if dialect == "tools" else blocks, dialect)
        name = self.ran("# response", (), author="model", kind="meta")
        self.records[name] = list(reply_events(reply, projection, name, f"msg{name}", 1))
        return [event for event in self.records[name] if isinstance(event, Action)]

    def ask(self, cells: str, images: Sequence[str]) -> None:
        asked = self.ran("%%ask", (), kind="meta")
        self.records[asked] = [UserQuestion(f"{asked}:1", "what is it?")]
        code = [
            {
                "type": "tool_use",
                "id": f"t{asked}-{n}".replace(".", "_"),
                "name": "run_cell",
                "input": {"code": "plot()"},
            }
            for n in range(len(cells))
        ]
        if self.settings.dialect == "script":
            code = [{"type": "text", "text": '<script type="text/x-python">\nplot()\n</script>'} for _ in cells]
        if cells:
            for kind, action in zip(cells, self.respond(*code), strict=False):
                status = "error" if kind == "f" else "ok"
                name = self.ran("plot()", images, status, author="model")
                content = result_text(self.path[-1][1], "plot()")
                result = Observation(f"{name}:1", action.tool_call_id, content, "failed" if kind == "f" else "success")
                self.records[name] = [result]
        self.respond({"type": "text", "text": "I see."})


@given(
    asks(),
    st.sampled_from(["claude-sonnet-5-5", "claude-opus-4-5"]),
    st.sampled_from([3_000, 32_000]),
    st.sampled_from([0, 60, 240, 6_000]),
    st.sampled_from(["tools", "script"]),
    st.booleans(),
)
@profile(max_examples=examples(100))
def test_a_strict_server_refuses_no_request_with_images(
    steps: Any, model: str, budget: int, most: int, dialect: str, pins: bool
):
    session = Session(
        Settings(model=model, projection_tokens=budget, image_tokens=most, dialect=dialect, statement_tokens=200),
        (pinned(PLOTS[4]),) if pins else (),
    )
    for kind, images in steps:
        if kind == "cell":
            session.ran("plot()", images)
            session.project()
        else:
            session.ask(kind.removeprefix("ask"), images)


# -- the fold --------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 50), st.booleans(), st.booleans()), max_size=60
    ),
    st.integers(100, 400),
    st.integers(0, 120),
    st.sampled_from([40, 150, 10**9]),
)
@profile(max_examples=examples(300))
def test_a_fold_keeps_text_and_images_within_their_caps(entries: Any, cap: int, image_cap: int, limit: int):
    fold = HistoryFold(cap, image_cap, limit)
    for text, less, images, kept, statement in entries:
        size, least = text + images, text + images if kept else min(less, text)
        fresh = text if statement and least < size else 0
        fold.append(size, least, images=(images, images), kept=kept, fresh=fresh)
        pictured = [at for at in range(len(fold)) if fold.shows_images(at)]
        assert fold.tokens <= cap
        assert fold.images == sum(entries[at][2] for at in pictured) <= image_cap
        assert all(fold.stands(at) for at in pictured)
        assert fold.tokens == sum(
            (min(one[1], one[0]) if at < fold.masked and not one[3] else one[0]) + (one[2] if at in pictured else 0)
            for at, one in enumerate(entries[: len(fold)])
            if fold.stands(at)
        )


def test_a_statement_in_one_line_keeps_its_image():
    """It is old after a few outputs; the plot may be what the next question is about."""
    path = [
        (Statement(f"s{n}", n, 0.0, f"step({n})"), Execution(f"s{n}.1", f"s{n}", None, 0.0, 1.0, "ok", "row\n" * 900))
        for n in range(1, 6)
    ]
    turn = with_images(Turn(path, (), (), 0, ()), [[encoded()], *[[]] * 4])
    projection = ProjectionEngine(SETTINGS, count_tokens).project(turn)

    first = [piece for piece in projection.run.pieces if piece.origin == "s1"]
    assert [piece.kind for piece in first] == ["statement", "image"]
    assert " short>" in first[0].text
    assert projection.tokens == sum(block.tokens for block in projection.blocks)


def test_an_image_that_alone_exceeds_the_cap_changes_no_earlier_entry():
    fold = HistoryFold(1000, 100)
    assert not fold.append(90, 5, images=(80, 80))
    assert not fold.append(500, 5, images=(400, 400))

    assert (fold.shows_images(0), fold.shows_images(1)) == (True, False)
    assert fold.tokens == 190


# -- which image is sent ----------------------------------------------------------------------------------


def test_an_image_of_64_forms_is_sent_in_the_best_one_of_them_that_the_api_takes():
    png, jpeg = encoded(), encoded("JPEG")
    artifacts = (display(jpeg, mime="image/jpeg"), display(png), display("<svg/>", mime="image/svg+xml"))

    assert [one.mime for one in image_displays(artifacts)] == ["image/png"]
    [found] = images_of(Execution("s1.1", "s1", None, 0.0, artifacts=artifacts))
    assert (found.media_type, found.width, found.height, found.tokens) == ("image/png", 280, 280, 100)


def test_the_media_type_is_that_of_the_data_and_white_space_is_removed():
    data = "\n".join([encoded("JPEG")[:70], encoded("JPEG")[70:], ""])
    [found] = images_of(Execution("s1.1", "s1", None, 0.0, artifacts=(display(data),)))

    assert found.media_type == "image/jpeg"
    assert found.data == encoded("JPEG")


@pytest.mark.parametrize("data", [None, "", "no base64", encoded("BMP"), encoded(size=(2001, 1)), ["a", "b"], {"a": 1}])
def test_what_the_api_refuses_is_no_image(data: Any):
    shown = Artifact("display", "out1", "image/png", 5, "", data)

    assert images_of(Execution("s1.1", "s1", None, 0.0, artifacts=(shown,))) == ()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_part_of_an_image_is_not_whole(form: str):
    raw = base64.b64decode(encoded(form))

    assert is_whole(raw)
    assert not any(is_whole(raw[:size]) for size in range(20, len(raw) - 2))


# -- scaling ----------------------------------------------------------------------------------------------

SETTINGS = Settings()


def scaled(*displays: Artifact, settings: Settings = SETTINGS, dropped: dict[str, str] | None = None) -> list[Artifact]:
    return list(scaled_pictures(displays, dropped or {}, settings, lambda: False))


def test_an_image_within_the_limits_is_sent_as_it_is():
    assert scaled(display(encoded(size=(1000, 800)))) == []


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_a_large_image_of_any_mode_is_scaled_down_within_the_limits(mode: str):
    [made] = scaled(display(encoded(size=(3000, 1500), mode=mode)))
    limits = image_limits(SETTINGS, capabilities_for(SETTINGS.model))
    [found] = images_of(Execution("s1.1", "s1", None, 0.0, artifacts=(display(None), made)))

    assert made.kind == "picture"
    assert max(found.width, found.height) <= limits.side
    assert found.tokens <= limits.one
    assert abs(found.width / found.height - 2) < 0.02
    assert is_whole(base64.b64decode(found.data))


def test_a_photo_that_was_too_large_for_the_log_is_scaled_from_what_was_displayed():
    whole = noise(1800)
    shown = Artifact("display", "out1", "image/png", len(whole), "sha256:x", None)
    [made] = scaled(shown, dropped={"sha256:x": whole})

    assert made.mime == "image/jpeg"
    assert len(made.data) < 1_000_000
    assert scaled(shown)[0].data == "too large to be kept"


def test_time_that_is_over_leaves_a_reason():
    [made] = scaled_pictures((display(encoded(size=(3000, 1500))),), {}, SETTINGS, lambda: True)

    assert (made.mime, made.data) == ("text/plain", "no time was left to scale it down")


def test_scaling_gives_the_same_bytes_again_and_a_reason_for_what_cannot_be_decoded():
    data = noise(900)

    assert scaled_down(data, 500, 400) == scaled_down(data, 500, 400)
    assert scaled_down(data[:2000], 500, 400) == "it cannot be decoded"
    assert scaled_down("AAAA", 500, 400) == "its header cannot be read"
    assert scaled_down(data, 500, 0) == "image_tokens has no room for it"


@pytest.mark.parametrize("settings", [Settings(image_tokens=0), Settings(model="local"), Settings(images="no")])
def test_nothing_is_scaled_for_a_model_that_gets_no_image(settings: Settings):
    assert scaled(display(encoded(size=(3000, 1500))), settings=settings) == []


# -- models -----------------------------------------------------------------------------------------------


def test_a_model_takes_images_if_its_row_says_so():
    assert not CAUTIOUS.sees
    assert all(row.sees for row in MODELS)
    assert image_limits(Settings(model="qwen"), capabilities_for("qwen")).total == 0
    assert image_limits(Settings(model="qwen", images="yes"), capabilities_for("qwen")).total == 6000
    assert capabilities_for("claude-opus-4-8").image_edge > capabilities_for("claude-haiku-4-5").image_edge


@pytest.mark.parametrize(("size", "tokens"), [((28, 28), 1), ((29, 28), 2), ((1, 1), 1), ((1000, 1000), 36 * 36)])
def test_the_tokens_of_an_image_are_its_patches(size: tuple[int, int], tokens: int):
    assert image_tokens(*size) == tokens


# -- secrets ----------------------------------------------------------------------------------------------


def test_an_image_in_base64_is_not_masked_whatever_it_contains():
    """`EAAA…` is the beginning of a token of a provider, and common in a PNG."""
    image = "iVBORw0KGgoAAAANSUhEUgAAAOAAAAB6/EAAA" + "CAYAAACm0F" * 8 + "/AKIAIOSFODNN7EXAMPLE/abc=="
    masker = Masker()
    masker.learn("PASSWORD", "CAYAAACm0FCAYAAA", how="strong")
    text = f'password = "hunter2-and-more"\n"data":"{image}"'

    assert mask(image) == masker(image) == image
    assert image in mask(text)
    assert "hunter2" not in mask(text)
    assert "AKIA" not in mask("AKIAIOSFODNN7EXAMPLE")


def test_a_file_of_a_large_image_is_decoded_in_the_background_and_says_so_until_then(tmp_path):
    image = import_module("PIL.Image")
    path = tmp_path / "a.png"
    image.new("RGB", (2_500, 2_000), "red").save(path)
    source = opened(path)
    first = render(source, 0)
    assert first.picture is None
    assert "no picture yet: it is being decoded" in first.text
    wanted = source.preparation()
    assert wanted is not None
    result = wanted.work(lambda: False, lambda _: None)

    assert source.accept(result)

    then = render(source, 0)
    assert then.picture is not None
    assert "shown as 512 × 410" in then.text
    assert source.preparation() is None
    image.new("RGB", (2_600, 2_000), "blue").save(path)
    assert render(source, 0).picture is None
    assert not source.accept(result)
