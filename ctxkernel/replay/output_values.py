"""The outputs of two runs compared for a reader: texts line by line, figures side by side with what differs."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterable
from functools import reduce
from typing import Any

from ctxkernel.core.image_headers import pixels
from ctxkernel.core.timeline import Artifact, Execution
from ctxkernel.core.value_difference import ValueDifference, ValuePicture
from ctxkernel.replay.image_comparison import MAX_PIXELS
from ctxkernel.replay.value_comparer import text_difference

WIDTH = 480
"""Most pixels of the width of a picture."""
_STREAMS = ("stdout", "stderr")
_STEP = 8
_RED = (214, 39, 40)
_IMAGES = ("image/png", "image/jpeg")


def output_difference(subject: str, told: str, old: Execution, new: Execution) -> ValueDifference | None:
    """Return how an output differs, None where there is nothing to add to `told`, its summary.

    `subject` is that of a divergence: `stdout`, `result`, `output 2`.
    """
    if subject in _STREAMS:
        texts = [str(getattr(run, subject)) + run.late.get(subject, "") for run in (old, new)]
        return _named(text_difference(subject, *texts), told)
    number = int(subject.removeprefix("output ")) if subject.startswith("output ") else 1
    forms = [_display(run.artifacts, number) for run in (old, new)]
    images = [next((form[mime] for mime in _IMAGES if mime in form), "") for form in forms]
    if all(images):
        return ValueDifference(subject, told, pictures=tuple(side_by_side(images[0], images[1])))
    texts = [form.get("text/plain", "") for form in forms]
    if all(texts) and texts[0] != texts[1] and "\n" in texts[0] + texts[1]:
        return _named(text_difference(subject, texts[0], texts[1]), told)
    return None


def _named(found: ValueDifference, told: str) -> ValueDifference | None:
    if found.differs is False:
        return None
    return ValueDifference(found.name, told, counts=found.counts, diff=found.diff)


def _display(artifacts: Iterable[Artifact], number: int) -> dict[str, str]:
    """Return the forms of the display with a number, from 1, by their MIME type."""
    found: dict[str, dict[str, str]] = {}
    for one in artifacts:
        if one.kind == "display":
            forms = found.setdefault(one.name, {})
            if isinstance(one.data, str):
                forms[one.mime] = one.data
    return list(found.values())[number - 1] if number <= len(found) else {}


def side_by_side(old: str, new: str) -> Iterable[ValuePicture]:
    """Yield two base64 images, and a third one on which the pixels that differ are red; nothing without Pillow."""
    sizes = pixels(old), pixels(new)
    if any(size is None or size[0] * size[1] > MAX_PIXELS for size in sizes):
        return
    try:
        from PIL import Image, ImageChops
    except ImportError:
        return
    try:
        first, second = (
            _on_white(Image, Image.open(io.BytesIO(base64.b64decode(data)), formats=("PNG", "JPEG")))
            for data in (old, new)
        )
        yield ValuePicture("before", "image/png", _encoded(first))
        yield ValuePicture("after", "image/png", _encoded(second))
        if first.size != second.size:
            return
        worst = reduce(ImageChops.lighter, ImageChops.difference(first, second).split())
        mask = worst.point([255 if value > _STEP else 0 for value in range(256)])
        pale = Image.blend(second.convert("L").convert("RGB"), Image.new("RGB", second.size, (255, 255, 255)), 0.7)
        pale.paste(_RED, mask=mask)
        yield ValuePicture("difference", "image/png", _encoded(pale))
    except (OSError, ValueError, SyntaxError, binascii.Error, Image.DecompressionBombError):
        return


def _on_white(library: Any, image: Any) -> Any:
    image = image.convert("RGBA")
    whole = library.new("RGBA", image.size, (255, 255, 255, 255))
    whole.alpha_composite(image)
    return whole.convert("RGB")


def _encoded(image: Any) -> str:
    if image.width > WIDTH:
        image = image.resize((WIDTH, max(1, image.height * WIDTH // image.width)))
    out = io.BytesIO()
    image.quantize(128).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()
