"""The parts of a figure follow each other after a return as they did at the checkpoint."""

from __future__ import annotations

import textwrap

import pytest

pytestmark = pytest.mark.usefixtures("loaded_libraries")
FIGURE = """
import matplotlib; matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.widgets import Slider
figure, axes = plt.subplots(); seen = []
image = axes.imshow([[0.0, 1.0], [2.0, 3.0]]); bar = figure.colorbar(image)
slider = Slider(figure.add_axes([0.1, 0.1, 0.5, 0.05]), "s", 0, 10)
listening = slider.on_changed(lambda value: seen.append(value))
"""


def run_all(kernel, *cells: str) -> None:
    for cell in cells:
        ran = kernel.run(textwrap.dedent(cell).strip("\n"))
        assert ran.status == "ok", ran.outputs


@pytest.mark.parametrize("again", [False, True], ids=["the same kernel", "a new kernel"])
def test_a_colorbar_follows_its_image_and_a_slider_calls_its_function(start_kernel, again: bool):
    kernel = start_kernel()
    run_all(kernel, FIGURE, "image.set_clim(0, 10); slider.set_val(4)")
    if again:
        kernel.stop()
        kernel = start_kernel()
        run_all(kernel, "%ctx resume")

    run_all(kernel, "%ctx goto 1", "image.norm.vmax = 20; slider.set_val(5)")

    assert kernel.evaluate("(float(bar.vmax), seen, bar.mappable is image)") == "(20.0, [5], True)"


def test_the_front_end_of_a_figure_is_no_part_of_it(kernel):
    """A canvas keeps the background of buttons, which has no stored form: no figure is incomplete because of that."""
    run_all(
        kernel,
        FIGURE + "from matplotlib.widgets import CheckButtons\n"
        "checks = CheckButtons(figure.add_axes([0.8, 0.8, 0.1, 0.1]), ['x'])\nfigure.canvas.draw()",
        "checks.set_active(0)",
    )

    told = kernel.run("%ctx goto 1").stdout

    assert "not restored" not in told and "as it is now" not in told, told
    assert kernel.evaluate("checks.get_status()") == "[False]"
