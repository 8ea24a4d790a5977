"""Outputs of two runs compared: texts line by line, figures side by side with the pixels that differ."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image, ImageDraw

from ctxkernel.core.timeline import Artifact, Execution
from ctxkernel.replay.output_values import WIDTH, output_difference, side_by_side


def png(size: tuple[int, int] = (80, 60), spot: tuple[int, int] | None = None) -> str:
    image = Image.new("RGBA", size, (255, 255, 255, 0))
    if spot is not None:
        ImageDraw.Draw(image).rectangle((*spot, spot[0] + 9, spot[1] + 9), fill=(0, 0, 255, 255))
    out = io.BytesIO()
    image.save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def ran(**fields: Any) -> Execution:
    return Execution("s1.1", "s1", None, 0.0, 1.0, "ok", **fields)


def shown(*data: str, mime: str = "image/png") -> Execution:
    return ran(artifacts=tuple(Artifact("display", f"d{n}", mime, len(one), "", one) for n, one in enumerate(data)))


def opened(data: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def test_exactly_the_pixels_that_differ_are_red():
    pictures = list(side_by_side(png(), png(spot=(20, 10))))

    assert [one.label for one in pictures] == ["before", "after", "difference"]
    image = opened(pictures[2].data)
    red = [
        (x, y)
        for x in range(image.width)
        for y in range(image.height)
        if (colour := image.getpixel((x, y))) and colour[0] > 150 and colour[1] < 100
    ]
    assert len(red) == 100
    assert min(red) == (20, 10)


def test_figures_of_two_sizes_stand_side_by_side_without_a_difference():
    assert [one.label for one in side_by_side(png(), png((90, 60)))] == ["before", "after"]


def test_a_large_figure_is_scaled_down():
    (before, *_) = side_by_side(png((2000, 1000)), png((2000, 1000), (5, 5)))

    assert opened(before.data).size == (WIDTH, WIDTH // 2)


def test_what_is_no_picture_gives_no_picture():
    assert list(side_by_side("no base64", png())) == []
    assert list(side_by_side(png()[:60], png())) == []


def test_the_second_output_of_a_cell_is_compared_with_the_second_one():
    old, new = shown(png(), png(spot=(1, 1))), shown(png(), png(spot=(30, 30)))

    found = output_difference("output 2", "figure: 2% of the pixels differ", old, new)

    assert found is not None
    assert found.summary == "figure: 2% of the pixels differ"
    assert len(found.pictures) == 3
    assert output_difference("output 3", "gone", old, new) is None


def test_printed_text_is_a_unified_diff():
    found = output_difference("stdout", "1 of 2 lines differ", ran(stdout="a\nb"), ran(stdout="a\nc"))

    assert found is not None
    assert found.diff == ("@@ -1,2 +1,2 @@", " a", "-b", "+c")
