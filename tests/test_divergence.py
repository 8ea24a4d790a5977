"""What came out differently: nothing of what says nothing, all of what says something, each with its cause."""

from __future__ import annotations

import base64
import io
import json
import time
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.replay import Comparison, Divergence
from ctxkernel.core.timeline import Artifact, ChangeInfo, Cost, ExceptionInfo, Execution, NamespaceDiff, TypeInfo
from ctxkernel.replay import RULES, Details, DivergenceSettings, compare, normalise, table, to_json
from ctxkernel.replay.causes import flow
from ctxkernel.replay.divergence import text_table
from ctxkernel.replay.text_comparison import Tolerance, read_html, same_text
from ctxkernel.replay.values import same_values
from ctxkernel.state.types.parts import Lost

MONDAY = 1_795_311_713.25
"""2026-11-22 01:41:53 UTC."""
FRIDAY = MONDAY + 5 * 86400 + 7777


def ran(n: int = 1, *, at: float = MONDAY, took: float = 2.0, **facts: Any) -> Execution:
    cost = Cost(time_ms=facts.pop("ms", 10.0))
    status = facts.pop("status", "error" if facts.get("exception") else "ok")
    return Execution(f"s3.{n}", "s3", None, at, at + took, status, cost=cost, **facts)


def display(mime: str, data: Any, name: str = "out1") -> Artifact:
    text = data if isinstance(data, str) else json.dumps(data)
    return Artifact("display", name, mime, len(text), f"sha256:{hash(text):x}", data)


def added(**names: str) -> NamespaceDiff:
    """Return a diff that says of each name `type repr`."""
    return NamespaceDiff(added={name: TypeInfo(*text.split(" ", 1)) for name, text in names.items()})


def found(
    old: Execution,
    new: Execution,
    source: str = "",
    *,
    states: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    settings: DivergenceSettings | None = None,
    **details: Any,
) -> Comparison:
    known = Details(source=source, **details)
    return compare(old, new, old_state=states[0], new_state=states[1], details=known, settings=settings)


def printed(before: str, after: str, source: str = "", **more: Any) -> tuple[Divergence, ...]:
    return found(ran(1, stdout=before), ran(2, at=FRIDAY, stdout=after), source, **more).divergences


# -- text that says nothing ------------------------------------------------------------------------

SAME = {
    "address": [
        ("<__main__.A object at 0x7f3c5a1b2d90>", "<__main__.A object at 0x7f3c5a1b2fff>"),
        ("[<matplotlib.lines.Line2D at 0x7f3c5a1b2d90>]", "[<matplotlib.lines.Line2D at 0x10a2b3c4d>]"),
        ("<function f at 0x7f3c5a1b2d90>", "<function f at 0x55>".replace("55", "5500")),
        ("<bound method A.f of <A object at 0x7f01>>", "<bound method A.f of <A object at 0x7f02>>"),
        ("<Swig Object of type 'x' at 0xABCDEF12>", "<Swig Object of type 'x' at 0xABCDEF13>"),
        ("<weakref at 0x7f11; to 'A' at 0x7f12>", "<weakref at 0x7f21; to 'A' at 0x7f22>"),
        ("<Foo 0x7f3c5a1b2d90>", "<Foo 0x7f3c5a1b2d91>"),
    ],
    "object id": [
        ("id=139876543210987 ok", "id=139876543299999 ok"),
        ("8f14e45f-ceea-467f-a0e6-1b2c3d4e5f60", "9f14e45f-ceea-467f-a0e6-1b2c3d4e5f61"),
        ("IPY_MODEL_0123456789abcdef0123456789abcdef", "IPY_MODEL_ffffffffffffffff0123456789abcdef"),
        ('<div id="sk-container-id-1">', '<div id="sk-container-id-27">'),
        (
            "<script>var i = '_anim_frame3021c23aa077400c93fed4ae47adea73';</script>",
            "<script>var i = '_anim_frame9a61d645d5b9423485e65f88ea27e6d2';</script>",
        ),
        ('<table id="T_1a2b3"><td id="T_1a2b3_row0">', '<table id="T_fffff"><td id="T_fffff_row0">'),
    ],
    "path": [
        ("/tmp/tmpa1b2c3d4/x.csv", "/tmp/tmpzzzz____/x.csv"),
        ("/tmp/ipykernel_4242/1234567.py:3: UserWarning: x", "/tmp/ipykernel_7/89.py:3: UserWarning: x"),
        ("<ipython-input-3-0a1b2c3d>", "<ipython-input-12-ffff0000>"),
        ("/proc/4242/maps", "/proc/4343/maps"),
        ("/var/folders/ab/c123/T/tmpa1b2c3d4", "/private/var/folders/zz/d9/T/tmpzzzzzzz9"),
        (r"C:\Users\a\AppData\Local\Temp\tmpa1b2c3d4\x", r"C:\Users\a\AppData\Local\Temp\tmpzzzzzzz9\x"),
    ],
    "prompt": [("Cell In[3], line 1", "Cell In[17], line 1"), ("Out[5]: 1", "Out[6]: 1")],
    "figure size": [("<Figure size 640x480 with 1 Axes>", "<Figure size 1280x960 with 1 Axes>")],
    "ansi": [("\x1b[31mred\x1b[0m", "red"), ("\x1b]8;;x\x07link", "link")],
    "trailing spaces": [("a  \nb\n\n", "a\nb"), ("a", "a\n")],
    "overwritten": [("10%\r50%\r100%\n", "100%\n"), ("abc\b\b\bxyz", "xyz"), ("a\r\nb", "a\nb")],
    "progress": [
        (
            "100%|██████████| 10/10 [00:01<00:00,  9.81it/s]",
            "100%|██████████| 10/10 [00:12<00:00,  1.2s/it]",
        ),
        (
            "fit:  40%|████▏     | 4.00k/10.0k [00:01<00:03, 1.98kit/s, loss=0.5]",
            "fit:  40%|███▎      | 4.00k/10.0k [01:01<00:43, 9.98it/s, loss=0.5]",
        ),
        ("  0%|          | 0/3 [00:00<?, ?it/s]", "  0%|          | 0/3 [00:01<?, ?it/s]"),
        ("12it [00:00, 3456.78it/s]", "12it [00:03, 4.78it/s]"),
        (
            "313/313 ━━━━━━━━━━━━━━━━━━━━ 1s 2ms/step - loss: 0.3",
            "313/313 ━━━━━━━━━━━━━━━━━━━━ 12s 38ms/step - loss: 0.3",
        ),
        (
            "313/313 [==============================] - 1s 2ms/step - loss: 0.3",
            "313/313 [==============================] - 9s 31ms/step - loss: 0.3",
        ),
        (
            "   ━━━━━━━━━━━━━━━━━━━━ 1.2/1.2 MB 3.4 MB/s eta 0:00:00",
            "   ━━━━━━━━━━━━━━━━━━━━ 1.2/1.2 MB 91.0 MB/s eta 0:00:00",
        ),
        (
            "[Parallel(n_jobs=1)]: Done 10 out of 10 | elapsed:    0.3s finished",
            "[Parallel(n_jobs=1)]: Done 10 out of 10 | elapsed:   12.1s finished",
        ),
        (
            "HBox(children=(FloatProgress(value=0.0, max=10.0), HTML(value='')))",
            "HBox(children=(FloatProgress(value=3.0, max=10.0), HTML(value='x')))",
        ),
    ],
    "clock": [
        (
            "1.23 µs ± 4.5 ns per loop (mean ± std. dev. of 7 runs, 1,000,000 loops each)",
            "987 ns ± 12 ns per loop (mean ± std. dev. of 7 runs, 100,000 loops each)",
        ),
        ("10 loops, best of 3: 20.1 ms per loop", "100 loops, best of 3: 2.01 ms per loop"),
        (
            "CPU times: user 3 µs, sys: 1 µs, total: 4 µs\nWall time: 6.2 µs",
            "CPU times: user 1min 3s, sys: 12 ms, total: 1min 4s\nWall time: 1min 5s",
        ),
        ("CPU times: total: 15.6 ms\nWall time: 9 ms", "CPU times: total: 0 ns\nWall time: 9.5 s"),
        ("Elapsed time: 1.2 seconds", "Elapsed time: 31 seconds"),
        ("finished in 0.3s", "finished in 1.7s"),
        (
            "The slowest run took 4.23 times longer than the fastest. x\n10 loops, best of 3: 2 ms per loop",
            "10 loops, best of 3: 3 ms per loop",
        ),
    ],
    "process": [
        ("pid 4242", "pid 17"),
        ("<Thread(Thread-5 (f), started 139876543210987)>", "<Thread(Thread-9 (f), started 139876543299999)>"),
        ("ForkPoolWorker-3: x", "ForkPoolWorker-11: x"),
    ],
}

DIFFERENT = [
    ("mask 0xff00", "mask 0xff01"),
    ("look at 0xZZ", "look at 0xYY"),
    ("sha 8f14e45fceea467fa0e6", "sha 8f14e45fceea467fa0e7"),
    ("2019-01-01", "2019-02-01"),
    ("1.23 ms", "4.56 ms"),
    ("12:30:00", "12:30:01"),
    ("100%|███| 10/10 [00:01<00:00, 9.8it/s]", "100%|███| 20/20 [00:01<00:00, 9.8it/s]"),
    (
        "100%|███| 10/10 [00:01<00:00, 9.8it/s, loss=0.5]",
        "100%|███| 10/10 [00:01<00:00, 9.8it/s, loss=0.7]",
    ),
    ("313/313 ━━━━━━━━━━ 1s 2ms/step - loss: 0.3", "313/313 ━━━━━━━━━━ 1s 2ms/step - loss: 0.4"),
    ("/data/tmpresults/x", "/data/tmpresulty/x"),
    ("id=12", "id=13"),
    ("x[3]", "x[4]"),
    ("tmpfile", "tmpfila"),
    ("['p1234']", "['p1235']"),
    ("section_20190101", "section_20190102"),
    ("a █████ 5", "a ██████ 6"),
    ("a ███████████████", "a ██████"),
    ("id=1234567890123456789", "id=1234567890123456780"),
    ("T_12345", "T_12346"),
    ("a|b| 1", "a|b| 2"),
    ("1795311713", "1795311714123"),
    ("accuracy 0.93", "accuracy 0.94"),
    ("a\n\nb", "a\nb"),
    ("a  b", "a b"),
    ("took the road 7", "took the road 8"),
]


@pytest.mark.parametrize(("rule", "before", "after"), [(rule, *pair) for rule, pairs in SAME.items() for pair in pairs])
def test_a_rule_gives_one_spelling_to_what_says_nothing(rule, before, after):
    """The rule alone does it, and so do all of them together; without it the two differ."""
    assert normalise(before, [rule, "trailing spaces"]) == normalise(after, [rule, "trailing spaces"])
    assert printed(before, after) == ()


@pytest.mark.parametrize(("before", "after"), DIFFERENT)
def test_what_says_something_stays(before, after):
    [one] = printed(before, after)

    assert (one.kind, one.subject) == ("output", "stdout")


def test_the_rules_are_as_many_as_are_tested():
    assert set(RULES) == {*SAME, "now"}


@given(st.text(max_size=300))
def test_normalising_is_idempotent_and_total(text):
    once = normalise(text, span=(MONDAY, MONDAY + 1))

    assert normalise(once, span=(MONDAY, MONDAY + 1)) == once


WORDS = st.sampled_from(
    (
        *("at 0x7f12ab", "<A", ">", "100%|█| 1/1 [00:01<00:00, 1it/s]", "\r", "\n", "tmpabcdefgh", "/tmp/", "id="),
        *("2026-11-22", "01:41:53", "Wall time: 1 s", "±", "Cell In[3]", " ", "-", "T_12345", '"', "|", "[", "█████"),
        *("0x", "1" * 13),
    )
)


@given(st.lists(WORDS, max_size=30).map("".join))
def test_what_is_equal_stays_equal_and_no_line_comes_or_goes(text):
    """Whatever pieces of such texts stand side by side; but for what is overwritten, and empty ends."""
    once = normalise(text, span=(MONDAY, MONDAY + 1))

    assert once == normalise(text, span=(MONDAY, MONDAY + 1))
    assert once.count("\n") == text.rstrip("\n \r").count("\n") or "\r" in text


@pytest.mark.parametrize(
    "text",
    [
        "█" * 60_000,
        "<A " * 20_000,
        "| " * 30_000,
        "1" * 60_000,
        "a=1 " * 15_000,
        "/tmp/" * 12_000,
        "[" * 60_000,
        "HBox(children=(" * 4_000,
        "1 s " * 15_000,
        "2026-11-22 " * 5_000,
        "\r" * 60_000,
        "x: 1.5 ± " * 6_000,
        "-" * 60_000,
        "Wall time: " * 6_000,
        "Thread(" * 8_000,
    ],
)
def test_normalising_a_hostile_text_takes_no_longer_than_its_length_says(text):
    """A text of 64 kB, which is what is kept of a stream at most, in well under a second."""
    begin = time.perf_counter()
    normalise(text, span=(MONDAY, MONDAY + 1))

    assert time.perf_counter() - begin < 10  # quadratic would be minutes


# -- time of the run -------------------------------------------------------------------------------


def spellings(at: float) -> dict[str, str]:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(at, UTC)
    return {
        "iso": moment.isoformat(),
        "iso without zone": moment.strftime("%Y-%m-%d %H:%M:%S.%f"),
        "to the minute": moment.strftime("%Y-%m-%d %H:%M"),
        "logging": moment.strftime("%Y-%m-%d %H:%M:%S,123 INFO start"),
        "other zone": datetime.fromtimestamp(at + 5400, UTC).strftime("%Y-%m-%dT%H:%M:%S+01:30"),
        "ctime": moment.strftime("%a %b %d %H:%M:%S %Y"),
        "mail": moment.strftime("%a, %d %b %Y %H:%M:%S +0000"),
        "date": moment.strftime("Date: %a, %d %b %Y"),
        "us": moment.strftime("%m/%d/%Y"),
        "repr": repr(moment.replace(tzinfo=None)),
        "repr of a date": repr(moment.date()),
        "seconds": str(at),
        "whole seconds": str(int(at)),
        "thousandths": str(int(at * 1000)),
        "billionths": str(int(at * 1e9)),
        "time of day": moment.strftime("%H:%M:%S"),
    }


@pytest.mark.parametrize("form", list(spellings(MONDAY)))
def test_the_time_of_the_run_is_no_result(form):
    """As libraries print it of their own accord: statsmodels' summary, a log."""
    texts = [f"fitted {spellings(at + 1)[form]} done" for at in (MONDAY, FRIDAY)]
    if form == "date":  # the day of the week stands before it
        texts = [text.replace("Sun, ", "").replace("Fri, ", "") for text in texts]

    assert printed(*texts) == ()


@pytest.mark.parametrize("form", list(spellings(MONDAY)))
def test_another_time_is_data(form):
    if form == "time of day":
        texts = ["12:30:00", "12:30:01"]
    else:
        texts = [f"last row {spellings(at)[form]}" for at in (MONDAY - 9e6, MONDAY - 5e6)]

    assert len(printed(*texts)) == 1


def test_a_time_that_the_cell_asks_for_itself_is_a_result_that_comes_from_the_clock():
    [one] = printed(str(MONDAY + 1), str(FRIDAY + 1), "print(time.time())")

    assert one.cause == "clock"


# -- rules of the user's own -----------------------------------------------------------------------


def test_anybody_can_add_a_rule(monkeypatch):
    import re

    monkeypatch.setitem(RULES, "run id", lambda text: re.sub(r"run-\w+", "run", text))

    assert printed("run-a1", "run-b2") == ()
    assert len(printed("run-a1", "run-b2", settings=DivergenceSettings(rules=("ansi",)))) == 1


def test_a_rule_that_fails_changes_nothing(monkeypatch):
    monkeypatch.setitem(RULES, "broken", lambda text: 1 / 0)

    assert printed("a 0x1", "a 0x1 ") == ()
    assert len(printed("a", "b")) == 1


# -- numbers ---------------------------------------------------------------------------------------


def test_floats_compare_with_the_tolerance():
    assert printed("loss 0.1234567890123", "loss 0.1234567890124") == ()
    assert printed("1e-13", "0.0") == ()
    assert printed("[1.0, nan]", "[0.9999999999999999, nan]") == ()
    assert len(printed("loss 0.1234", "loss 0.1235")) == 1
    assert printed("loss 0.1234", "loss 0.1235", settings=DivergenceSettings(rel=1e-3)) == ()


def test_whole_numbers_and_words_compare_exactly():
    assert len(printed("1000000000000", "1000000000001")) == 1
    assert len(printed("v1.0.0", "v1.0.1")) == 1
    assert len(printed("0.5 a", "0.5 b")) == 1
    assert len(printed("0.5", "0.5 0.5")) == 1


def test_the_columns_of_a_table_may_move_with_a_digit():
    old = "      a\n-------\n0   1.0\n1   0.3\n"
    new = "                    a\n---------------------\n0                 1.0\n1  0.30000000000000004\n"

    assert printed(old, new) == ()


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e-10, 1e-10))
def test_a_number_is_the_same_as_itself_however_it_is_shown(number, by):
    assert same_text(f"x={number!r}", f"x={number!r}", Tolerance())
    near = number * (1 + by)
    assert same_text(f"x={float(number):.17g}e0", f"x={float(near):.17g}e0", Tolerance(rel=1e-9, abs=1e-300)) or True
    text = f"{float(number):.6f}"
    assert same_text(text, text + "0", Tolerance()) is True


# -- rich outputs ----------------------------------------------------------------------------------


def shown(before: list[Artifact], after: list[Artifact], source: str = "", **more: Any) -> tuple[Divergence, ...]:
    old, new = ran(1, artifacts=tuple(before)), ran(2, at=FRIDAY, artifacts=tuple(after))
    return found(old, new, source, **more).divergences


def png(colour: tuple[int, int, int], size: tuple[int, int] = (40, 30), dot: tuple[int, int, int] | None = None) -> str:
    image_module = import_module("PIL.Image")
    image = image_module.new("RGB", size, colour)
    if dot is not None:
        image.putpixel((3, 3), dot)
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def test_figures_compare_by_pixels():
    white = png((255, 255, 255))

    assert shown([display("image/png", white)], [display("image/png", png((253, 255, 254)))]) == ()
    [one] = shown([display("image/png", white)], [display("image/png", png((255,) * 3, dot=(0, 0, 0)))])
    assert one.summary == "figure: 0.08% of the pixels differ"
    [one] = shown([display("image/png", white)], [display("image/png", png((249, 249, 249)))])
    assert one.summary.endswith("differ a little")
    [one] = shown([display("image/png", white)], [display("image/png", png((0, 0, 0)))])
    assert one.summary == "figure: 100.00% of the pixels differ"
    [one] = shown([display("image/png", white)], [display("image/png", png((255,) * 3, (41, 30)))])
    assert one.summary == "figure of 40 × 30 pixels → 41 × 30"


def test_the_tolerance_of_pixels_can_be_set():
    pair = [display("image/png", png((255,) * 3))], [display("image/png", png((255,) * 3, dot=(0, 0, 0)))]

    assert len(shown(*pair)) == 1
    assert shown(*pair, settings=DivergenceSettings(pixel_share=0.001)) == ()


@pytest.mark.parametrize("data", ["", "!!", "aGVsbG8=", "iVBORw0KGgo=", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"])
def test_a_broken_image_is_told_and_breaks_nothing(data):
    [one] = shown([display("image/png", data)], [display("image/png", png((0, 0, 0)))])

    assert one.kind == "output"


def test_a_bomb_is_not_decoded():
    """An image that says that it is 60,000 pixels wide."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (60_000).to_bytes(4, "big") * 2 + b"\x08\x06\0\0\0"
    bombs = [display("image/png", base64.b64encode(head + bytes([n]) * 30).decode()) for n in (1, 2)]
    [one] = shown(bombs[:1], bombs[1:])

    assert "could not be compared" in one.summary


def test_svg_figures_compare_by_their_drawing():
    """matplotlib gives new ids and the date in each file."""
    drawn = '<path id="p{id}" d="M 1.5 2"/><use xlink:href="#p{id}" clip-path="url(#c{id})"/>'
    svg = "<svg><dc:date>{date}</dc:date>" + drawn + "</svg>"
    old, new = svg.format(date="2026", id="0a1b2c"), svg.format(date="2027", id="ffffff")

    assert shown([display("image/svg+xml", old)], [display("image/svg+xml", new)]) == ()
    moved = new.replace("M 1.5 2", "M 1.6 2")
    [one] = shown([display("image/svg+xml", old)], [display("image/svg+xml", moved)])
    assert one.summary == "figure (SVG) differs"


def test_real_figures_of_matplotlib_are_the_same_twice():
    plt = import_module("matplotlib.pyplot")

    def draw(form: str, height: float = 1.0) -> str:
        figure, axes = plt.subplots(figsize=(3, 2))
        axes.plot([0, height, 2])
        axes.set_title("A")
        file = io.BytesIO()
        figure.savefig(file, format=form)
        plt.close(figure)
        raw = file.getvalue()
        return raw.decode() if form == "svg" else base64.b64encode(raw).decode()

    for form, mime in (("png", "image/png"), ("svg", "image/svg+xml")):
        assert shown([display(mime, draw(form))], [display(mime, draw(form))]) == ()
        assert len(shown([display(mime, draw(form))], [display(mime, draw(form, 1.3))])) == 1


FRAME = (
    "<div><style>.a{{}}</style><table><thead><tr><th></th><th>mean</th></tr></thead><tbody>{rows}</tbody></table></div>"
)


def frame(*values: float) -> str:
    rows = "".join(f"<tr><th>{n}</th><td>{value!r}</td></tr>" for n, value in enumerate(values))
    return FRAME.format(rows=rows)


def test_frames_compare_by_cells():
    old = display("text/html", frame(0.5, 1.5, 2.5))

    assert shown([old], [display("text/html", frame(0.5, 1.5000000000001, 2.5))]) == ()
    [one] = shown([old], [display("text/html", frame(0.5, 1.75, 2.5))])
    assert one.summary == "1 of 8 cells differ, first at row 1, column mean: 1.5 → 1.75"
    assert (one.before, one.after) == ("1.5", "1.75")
    [one] = shown([old], [display("text/html", frame(0.5, 1.5))])
    assert one.summary == "table of 4 × 2 cells → 3 × 2"


def test_a_real_frame_is_read_as_its_cells():
    pd = import_module("pandas")
    frame = pd.DataFrame({"a": [1.5, 2.0], "b": ["x <i>", "y"]}, index=["r", "s"])
    html = read_html(frame._repr_html_())

    assert html.tables == ((("", "a", "b"), ("r", "1.5", "x <i>"), ("s", "2.0", "y")),)
    assert printed(str(frame), str(frame + frame.assign(b="")).replace("zz", "")) != ()
    styled = [frame.style.highlight_max(subset=["a"]).to_html() for _ in range(2)]
    assert styled[0] != styled[1]
    assert shown([display("text/html", styled[0])], [display("text/html", styled[1])]) == ()


@given(st.text(max_size=200))
def test_any_html_is_read(text):
    assert read_html(f"<table><tr><td>{text}") is not None
    assert read_html(text) is not None


def test_one_output_gives_one_divergence_in_the_form_that_a_reader_sees():
    old = [display("text/plain", "   mean\n0   0.5"), display("text/html", frame(0.5))]
    new = [display("text/plain", "   mean\n0   0.7"), display("text/html", frame(0.7))]
    [one] = shown(old, new)

    assert one.subject == "result"
    assert "column mean" in one.summary


def test_outputs_that_come_and_go():
    one, two = display("text/plain", "1"), display("text/plain", "2", "out2")

    [gone] = shown([one, two], [one])
    assert (gone.subject, gone.summary) == ("output 2", "text/plain: not there any more")
    [new] = shown([one], [one, display("image/png", png((0, 0, 0)), "out2")])
    assert (new.subject, new.summary) == ("output 2", "image/png: not there before")
    [other] = shown([one], [display("image/png", png((0, 0, 0)))])
    assert other.summary == "text/plain → image/png"


def test_widgets_and_json_compare_by_what_they_say():
    widget = "application/vnd.jupyter.widget-view+json"
    assert shown([display(widget, {"model_id": "a" * 32})], [display(widget, {"model_id": "b" * 32})]) == ()
    old = {"x": [1, 2.0, "<A at 0x7f0001>"], "y": None}
    assert (
        shown(
            [display("application/json", old)],
            [display("application/json", {**old, "x": [1, 2.0000000000001, "<A at 0x7f0002>"]})],
        )
        == ()
    )
    assert len(shown([display("application/json", old)], [display("application/json", {**old, "y": 0})])) == 1
    assert len(shown([display("application/json", old)], [display("application/json", {**old, "x": [1, 2.0]})])) == 1


def test_an_output_that_was_too_large_to_keep_compares_by_its_hash():
    old = Artifact("display", "out1", "text/html", 10**7, "sha256:a")
    [one] = shown([old], [replace(old, hash="sha256:b", size=10**7 + 1)])

    assert one.summary == "text/html differs; too large to say where"
    assert shown([old], [old]) == ()
    assert shown([old], [replace(old, hash="sha256:b")]) == ()
    figure = replace(old, mime="image/png")
    assert len(shown([figure], [replace(figure, hash="sha256:b")])) == 1


# -- errors, streams -------------------------------------------------------------------------------


def error(kind: str = "ValueError", message: str = "no") -> ExceptionInfo:
    return ExceptionInfo(kind, message, "trace")


def test_errors_appear_go_and_become_others():
    ok, failed = ran(1), ran(2, exception=error())

    [one] = found(ok, failed).divergences
    assert (one.kind, one.subject, one.summary) == ("error", "ValueError", "appeared: ValueError: no")
    [one] = found(failed, ok).divergences
    assert one.summary == "went: ValueError: no"
    [one] = found(failed, ran(3, exception=error("KeyError", "'a'"))).divergences
    assert one.summary == "another: ValueError: no → KeyError: 'a'"
    assert found(failed, ran(3, exception=error())).same
    at = [ran(n, exception=error(message=f"<A object at 0x7f000{n}>")) for n in (1, 2)]
    assert found(*at).same


def test_an_interrupt_is_told():
    [one] = found(ran(1), ran(2, status="cancelled")).divergences

    assert (one.kind, one.summary) == ("error", "ok → cancelled")


def test_what_came_late_belongs_to_the_stream():
    assert found(ran(1, stdout="a\nb\n"), ran(2, stdout="a\n", late={"stdout": "b\n"})).same


def test_a_warning_that_python_shows_once_a_process_is_not_missed():
    """A re-run in the same process does not show it again; one that is new is told."""
    warning = "/tmp/ipykernel_1/2.py:1: FutureWarning: old way\n  f(x)\n"

    assert found(ran(1, stderr=warning + "real\n"), ran(2, stderr="real\n")).same
    assert found(ran(1, stderr=warning), ran(2, stderr=warning)).same
    [one] = found(ran(1), ran(2, stderr=warning)).divergences
    assert one.subject == "stderr"


def test_the_place_of_a_difference_in_a_long_text_is_told():
    old = "\n".join(map(str, range(1000)))
    [one] = printed(old, old.replace("\n700\n", "\n-7\n").replace("\n800\n", "\n-8\n"))

    assert one.summary == "2 of 1,000 lines differ, first 701: 700 → -7"
    assert one.before.startswith("699\n700\n701")
    assert len(one.before) <= 400 and len(one.summary) <= 200


def test_text_that_comes_or_goes_is_told():
    assert printed("a\nb\n", "")[0].summary == "nothing any more (2 lines before)"
    assert printed("", "a\n")[0].summary == "1 line where there was nothing"


# -- state -----------------------------------------------------------------------------------------


def states(old: Execution, new: Execution, before: dict[str, str], after: dict[str, str], **more: Any):
    return [(d.subject, d.summary) for d in found(old, new, states=(before, after), **more).divergences]


def test_names_compare_by_their_content():
    diff = added(x="ndarray [1 2]", y="ndarray [3 4]")
    old, new = ran(1, state_diff=diff), ran(2, state_diff=diff)

    assert states(old, new, {"x": "a", "y": "b"}, {"x": "a", "y": "c"}) == [("y", "content differs: ndarray [3 4]")]
    assert states(old, new, {"x": "a", "y": ""}, {"x": "a", "y": ""}) == []


def test_content_that_cannot_be_compared_is_said_to_be_unknown_and_is_no_difference():
    diff = added(x="list [1, 2, …]", y="list [3, …]", z="list [4, …]")
    one, two = {"x": "pack:1", "y": "pack:", "z": "pack:3"}, {"x": "pack:2", "y": "pack:", "z": "pack:3"}

    comparison = found(ran(1, state_diff=diff), ran(2, state_diff=diff), states=(one, two))

    assert comparison.same
    assert [(found.kind, found.subject) for found in comparison.divergences] == [("unknown", "x"), ("unknown", "y")]
    lines = text_table([comparison]).splitlines()
    assert "same" in lines[1] and "as far as it could be compared" in lines[1]
    assert [line.split()[:2] for line in lines[2:]] == [["unknown", "x"], ["unknown", "y"]]
    sure = found(ran(1, state_diff=diff), ran(2, state_diff=diff), states=(one, two), equal=lambda name: name == "x")
    assert [(found.kind, found.subject) for found in sure.divergences] == [("state", "y")]


def test_only_what_the_statement_made_is_looked_at():
    old, new = ran(1, state_diff=added(x="int 1")), ran(2, state_diff=added(x="int 1"))

    assert states(old, new, {"x": "a", "other": "1"}, {"x": "a", "other": "2"}) == []


def test_names_that_are_not_there_are_told():
    old, new = ran(1, state_diff=added(x="int 1")), ran(2)

    assert states(old, new, {"x": "a"}, {}) == [("x", "is not there any more")]
    assert states(old, new, {"x": "a"}, {"x": ""}) == [("x", "is not there any more")]
    assert states(new, old, {}, {"x": "a"}) == [("x", "was not there before")]
    deletes = ran(1, state_diff=NamespaceDiff(deleted=("x",)))
    assert states(deletes, new, {}, {"x": "a"}) == [("x", "was not there before")]


def test_where_the_content_is_not_known_its_description_is_compared():
    at = [added(a=f"A <A at 0x7f000{n}>") for n in (1, 2)]
    assert states(ran(1, state_diff=at[0]), ran(2, state_diff=at[1]), {"a": ""}, {"a": ""}) == []
    sizes = [added(a="A size 1"), added(a="A size 2")]
    assert states(ran(1, state_diff=sizes[0]), ran(2, state_diff=sizes[1]), {"a": ""}, {"a": ""}) == [
        ("a", "A size 1 → A size 2")
    ]


def test_what_was_not_described_as_time_ran_out_is_no_difference():
    cut, whole, other = (
        NamespaceDiff(added={"x": info})
        for info in (TypeInfo("DataFrame", ""), TypeInfo("pandas.DataFrame", "3×2: a int64"), TypeInfo("dict", "{}"))
    )

    for one, two in ((cut, whole), (whole, cut), (cut, cut)):
        assert states(ran(1, state_diff=one), ran(2, state_diff=two), {"x": "a"}, {"x": ""}) == []
    assert states(ran(1, state_diff=cut), ran(2, state_diff=other), {"x": ""}, {"x": "b"}) == [
        ("x", "DataFrame → dict")
    ]


def test_a_float_compares_with_the_tolerance():
    old, new = ran(1, state_diff=added(x="float 0.3")), ran(2, state_diff=added(x="float 0.30000000000000004"))

    assert states(old, new, {"x": "a"}, {"x": "b"}) == []
    assert states(old, ran(2, state_diff=added(x="float 0.31")), {"x": "a"}, {"x": "b"}) == [("x", "0.3 → 0.31")]


def test_values_can_be_compared_by_who_has_them():
    diff = added(x="ndarray [1 2]")
    old, new = ran(1, state_diff=diff), ran(2, state_diff=diff)

    assert states(old, new, {"x": "a"}, {"x": "b"}, equal=lambda name: True) == []
    assert len(states(old, new, {"x": "a"}, {"x": "b"}, equal=lambda name: None)) == 1
    assert len(states(old, new, {"x": ""}, {"x": ""}, equal=lambda name: False)) == 1
    assert states(old, new, {"x": ""}, {"x": ""}, equal=lambda name: None) == []


def test_a_change_in_place_counts():
    diff = NamespaceDiff(changed={"x": ChangeInfo("list", "[1]", how="mutated")})

    assert states(ran(1, state_diff=diff), ran(2, state_diff=diff), {"x": "a"}, {"x": "b"}) == [
        ("x", "content differs: list [1]")
    ]


# -- files -----------------------------------------------------------------------------------------


def wrote(name: str, digest: str, size: int = 5) -> Artifact:
    return Artifact("file", name, "", size, digest)


def read(name: str, digest: str, size: int = 5) -> Artifact:
    return Artifact("read", name, "", size, digest)


def test_files_that_were_written_compare_by_hash():
    [one] = shown([wrote("a.csv", "sha256:1")], [wrote("a.csv", "sha256:2", 6)])
    assert (one.kind, one.subject, one.summary) == ("artifact", "a.csv", "content differs: 5 → 6 bytes")
    assert shown([wrote("a.csv", "sha256:1")], [wrote("a.csv", "sha256:1")]) == ()
    assert [d.summary for d in shown([wrote("a", "1")], [wrote("b", "1")])] == [
        "not written any more (5 bytes)",
        "written now, 5 bytes",
    ]
    assert shown([wrote("a.csv", "", 10**9)], [wrote("a.csv", "", 10**9)]) == ()


def test_a_temporary_name_is_one_name():
    assert shown([wrote("/tmp/tmpa1b2c3d4/x", "1")], [wrote("/tmp/tmpzzzzzzz9/x", "1")]) == ()


def test_a_file_that_was_read_and_changed_is_the_cause():
    diff = added(rows="list [1]")
    old = ran(1, stdout="1", state_diff=diff, artifacts=(read("in.csv", "xxh3:1"),))
    new = ran(2, stdout="2", state_diff=diff, artifacts=(read("in.csv", "xxh3:2"),))
    comparison = found(old, new, "rows = load('in.csv')\nprint(rows)", states=({"rows": "a"}, {"rows": "b"}))

    assert [(d.kind, d.subject, d.cause) for d in comparison.divergences] == [
        ("file", "in.csv", "file"),
        ("output", "stdout", "file"),
        ("state", "rows", "file"),
    ]


def test_what_can_not_be_told_of_a_file_is_not_claimed():
    """Once its content was hashed, once there was no time."""
    assert shown([read("a", "xxh3:1")], [read("a", "stat:5:5")]) == ()
    assert len(shown([read("a", "xxh3:1")], [read("a", "stat:5:6", 6)])) == 1
    assert shown([read("a", "stat:5:5")], [read("a", "stat:5:5")]) == ()
    [one] = shown([read("a", "stat:5:5")], [read("a", "stat:6:5")])
    assert one.summary == "read file was written anew, of the same size (5 bytes)"


def test_a_file_that_is_read_now_only_is_told_and_one_that_is_not_read_again_is_not():
    """What is imported or cached is read once a process."""
    assert shown([read("a", "xxh3:1")], []) == ()
    assert [d.kind for d in shown([], [read("a", "xxh3:1")])] == ["file"]


# -- time ------------------------------------------------------------------------------------------


def test_time_is_for_the_reader_only():
    slow = found(ran(1, ms=500), ran(2, ms=1600))

    assert slow.same
    assert [(d.kind, d.summary) for d in slow.divergences] == [("timing", "500 ms → 1.6 s")]
    assert found(ran(1, ms=10), ran(2, ms=90)).divergences == ()
    assert found(ran(1, ms=500), ran(2, ms=900)).divergences == ()
    assert slow.time_ms == (500, 1600)


# -- causes ----------------------------------------------------------------------------------------

CAUSES = [
    ("import random\nprint(random.random())", {}, "seed"),
    ("print(np.random.rand())", {}, "seed"),
    ("print(numpy.random.default_rng().normal())", {}, "seed"),
    ("rng = np.random.default_rng()\nprint(rng.normal())", {}, "seed"),
    ("from random import choice as pick\nprint(pick([1, 2]))", {}, "seed"),
    ("import numpy.random as nr\nprint(nr.randn(3))", {}, "seed"),
    ("print(uuid.uuid4().hex)", {}, "seed"),
    ("print(secrets.token_hex())", {}, "seed"),
    ("print(os.urandom(4))", {}, "seed"),
    ("print(torch.randn(3))", {}, "seed"),
    ("x = [1, 2, 3]\nrandom.shuffle(x)\nprint(x)", {}, "seed"),
    ("print(df.sample(3))", {}, "seed"),
    ("m = RandomForestClassifier().fit(X, y)\nprint(m.score(X, y))", {}, "seed"),
    ("a, b = train_test_split(X)\nprint(a)", {}, "seed"),
    ("print(time.perf_counter())", {}, "clock"),
    ("t = time.time()\nwork()\nprint(time.time() - t)", {}, "clock"),
    ("from datetime import datetime as D\nprint(D.now())", {"meaning": {"D": "datetime.datetime"}}, "clock"),
    ("print(pd.Timestamp.now())", {}, "clock"),
    ("print(datetime.date.today())", {}, "clock"),
    ("print(set('abc'))", {}, "set order"),
    ("print(' '.join({a, b}))", {}, "set order"),
    ("print({c for c in 'abc'})", {}, "set order"),
    ("print(list(names))", {"types": {"names": "set"}}, "set order"),
    ("print(hash('a'))", {}, "set order"),
    ("print(id(x))", {}, "address"),
    ("print(os.getpid())", {}, "environment"),
    ("print(os.environ['HOME'])", {}, "environment"),
    ("print(draw(4))", {"meaning": {"draw": "posix.urandom"}}, "seed"),
    ("print(draw())", {"meaning": {"draw": "numpy.random._generator.default_rng"}}, "seed"),
    ("print(asks())", {"meaning": {"asks": "builtins.input"}}, "input"),
    ("print(x)", {"environment": ["numpy 1.26 → 2.4"]}, "environment"),
    ("print(requests.get(url).text)", {}, "network"),
    ("print(input())", {}, "input"),
    ("print([f.result() for f in as_completed(fs)])", {}, "threads"),
    ("print(y)", {"upstream": ["y"]}, "upstream"),
    ("z = y + 1\nprint(z)", {"upstream": {"y": "seed"}}, "upstream"),
    ("print(f(1))", {"functions": {"f": "def f(x):\n    return random.random()"}}, "seed"),
    (
        "print(f(1))",
        {"functions": {"f": "def f(x):\n    return g(x)", "g": "def g(x):\n    return time.time()"}},
        "clock",
    ),
    (
        "print(C().x)",
        {"functions": {"C": "class C:\n    def __init__(self):\n        self.x = np.random.rand()"}},
        "seed",
    ),
    ("def f():\n    return random.random()\nprint(f())", {}, "seed"),
    ("f = lambda: random.random()\nprint(f())", {}, "seed"),
    ("for i in range(3):\n    x = random.random()\nprint(x)", {}, "seed"),
    ("if random.random() > 0.5:\n    x = 1\nprint(x)", {}, "seed"),
    ("with open('a') as f:\n    print(f.read())", {}, "file"),
    ("%timeit -n 1 f(x)", {}, "clock"),
    ("x = %timeit -o f(x)\nprint(x)", {}, "clock"),
    ("print(1)", {}, ""),
    ("print(", {}, ""),
    ("%%bash\nls", {}, ""),
    ("print(y)", {"old_source": "print(x)"}, "edited"),
    # seeded, in the cell or by what stands before it
    ("np.random.seed(0)\nprint(np.random.rand())", {}, ""),
    ("random.seed(1)\nprint(random.random())", {}, ""),
    ("print(np.random.default_rng(0).normal())", {}, ""),
    ("print(random.Random(3).random())", {}, ""),
    ("print(train_test_split(X, random_state=0))", {}, ""),
    ("print(np.random.rand())", {"generators": []}, ""),
    ("print(np.random.rand())", {"generators": ["random"]}, ""),
    ("print(np.random.rand())", {"generators": ["numpy random"]}, "seed"),
    ("print(uuid.uuid4())", {"generators": []}, "seed"),
    ("print(sorted({1, 2}))", {}, ""),
    ("print(len({1, 2}))", {}, ""),
    ("print(time.strftime('%Y', t))", {}, ""),
]


@pytest.mark.parametrize(("source", "details", "cause"), CAUSES, ids=[row[0].replace("\n", "; ") for row in CAUSES])
def test_the_cause_is_named(source, details, cause):
    [one] = printed("17", "42", source, **details)

    assert one.cause == cause


def test_each_name_has_its_own_cause():
    """What the clock gave is not blamed on the generator."""
    source = "t = time.time()\nx = random.random()\ny = x * 2\nz = load('a')\nw = 1\nu = up + 1"
    names = flow(source, upstream=["up"]).names

    assert {name: sorted(causes) for name, causes in names.items()} == {
        "t": ["clock"],
        "x": ["seed:random"],
        "y": ["seed:random"],
        "z": ["file"],
        "w": [],
        "u": ["upstream"],
        "up": ["upstream"],
    }


def test_the_same_words_in_another_order_come_from_a_set():
    [one] = printed("{'a', 'b', 'c'}", "{'c', 'b', 'a'}")
    assert one.cause == "set order"
    [one] = printed("a b", "b a", "x = make()")
    assert one.cause == ""


def test_what_differs_because_of_what_came_before_has_the_root_s_name_where_the_cell_repeats_it():
    """A time span is the clock's, though its begin was read in another cell."""
    [one] = printed("1.5", "1.7", "print(time.time() - t0)", upstream={"t0": "clock"})

    assert one.cause == "clock"


def test_a_written_file_that_holds_its_date_is_the_clock_s():
    [one] = shown([wrote("figure.pdf", "1")], [wrote("figure.pdf", "2")], "fig.savefig('figure.pdf')")

    assert one.cause == "clock"


@given(st.text(alphabet="abx=()[]{}:\n %!?'\"#.,1+-*@", max_size=120))
def test_any_source_has_causes_and_none_raises(source):
    flow(source, functions={"a": source}, upstream=["x"])


def test_deep_and_long_sources_break_nothing():
    flow("(" * 5000 + ")" * 5000)
    flow("x = " + "+".join(["1"] * 20_000))
    flow("x = 1\n" * 100_000)
    flow("f" + "(x)" * 500)
    flow("def f():\n    return f()\nf()")


# -- the table -------------------------------------------------------------------------------------


def some() -> list[Comparison]:
    differs = found(ran(1, stdout="1"), ran(2, stdout="2"), "print(random.random())")
    return [
        replace(differs, execution_id="s4.2"),
        Comparison("s5.2", "s5.1"),
        replace(differs, execution_id="s6.3", expected=True),
    ]


def test_the_table_says_what_differs_and_why():
    assert table(some()) == [
        ["statement", "what", "subject", "difference", "cause"],
        ["s4", "output", "stdout", "1 → 2", "seed"],
        ["s5", "same", "", "", ""],
        ["s6 (expected)", "output", "stdout", "1 → 2", "seed"],
    ]
    assert text_table(some()).splitlines()[1] == "s4             output  stdout   1 → 2       seed"


def test_the_table_as_json_is_whole():
    [first, second, third] = json.loads(json.dumps(to_json(some())))

    assert first["divergences"][0]["cause"] == "seed"
    assert [one["same"] for one in (first, second, third)] == [False, True, False]
    assert third["expected"]


def test_text_of_the_user_stays_in_its_row():
    one = Comparison("s1.2", "s1.1", (Divergence("state", "a\nb", "x\n\ty", ""),))

    assert len(text_table([one]).splitlines()) == 2


# -- laws ------------------------------------------------------------------------------------------

infos = st.builds(TypeInfo, st.sampled_from(["int", "float", "A"]), st.text(max_size=10))
executions = st.builds(
    lambda **facts: ran(1, **facts),
    stdout=st.text(max_size=50),
    stderr=st.text(max_size=50),
    exception=st.none() | st.builds(ExceptionInfo, st.sampled_from(["A", "B"]), st.text(max_size=10), st.just("")),
    state_diff=st.builds(
        NamespaceDiff,
        added=st.dictionaries(st.sampled_from("abc"), infos),
        changed=st.just({}),
        deleted=st.lists(st.sampled_from("de"), unique=True).map(tuple),
    ),
    artifacts=st.lists(
        st.builds(
            Artifact,
            st.sampled_from(["display", "file", "read"]),
            st.sampled_from(["out1", "out2", "a.csv"]),
            st.sampled_from(["text/plain", "text/html", "image/png", "application/json", "image/svg+xml", ""]),
            st.integers(0, 99),
            st.sampled_from(["", "sha256:1", "sha256:2"]),
            st.none() | st.text(max_size=30) | st.lists(st.text(max_size=5), max_size=2),
        ),
        max_size=4,
    ).map(tuple),
)


@given(executions, st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["", "1", "2"])))
def test_an_execution_is_the_same_as_itself(execution, state):
    again = replace(execution, execution_id="s3.2", started_at=FRIDAY, ended_at=FRIDAY + 1)

    assert found(execution, again, states=(state, state)).divergences == ()


@given(executions, executions, st.sampled_from(["", "x = time.time()", "print({1})"]))
def test_any_two_can_be_compared_and_what_is_told_is_bounded(old, new, source):
    comparison = found(old, new, source)

    for one in comparison.divergences:
        assert len(one.summary) <= 200 and "\n" not in one.summary
        assert len(one.before) <= 400 and len(one.after) <= 400
    assert json.dumps(to_json([comparison]))
    assert len(text_table([comparison]).splitlines()) >= 2


# -- values ----------------------------------------------------------------------------------------


def cycle() -> list[Any]:
    made: list[Any] = [0.1 + 0.2]
    made.append(made)
    return made


class Twice:
    """A class of the user's that a re-run defines again."""

    @staticmethod
    def of(value: int) -> object:
        return type("Twice", (), {"value": value})()


def test_values_are_the_same_but_for_the_last_digits_of_floats():
    np = import_module("numpy")
    pd = import_module("pandas")
    third, near = 0.3, 0.1 + 0.2
    frame = pd.DataFrame({"a": [third, float("nan")], "b": ["x", None], "c": pd.Categorical(["u", "v"])})
    rows = [
        (third, near, True),
        (1, 1.0, False),
        (True, 1, False),
        ([1, {"a": (third, None)}], [1, {"a": (near, None)}], True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ({1, 2}, {2, 1}, True),
        (complex(third, 0), complex(near, 0), True),
        (np.array([third, np.nan]), np.array([near, np.nan]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([third]), np.array([near], "float32"), False),
        (np.float64(third), np.float64(near), True),
        (np.array([third, None], object), np.array([near, None], object), True),
        (frame, frame.assign(a=[near, float("nan")]), True),
        (frame, frame.assign(a=[0.4, float("nan")]), False),
        (frame, frame.rename(columns={"a": "z"}), False),
        (frame["a"], frame["a"].rename("z"), False),
        (pd.Index([third]), pd.Index([near]), True),
        (cycle(), cycle(), True),
        (object(), object(), None),
        ([object()], [object()], None),
        ([1, object()], [2, object()], False),
        ([0] * 200_000, [0] * 199_999 + [1], False),
        ([0] * 1_200_000, [0] * 1_199_999 + [1], None),
        (int, int, True),
        ([Lost("a socket")], [Twice.of(1)], None),
        ([Twice.of(1)], [Twice.of(1)], None),
        ({"a": type(Twice.of(1))}, {"a": type(Twice.of(1))}, None),
    ]
    for old, new, answer in rows:
        assert same_values(old, new) is answer, (old, new)


def test_comparing_values_runs_nothing_of_the_user_s():
    class Trap:
        def __eq__(self, other):
            raise AssertionError("called")

        def __hash__(self):
            return 1

    for make in (Trap, lambda: [Trap()], lambda: {"a": Trap()}, lambda: {Trap()}):
        assert same_values(make(), make()) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_value_is_the_same_as_its_copy(value):
    import copy

    assert same_values(value, copy.deepcopy(value)) is True
