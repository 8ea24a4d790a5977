"""The images that a model is sent, as a person sees them in JupyterLab: in the panel, with their price."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from ctxkernel.testing import call, say

pytestmark = [pytest.mark.browser, pytest.mark.timeout(280)]

PLOT = "import matplotlib.pyplot as plt\nplt.figure(figsize=(4, 3))\nplt.plot([1, 4, 9])\nplt.show()"


def test_the_panel_shows_the_images_that_are_sent_and_what_they_cost(desk, messages, tmp_path):
    """A plot of a cell is a block of its own; that of a cell of the model is in its result."""
    messages.script = [[call("run_cell", {"code": PLOT})], say("I see it.")]
    messages.requests[:], messages.faults[:] = [], []
    desk.open("plots.ipynb", [PLOT, "%%ask --mode auto\nWhat do you see?"]).live()
    desk.select(0)
    desk.enter("s1")
    desk.enter("s5")
    projection = desk.tab("projection")
    image = projection.locator("[data-block='s1.1#image1']")
    image.scroll_into_view_if_needed()

    picture = image.locator("img")
    assert picture.evaluate("img => img.decode().then(() => img.naturalWidth)") > 200
    expect(image).to_contain_text("~$0.000")
    expect(image.locator(".ctxk-tokens").last).to_have_text("~130")
    expect(projection.locator("[data-block='s4.1:1'] img")).to_have_count(1)
    expect(projection.locator(".ctxk-legend")).to_contain_text("2 images ~260, ~$0.0005")
    desk.page.screenshot(path=tmp_path / "images.png")
    sent = json.dumps(messages.requests[-1].body["messages"])
    assert sent.count('"type": "image"') == 2
    assert messages.faults == []
    assert desk.errors == []
