"""Outputs of a cell keep their order and their result, for a notebook that shows the cell again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.timeline import Artifact, Execution
from ctxkernel.kernel.execution.output_order import OutputOrder
from ctxkernel.replay.notebook_outputs import MOST, notebook_outputs

MIXED = """
import sys
from IPython.display import display
print('one')
sys.stdout.flush()
display('shown')
print('two', file=sys.stderr)
sys.stderr.flush()
print('three')
40 + 2
"""


def cells_of(kernel: Any) -> dict[str, Any]:
    """Return what the kernel tells of the cells at HEAD, by cell."""
    kernel.client.control_channel.send(kernel.client.session.msg("ctxkernel_cells_request", {"id": "q", "at": None}))
    answer = kernel.client.get_control_msg(timeout=60)["content"]
    assert answer["error"] is None
    return {one["cell_id"]: one for one in answer["cells"]["cells"]}


def short(outputs: list[dict[str, Any]]) -> list[str]:
    """Outputs in a few words."""
    return [
        f"{one['name']}: {one['text'].strip()}"
        if one["output_type"] == "stream"
        else f"{one['output_type']}: {one['data']['text/plain']}"
        for one in outputs
    ]


def test_a_cell_keeps_the_order_of_its_outputs_and_the_number_of_its_result(kernel):
    kernel.run("first = 1", metadata={"cellId": "a"})
    kernel.run(MIXED, metadata={"cellId": "b"})
    cell = cells_of(kernel)["b"]
    assert short(cell["outputs"]) == [
        "stdout: one",
        "display_data: 'shown'",
        "stderr: two",
        "stdout: three",
        "execute_result: 42",
    ]
    assert cell["outputs"][-1]["execution_count"] == cell["count"] == 2


def test_a_figure_that_is_drawn_after_an_error_follows_it(kernel):
    kernel.run("import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])\n1 / 0", metadata={"cellId": "a"})
    outputs = cells_of(kernel)["a"]["outputs"]
    assert [one["output_type"] for one in outputs] == ["error", "display_data"]
    assert outputs[0]["ename"] == "ZeroDivisionError"


@pytest.mark.parametrize("parts", [[], [["error", 0, ""]]])
def test_a_display_of_a_file_with_the_name_of_the_traceback_is_no_output(parts):
    shown = Artifact("display", "error", "text/plain", 1, "", "x")
    order = Artifact("order", "outputs", "application/json", 1, "", parts)
    assert notebook_outputs(Execution("s1.1", "s1", None, 0.0, artifacts=(shown, order))) == []


def test_cleared_outputs_stay_away(kernel):
    kernel.run(
        "from IPython.display import clear_output\nprint('gone')\nclear_output()\nprint('stays')\n7",
        metadata={"cellId": "a"},
    )
    assert short(cells_of(kernel)["a"]["outputs"]) == ["stdout: stays", "execute_result: 7"]


def test_a_text_that_was_cut_stands_as_a_whole_at_its_first_place(kernel):
    kernel.run("%ctx config stream_bytes 4096", metadata={"cellId": "a"})
    source = (
        "import sys\nprint('x' * 9000)\nsys.stdout.flush()\nprint('e', file=sys.stderr)\nsys.stderr.flush()\nprint('z')"
    )
    kernel.run(source, metadata={"cellId": "b"})
    outputs = cells_of(kernel)["b"]["outputs"]
    assert [one["name"] for one in outputs] == ["stdout", "stderr"]
    assert outputs[0]["text"].endswith("z\n")


@pytest.mark.parametrize("usual", [[], ["stdout"], ["stderr"], ["stdout", "stderr", "show", "show"], ["show"]])
def test_the_usual_order_is_not_kept(usual):
    order = OutputOrder()
    for n, what in enumerate(usual):
        order.display(f"out{n}", is_result=False) if what == "show" else order.stream(what, "text")
    assert order.artifact() is None


def test_an_order_is_bounded():
    order = OutputOrder()
    for n in range(MOST + 2):
        order.stream("stderr" if n % 2 else "stdout", "x")
    assert order.artifact() is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["stdout", "stderr", "show", "result", "clear"]), st.text(max_size=4)), max_size=9
    )
)
def test_a_notebook_shows_what_the_screen_showed(steps):
    """For every sequence of outputs: as a front end that joins neighbours of one stream."""
    order, texts, artifacts, screen = OutputOrder(), {"stdout": "", "stderr": ""}, [], []
    for n, (what, text) in enumerate(steps):
        if what == "clear":
            order.clear()
            artifacts.clear()
            screen.clear()
        elif what in texts:
            order.stream(what, text)
            texts[what] += text
            if text and screen and screen[-1][0] == what:
                screen[-1] = what, screen[-1][1] + text
            elif text:
                screen.append((what, text))
        else:
            order.display(f"out{n}", is_result=what == "result")
            artifacts.append(Artifact("display", f"out{n}", "text/plain", len(text), "", text))
            screen.append(("execute_result" if what == "result" else "display_data", text))
    kept = order.artifact()
    execution = Execution("s1.1", "s1", None, 0.0, artifacts=(*artifacts, *([kept] if kept else ())), **texts)

    outputs = notebook_outputs(execution, 5)

    joined: list[tuple[str, str]] = []
    for one in outputs:
        kind = one.get("name") or one["output_type"]
        text = one["text"] if "name" in one else one["data"]["text/plain"]
        if "name" in one and joined and joined[-1][0] == kind:
            joined[-1] = kind, joined[-1][1] + text
        elif text or "name" not in one:
            joined.append((kind, text))
    assert joined == screen


@pytest.mark.parametrize("forged", [None, {}, [1], [["stdout"]], [["stdout", -3, ""]], [["stdout", 1, 2]], "x"])
def test_a_forged_order_is_the_usual_one(forged):
    order = Artifact("order", "outputs", "application/json", 1, "", forged)
    execution = Execution("s1.1", "s1", None, 0.0, stdout="a", stderr="b", artifacts=(order,))
    assert [one["text"] for one in notebook_outputs(execution)] == ["a", "b"]
