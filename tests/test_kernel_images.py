"""The images that cells displayed, as a model is sent them: real kernels, the real client, a strict server."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import warm
from test_kernel_asking import Bench, bench_in, cell, script, shown

from ctxkernel.cli import main
from ctxkernel.store.log.session import SessionReader
from ctxkernel.testing import call, say, think

pytestmark = pytest.mark.usefixtures("loaded_libraries")
PLOT = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2, 3])\nplt.show()"
PREPARE = (
    "%matplotlib inline\n"
    "import PIL.Image, numpy as np\n"
    "from IPython.display import display, Image\n"
    "photo = PIL.Image.new('RGB', (64, 48), 'red')\n"
    "pixels = np.zeros((60, 80, 3), dtype='uint8')\n"
    "class Chart:\n"
    "    def __init__(self, **forms):\n"
    "        self.forms = forms\n"
    "    def _repr_mimebundle_(self, **kw):\n"
    "        forms = {name.replace('_', '/'): data for name, data in self.forms.items()}\n"
    "        return {'application/vnd.plotly.v1+json': {}, **forms}\n"
    "import io, base64\n"
    "def as_base64(form, size=(40, 30)):\n"
    "    out = io.BytesIO()\n"
    "    PIL.Image.new('RGB', size, 'blue').save(out, form)\n"
    "    return base64.b64encode(out.getvalue()).decode()\n"
)

Seen = list[tuple[str, int, int]]


def size_of(block: dict[str, Any]) -> tuple[str, int, int]:
    source = block["source"]
    assert source["type"] == "base64"
    with PIL.Image.open(io.BytesIO(base64.b64decode(source["data"], validate=True))) as found:
        assert source["media_type"] == f"image/{str(found.format).lower()}"
        return (source["media_type"].removeprefix("image/"), *found.size)


def seen(body: dict[str, Any]) -> Seen:
    """Return the images of a request, in its order: those within results, too."""
    found: Seen = []
    for message in body["messages"]:
        for block in message["content"]:
            inner = (
                block["content"] if block["type"] == "tool_result" and isinstance(block["content"], list) else [block]
            )
            found += [size_of(one) for one in inner if one["type"] == "image"]
    return found


_numbers = itertools.count(1)


def asked(bench: Bench, *answers: Any) -> list[Seen]:
    """Ask what was not asked before, and return the images of each request."""
    bench.answers(*(answers or (say("I see."),)))
    assert bench.ask(f"what do you see? {next(_numbers)}").status == "ok"
    bench.sound()
    return [seen(one.body) for one in bench.server.requests]


def verified(bench: Bench) -> None:
    """Assert that the bytes on the wire are those of the projections that are built again from the log."""
    with SessionReader(next((bench.folder / ".ctxkernel").glob("*.sqlite"))) as reader:
        stored = [reader.stored_projection(one.statement_id).request_bytes for one, _ in reader.statements()]
        assert {one.raw for one in bench.server.requests} <= set(stored)


@pytest.fixture(params=["tools", "script"])
def dialect(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def prepared(module_folder: Path) -> Iterator[Bench]:
    with bench_in(module_folder) as bench:
        bench.run(PREPARE)
        asked(bench)
        yield bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path) as made:
        made.run(PREPARE)
        yield made


# -- the ways of displaying -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "form", "size"),
    [
        (PLOT, "png", None),
        ("import matplotlib.pyplot as plt; plt.figure(figsize=(2, 1)).add_subplot().plot([1]);", "png", None),
        ("photo", "png", (64, 48)),
        ("display(photo)\n1", "png", (64, 48)),
        ("Image(data=base64.b64decode(as_base64('JPEG')), format='jpeg')", "jpeg", (40, 30)),
        ("Chart(image_png=as_base64('PNG'))", "png", (40, 30)),
        ("Chart(image_webp=as_base64('WEBP'))", "webp", (40, 30)),
        ("Chart(image_gif=as_base64('GIF'), image_jpeg=as_base64('JPEG'))", "jpeg", (40, 30)),
        ("Chart(image_png=as_base64('JPEG'))", "jpeg", (40, 30)),
        ("h = display(photo, display_id=True)\nh.update(photo.resize((32, 24)))", "png", (32, 24)),
        ("show(view(photo))", "png", (64, 48)),
        ("view(photo)", "png", (64, 48)),
        ("import matplotlib.pyplot as plt; show(view(plt.figure(figsize=(4, 3))))", "png", (400, 300)),
        ("view(pixels)", "png", (80, 60)),
        ("show(view(pixels))", "png", (80, 60)),
        ("show(view(pixels / 255))", "png", (80, 60)),
        ("show(view(np.zeros((60, 80, 4), 'uint8')))", "png", (80, 60)),
    ],
)
def test_an_image_that_a_cell_displays_is_sent_as_an_image(prepared: Bench, source: str, form: str, size: Any):
    before = seen(prepared.projection["request"])
    prepared.run(source)
    after = seen(prepared.projection["request"])

    assert len(after) == len(before) + 1 or len(before) > 5  # an earlier one may have been left out for it
    assert after[-1][0] == form
    assert size is None or after[-1][1:] == size
    assert prepared.projection["report"]["ok"]


@pytest.mark.parametrize(
    "source",
    [
        "class Svg:\n    def _repr_svg_(self):\n        return '<svg/>'\nSvg()",
        "Chart(image_bmp=as_base64('BMP'))",
        "Chart(image_png='not base64')",
        "Chart(image_png=as_base64('PNG')[:40])",
        "Chart(image_png='')",
        "show(view(np.zeros((60, 3), 'uint8')))",
        "show(view(np.zeros((60, 80, 3)) - 1))",
        "display(photo)\nfrom IPython.display import clear_output\nclear_output()",
    ],
)
def test_what_the_api_would_refuse_or_is_no_image_is_text(prepared: Bench, source: str):
    before = seen(prepared.projection["request"])
    prepared.run(source)
    after = seen(prepared.projection["request"])

    assert after == before[len(before) - len(after) :]  # earlier ones may have been left out
    assert prepared.projection["report"]["ok"]


def test_an_image_of_a_cell_of_the_model_is_in_its_result(bench: Bench, dialect: str):
    bench.run(f"%ctx config dialect {dialect}", "display(photo)")
    act = (
        cell("display(photo.resize((30, 20)))")
        if dialect == "tools"
        else say(script("display(photo.resize((30, 20)))"))
    )
    first, second = asked(bench, act, say("Two reds."))

    assert first == [("png", 64, 48)]
    assert second == [("png", 64, 48), ("png", 30, 20)]
    [result] = [one for one in bench.projection["blocks"] if one["kind"] == "result"]
    assert "[image/png 30×20, " in result["text"]
    if dialect == "tools":
        assert "with 1 image, ~2 tokens" in result["why"]
        assert isinstance(bench.results[0]["content"], list)
    verified(bench)


def test_the_result_of_a_cell_that_failed_has_no_image(bench: Bench):
    """The API refuses an image in a result that is an error."""
    _, second = asked(bench, [cell("display(photo)\n1 / 0"), cell("display(photo)")], say("One failed."))

    assert second == [("png", 64, 48)]
    assert [bool(one.get("is_error")) for one in bench.results] == [True, False]
    assert isinstance(bench.results[0]["content"], str)
    assert "[image/png 64×48, " in bench.results[0]["content"]


def test_an_image_of_a_persons_cell_that_failed_is_sent(bench: Bench):
    assert bench.kernel.run("display(photo)\n1 / 0").status == "error"

    assert asked(bench) == [[("png", 64, 48)]]


# -- pictures of statements, arrays, figures -------------------------------------------------------------


@pytest.mark.parametrize("made", ["view('s2')", "view(pixels)", "view(photo)", "view(plt.figure(figsize=(4, 3)))"])
def test_a_pinned_view_of_an_image_gives_pixels(bench: Bench, dialect: str, made: str):
    bench.run("photo.resize((70, 50))", "import matplotlib.pyplot as plt", f"%ctx config dialect {dialect}")
    bench.run("%ctx config image_tokens 6000", f"h = pin({made})")
    [last] = asked(bench)

    assert len(last) == 1 if "s2" in made else len(last) == 2
    told = "\n".join(block["text"] for block in bench.projection["blocks"] if block["id"].startswith("view:h"))
    assert "shown as" in told
    assert len(told) < 2500
    bench.run("h.lod = 1")
    bench.sound()


def test_a_pinned_array_of_pixels_costs_a_picture_instead_of_its_numbers(bench: Bench):
    bench.run("h = pin(view(np.random.default_rng(0).integers(0, 255, (300, 400, 3), 'uint8')))")

    tokens = {block["id"]: block["tokens"] for block in bench.projection["blocks"]}
    assert tokens["view:h"] < 250
    assert tokens["view:h:picture"] == 15 * 11
    bench.run("h.pos = '[10]'")
    assert "view:h:picture" not in {block["id"] for block in bench.projection["blocks"]}


def test_an_image_of_the_history_is_not_sent_once_more_for_a_pinned_view(bench: Bench):
    bench.run("photo", "h = pin(view('s2'))")

    assert asked(bench) == [[("png", 64, 48)]]
    assert "s2.1#image1 is the same image" in json.dumps(bench.projection["left_out"])


def test_a_pinned_statement_keeps_its_image_and_gets_it_back(bench: Bench):
    bench.run("%ctx config image_tokens 1000", "photo.resize((400, 300))")
    for n in range(4):
        bench.run(f"photo.resize((400, {290 + n}))")
    sizes = [one[1:] for one in asked(bench)[-1]]
    bench.run("%ctx pin s3")

    assert (400, 300) not in sizes
    assert (400, 300) in [one[1:] for one in asked(bench)[-1]]


# -- the budget -------------------------------------------------------------------------------------------


def test_no_image_is_sent_where_image_tokens_is_0(bench: Bench, dialect: str):
    bench.run(f"%ctx config dialect {dialect}", "%ctx config image_tokens 0", "photo", "h = pin(view(photo))")
    act = cell("display(photo)") if dialect == "tools" else say(script("display(photo)"))

    assert asked(bench, act, say("Nothing.")) == [[], []]
    text = bench.sent()
    assert "[image/png 64×48, " in text
    shows = [block["text"] for block in bench.projection["blocks"] if block["kind"] == "view"]
    assert "shown as 64" not in "".join(shows)
    left = {one["id"]: one["why"] for one in bench.projection["left_out"]}
    assert left["images"] == "2 images of cells: image_tokens is 0"
    assert dialect == "script" or left["view:h:picture"] == "image_tokens is 0"
    bench.run("%ctx config image_tokens 6000")
    assert len(asked(bench)[-1]) >= 2


def test_images_are_left_out_in_batches_the_oldest_first_and_never_exceed_their_budget(bench: Bench):
    bench.run("%ctx config image_tokens 2000")
    kept: list[list[int]] = []
    for n in range(14):
        bench.run(f"photo.resize((280, {200 + n}))")  # 80 patches
        blocks = bench.projection["blocks"]
        images = [block for block in blocks if block["kind"] == "image"]
        assert sum(block["tokens"] for block in images) <= 1000
        kept.append([int(block["id"].partition(".")[0][1:]) for block in images])
    newest = [numbers[-1] for numbers in kept]
    breaks = sum(old != new[: len(old)] for old, new in itertools.pairwise(kept))

    assert newest == sorted(newest)
    assert len(set(newest)) == 14
    assert kept[-1][0] > kept[0][0]
    assert 1 <= breaks <= 2
    assert "s3.1:images" in {one["id"] for one in bench.projection["left_out"]}
    assert "images of cells came to their 1,000 tokens" in bench.kernel.run("%ctx why not s3").stdout + shown(
        bench.kernel.run("%ctx why not s3")
    )
    assert asked(bench)[-1][-1] == ("png", 280, 213)


def test_a_large_image_is_scaled_to_what_the_model_resolves_and_what_the_budget_has(bench: Bench):
    bench.run("%ctx config end_phase_ms 20000")
    bench.run("import random\nPIL.Image.effect_noise((3000, 2000), 90).convert('RGB')")
    [[form, width, height]] = seen(bench.projection["request"])

    assert form == "jpeg"
    assert max(width, height) <= 1568
    assert -(-width // 28) * -(-height // 28) <= 1500
    [block] = [block for block in bench.projection["blocks"] if block["id"] == "s3.1"]
    assert f"scaled to {width:,}×{height:,}]" in block["text"]
    assert asked(bench) == [[(form, width, height)]]
    verified(bench)


def test_many_images_of_one_cell_are_the_newest_that_have_room(bench: Bench):
    bench.run("for n in range(60):\n    display(photo.resize((280, 200 + n)))")
    found = seen(bench.projection["request"])

    assert 5 < len(found) < 60
    assert found[-1][1:] == (280, 259)
    asked(bench)


# -- models without eyes, no Pillow -------------------------------------------------------------------------


def test_a_model_that_is_not_known_to_see_gets_text_until_a_setting_says_that_it_does(bench: Bench):
    bench.run("%ctx model qwen2.5-coder", "photo", "h = pin(view(photo))")

    assert asked(bench) == [[]]
    assert "[image/png 64×48, " in bench.sent()
    assert "it is not known that qwen2.5-coder takes images" in json.dumps(bench.projection["left_out"])
    bench.run("%ctx config images yes")
    assert asked(bench)[-1] == [("png", 64, 48)] * len(asked(bench)[-1])
    assert asked(bench)[-1]
    bench.run("%ctx model claude-sonnet-5-5", "%ctx config images no")
    assert asked(bench) == [[]]


def test_without_pillow_images_within_the_limits_are_sent_and_others_say_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(warm, "loaded", [])  # pyplot loads Pillow
    hidden = tmp_path / "hidden" / "PIL"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden by a test')\n")
    for name, size in (("small.png", (40, 30)), ("middle.png", (1200, 900)), ("large.png", (3000, 2000))):
        PIL.Image.new("RGB", size, "red").save(tmp_path / name)
    with bench_in(tmp_path) as bench:
        bench.run("import sys; sys.path.insert(0, 'hidden')", "from IPython.display import Image, display")
        bench.run("for name in ('small', 'middle', 'large'):\n    display(Image(filename=name + '.png'))")
        [last] = asked(bench)
        assert last == [("png", 40, 30), ("png", 1200, 900)]
        text = next(block["text"] for block in bench.projection["blocks"] if block["id"] == "s3.1")
        assert "[image/png 3,000×2,000, " in text
        assert "not sent: too large, and Pillow, which would scale it down, is not installed]" in text


# -- moves of HEAD, restarts ----------------------------------------------------------------------------------


def test_images_are_those_of_the_path_to_head(bench: Bench):
    bench.run("photo", "photo.resize((32, 24))")
    there = seen(bench.projection["request"])
    bench.run("%ctx goto s2")
    assert asked(bench)[-1] == [("png", 64, 48)]
    bench.run("%ctx goto s3")
    assert asked(bench, say("Two."))[-1] == there == [("png", 64, 48), ("png", 32, 24)]
    bench.run("%ctx undo")
    bench.sound()
    verified(bench)


def test_a_kernel_that_resumes_sends_the_same_bytes(tmp_path: Path):
    with bench_in(tmp_path) as bench:
        bench.run(
            "%ctx config end_phase_ms 20000",
            PREPARE,
            "PIL.Image.effect_noise((2000, 1500), 90).convert('RGB')",
            "photo",
        )
        asked(bench, [think("red"), cell("display(photo)")], say("Red."))
        before = [block for message in bench.server.requests[-1].body["messages"] for block in message["content"]]
        bench.kernel.stop()
        raws = [one.raw for one in bench.server.requests]
    with bench_in(tmp_path) as bench:
        bench.run("%ctx resume")
        bench.answers(say("Still red."))
        bench.ask("and now?")
        bench.sound()
        after = [block for message in bench.server.requests[-1].body["messages"] for block in message["content"]]

        def images(blocks: list[dict[str, Any]]) -> list[str]:
            return [block["source"]["data"] for block in blocks if block["type"] == "image"]

        assert images(before)
        assert images(after) == images(before)
    assert raws
    assert main(["verify", str(next((tmp_path / ".ctxkernel").glob("*.sqlite")))]) == 0


def test_a_redacted_output_has_no_image_and_a_view_of_it_neither(bench: Bench):
    bench.run("print('a long line\\n' * 50)\nphoto", "h = pin(view('s2'))", '%ctx redact s2 "a red square"')

    assert asked(bench) == [[]]
    bench.run("%ctx redact --undo s2")
    assert asked(bench) == [[("png", 64, 48)]]


def test_what_is_expanded_comes_with_its_images(bench: Bench):
    bench.run("print('a long line\\n' * 50)\nphoto", "%ctx config image_tokens 500")
    for n in range(8):
        bench.run(f"photo.resize((280, {200 + n}))")
    assert ("png", 64, 48) not in asked(bench)[-1], "left out in a batch"
    expand = call("expand", {"id": "s2"})
    assert asked(bench, [expand], say("A red square."))[-1][-1] == ("png", 64, 48)
    assert asked(bench)[-1].count(("png", 64, 48)) == 1, "it stays in the result"
    verified(bench)
    bench.run('%ctx redact s2 "a red square"')
    expand = call("expand", {"id": "s2.1"})
    assert asked(bench, [expand], say("I cannot see it."))[-1].count(("png", 64, 48)) == 1, "the earlier result only"
    verified(bench)


def test_the_thinking_that_saw_an_image_goes_back_with_it_and_is_left_out_with_it(bench: Bench):
    """The server refuses thinking that is bound to an image that is gone."""
    bench.run("%ctx config image_tokens 1200")
    for n in range(8):
        bench.run(f"photo.resize((280, {200 + n}))")
        asked(bench, [think(f"thought {n}"), cell(f"x = {n}")], [think("done"), say(f"Seen {n}.")])
    verified(bench)


def test_the_listing_says_what_images_take(bench: Bench):
    bench.run("photo")
    text = shown(bench.kernel.run("%ctx projection"))

    assert "images: 1, ~6 of 6,000 tokens, ~$0.0000 uncached" in text
