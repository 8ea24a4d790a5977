"""Parts of the ambient state that refer to live objects: handlers, figures, widgets, caches, threads."""

from __future__ import annotations

import functools
import importlib
import io
import logging
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import pytest

from ctxkernel.state.ambient import Ambient, NotRestored, Part, passive
from ctxkernel.state.ambient.caches import FunctionCaches
from ctxkernel.state.ambient.library_attributes import LibraryAttributes
from ctxkernel.state.ambient.logging_state import Logging
from ctxkernel.state.ambient.part import LiveObjects
from ctxkernel.state.ambient.process import Outside
from ctxkernel.state.ambient.pyplot import OpenFigures
from ctxkernel.state.ambient.widgets import WidgetValues


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    part = Logging()
    before = part.capture()
    yield
    part.restore(before)


def changed(part: Part, previous: object) -> bool:
    return part.stamp() != previous


# -- the table ------------------------------------------------------------------------------------


def test_an_object_keeps_its_token_and_the_oldest_is_dropped_first():
    live = LiveObjects(most=2)
    objects = [io.StringIO() for _ in range(3)]
    tokens = [live.token(one) for one in objects[:2]]
    assert live.token(objects[0]) == tokens[0]
    live.token(objects[2])

    assert tokens[0] in live and tokens[1] not in live
    assert live.get(tokens[0]) is objects[0]


def test_a_token_adopts_the_copy_that_was_loaded_in_the_place_of_its_object():
    live = LiveObjects()
    first, copy = io.StringIO(), io.StringIO()
    token = live.token(first)
    live.adopt(token, copy)

    assert live.get(token) is copy
    assert live.token(copy) == token
    assert live.token(first) != token


def test_a_token_of_another_process_is_not_found():
    token = LiveObjects().token(io.StringIO())

    assert token not in LiveObjects()
    assert not LiveObjects().here(token)


# -- logging --------------------------------------------------------------------------------------


def test_handlers_and_levels_go_back_and_forward():
    part = Logging()
    logger = logging.getLogger("notebook.model")
    before = part.capture()
    stamp = part.stamp()
    handler = logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addFilter(lambda record: True)
    logging.disable(logging.INFO)
    assert changed(part, stamp)
    after = part.capture()

    part.restore(before)
    assert handler not in logging.getLogger().handlers
    assert (logger.level, logger.propagate, logger.filters) == (0, True, [])
    assert logging.root.manager.disable == 0
    assert part.matches(before)
    part.restore(after)
    assert logging.getLogger().handlers[-1] is handler
    assert (logger.level, logger.propagate, len(logger.filters)) == (10, False, 1)
    assert part.matches(after)


def test_a_handler_s_target_level_and_formatter_go_back_and_forward(tmp_path):
    """Of a handler that writes to a file; one that writes to memory is stored with its stream."""
    part = Logging()
    first, second = (tmp_path / "first.txt").open("w"), (tmp_path / "second.txt").open("w")
    handler = logging.StreamHandler(first)
    logging.getLogger("notebook.app").addHandler(handler)
    before = part.capture()
    for change in (
        lambda: handler.setStream(second),
        lambda: setattr(handler, "stream", second),
        lambda: handler.setLevel(logging.ERROR),
        lambda: handler.setFormatter(logging.Formatter("%(message)s!")),
        lambda: handler.addFilter(lambda record: False),
    ):
        stamp = part.stamp()
        change()
        assert changed(part, stamp)
        after = part.capture()
        now = (handler.stream, handler.level, handler.formatter, list(handler.filters))
        part.restore(before)
        assert (handler.stream, handler.level, handler.formatter, handler.filters) == (first, 0, None, [])
        part.restore(after)
        assert (handler.stream, handler.level, handler.formatter, handler.filters) == now
        part.restore(before)


def test_a_file_handler_whose_file_was_closed_goes_on_writing(tmp_path):
    """One that would lose its records is named instead."""
    part = Logging()
    logger = logging.getLogger("notebook.file")
    handler = logging.FileHandler(tmp_path / "log.txt")
    logger.addHandler(handler)
    logger.warning("one")
    before = part.capture()
    logger.removeHandler(handler)
    handler.close()
    part.restore(before)
    logger.warning("two")

    assert (tmp_path / "log.txt").read_text() == "one\ntwo\n"
    stream = (tmp_path / "plain.txt").open("w")
    plain = logging.StreamHandler(stream)
    logger.addHandler(plain)
    with_plain = part.capture()
    plain.setStream((tmp_path / "other.txt").open("w"))
    stream.close()
    with pytest.raises(NotRestored, match="StreamHandler: its stream was closed since"):
        part.restore(with_plain)


def test_in_another_process_levels_come_back_and_handlers_are_named(tmp_path):
    """The handlers that the kernel itself began with are taken for those of the earlier kernel."""
    logger = logging.getLogger("notebook.other")
    kernel_s = logging.StreamHandler(sys.stderr)
    logging.getLogger("notebook.kernel").addHandler(kernel_s)
    logger.setLevel(logging.ERROR)
    logger.addHandler(logging.FileHandler(tmp_path / "gone.txt", delay=True))
    value = Logging().capture()
    logger.handlers.clear()
    logger.setLevel(0)
    part = Logging()
    part.capture()

    with pytest.raises(NotRestored) as missing:
        part.restore(value)
    assert str(missing.value) == (
        f"logger notebook.other: FileHandler to {tmp_path / 'gone.txt'} belongs to an earlier kernel; add it again"
    )
    assert logger.level == logging.ERROR
    assert logging.getLogger("notebook.kernel").handlers == [kernel_s]


@pytest.mark.parametrize("formatter", [None, logging.Formatter("{message}!", style="{")], ids=["plain", "formatted"])
def test_in_another_process_a_handler_of_a_standard_stream_is_made_anew(formatter: logging.Formatter | None):
    logger = logging.getLogger("notebook.shown")
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    value = Logging().capture()
    logger.handlers.clear()
    part = Logging()
    part.capture()

    part.restore(value)

    (made,) = logger.handlers
    record = logging.makeLogRecord({"msg": "said"})
    assert type(made) is logging.StreamHandler and made is not handler
    assert (made.stream, made.level, made.format(record)) == (sys.stderr, logging.WARNING, handler.format(record))
    assert part.matches(value)


def test_loggers_of_an_imported_library_stay_as_its_import_configured_them(monkeypatch):
    """Its import is not undone, and would not run again. A later change of a cell is undone."""
    part = Logging()
    before = part.capture()
    monkeypatch.setitem(sys.modules, "some_library", types.ModuleType("some_library"))
    logger = logging.getLogger("some_library")
    logger.setLevel(logging.WARNING)
    part.capture()
    logger.setLevel(logging.DEBUG)
    part.restore(before)

    assert logger.level == logging.WARNING


# -- pyplot ---------------------------------------------------------------------------------------


@pytest.fixture
def plt():
    import_module("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    yield plt
    plt.close("all")


def test_open_figures_and_the_current_one_go_back_and_forward(plt):
    part = OpenFigures()
    none = part.capture()
    first, _ = plt.subplots(1, 2, num=1)
    plt.sca(first.axes[0])
    one = part.capture()
    second = plt.figure("named")
    stamp = part.stamp()
    plt.figure(1)
    plt.sca(first.axes[1])
    assert changed(part, stamp)
    two = part.capture()
    plt.close(1)

    part.restore(one)
    assert plt.get_fignums() == [1]
    assert plt.gcf() is first and plt.gca() is first.axes[0]
    part.restore(two)
    assert plt.get_fignums() == [1, 2]
    assert plt.gcf() is first and plt.gca() is first.axes[1]
    assert plt.figure("named") is second
    part.restore(none)
    assert plt.get_fignums() == []
    assert part.matches(none)


def test_a_figure_that_was_loaded_is_opened_in_the_place_of_its_original(plt):
    part = OpenFigures()
    plt.figure(3)
    value = part.capture()
    plt.close("all")
    copy = plt.matplotlib.figure.Figure()
    part.live.adopt(value[0][2], copy)
    part.restore(value)

    assert plt.get_fignums() == [3]
    assert plt.gcf() is copy


def test_figures_of_another_process_are_named(plt):
    plt.figure(1).set_label("residuals")
    value = OpenFigures().capture()
    plt.close("all")

    with pytest.raises(NotRestored, match=r"figure 1 \(residuals\) is not open"):
        OpenFigures().restore(value)
    assert plt.get_fignums() == []


# -- widgets --------------------------------------------------------------------------------------


@pytest.fixture
def widgets():
    return import_module("ipywidgets")


def test_values_of_widgets_go_back_and_forward_without_running_observers(widgets):
    part = WidgetValues()
    slider = widgets.IntSlider()
    choice = widgets.Dropdown(options={"a": 1, "b": 2})
    box = widgets.HBox([slider])
    before = part.capture()
    seen: list[object] = []
    stamp = part.stamp()
    slider.observe(seen.append, "value")
    slider.value = 7
    choice.options = [("x", 5), ("y", 6)]
    choice.value = 6
    box.children = (choice, slider)
    slider.layout.width = "3px"
    assert changed(part, stamp)
    after = part.capture()

    part.restore(before)
    assert (slider.value, choice.value, choice.options, slider.layout.width) == (0, 1, {"a": 1, "b": 2}, None)
    assert box.children == (slider,)
    slider.value = 3
    slider.value = 0
    assert part.matches(before)
    part.restore(after)
    assert (slider.value, choice.value, choice.label, choice.index) == (7, 6, "y", 1)
    assert box.children == (choice, slider)
    assert len(seen) == 1
    slider.value = 8
    assert len(seen) == 2


def test_the_front_end_is_told_the_values_that_came_back(widgets):
    sent: list[object] = []

    class Told(widgets.IntText):
        def send_state(self, key=None):
            sent.append(key)

    part = WidgetValues()
    number = Told()
    before = part.capture()
    number.value = 5
    sent.clear()
    part.restore(before)

    assert sent == [["value"]]


def test_callbacks_of_buttons_go_back_and_forward(widgets):
    part = WidgetValues()
    button = widgets.Button()
    before = part.capture()
    stamp = part.stamp()
    clicks: list[object] = []
    button.on_click(clicks.append)
    assert changed(part, stamp)
    after = part.capture()

    part.restore(before)
    button.click()
    assert clicks == []
    part.restore(after)
    button.click()
    assert clicks == [button]


def test_six_kinds_of_closed_widgets_are_named(widgets):
    part = WidgetValues()
    kinds = ("IntSlider", "IntText", "Text", "Button", "Checkbox", "Dropdown", "Label")
    made = [getattr(widgets, kind)() for kind in kinds]
    value = part.capture()
    for one in made:
        one.close()

    with pytest.raises(NotRestored, match="Dropdown and 1 more kind; run the cells"):
        part.restore(value)


def test_a_new_widget_stays_and_a_closed_one_is_named(widgets):
    part = WidgetValues()
    old = widgets.IntSlider()
    value = part.capture()
    new = widgets.IntText(value=5)
    part.restore(value)
    assert new.value == 5
    old.close()

    with pytest.raises(NotRestored, match="closed since, or of an earlier kernel: IntSlider; run the cells"):
        part.restore(value)


def test_another_process_opens_widgets_again_with_their_ids_and_names_missing_observers(widgets):
    """The outputs of the notebook name the widgets by these ids."""
    part = WidgetValues()
    watched = widgets.IntSlider(value=3, max=7)
    watched.observe(print, "value")
    parts = [watched, widgets.Text("typed"), widgets.Dropdown(options={"a": 1, "b": 2}, value=2)]
    box = widgets.VBox(parts)
    value, box_id = part.capture(), box.model_id
    for one in (*parts, *(each.style for each in parts), *(each.layout for each in (*parts, box)), box):
        one.close()
    other = WidgetValues()

    with pytest.raises(NotRestored, match=r"^opened again without their observers and callbacks: IntSlider; run"):
        other.restore(value)

    now = {model_id: one for model_id, one in widgets.widgets.widget._instances.items() if model_id in value}
    assert now.keys() == value.keys()
    again = now[box_id]
    assert [one.value for one in again.children] == [3, "typed", 2]
    assert again.children[0].max == 7
    assert other.matches(value)
    again.children[2].value = 1
    assert again.children[2].label == "a"
    assert not other.matches(value)
    other.restore(value)
    assert again.children[2].value == 2


def test_what_an_output_widget_captured_is_in_the_state_before_the_front_end_says_it(widgets):
    """The front end sets the outputs after the cell: a return to the state of that cell would remove them."""
    part = WidgetValues()
    out = widgets.Output()
    part.capture()
    text = {"output_type": "stream", "name": "stdout", "text": "one\n"}
    part.expect({out.model_id: [text]}, set())
    first = part.capture()
    before = part.stamp()
    out.outputs = (dict(text),)  # as the front end says it, between two cells
    part.settle()
    assert part.stamp() != before
    assert part.capture() == first
    assert part.matches(first)

    part.expect({out.model_id: [{**text, "text": "two\n"}, {**text, "name": "stderr"}]}, set())
    second = part.capture()
    out.outputs = ({**text, "text": "one\ntwo\n"}, {**text, "name": "stderr"})
    part.settle()
    assert part.capture() == second
    part.restore(first)
    assert out.outputs == (text,)
    part.restore(second)
    assert [one["text"] for one in out.outputs] == ["one\ntwo\n", "one\n"]

    part.expect({out.model_id: [text]}, {out.model_id})
    third = part.capture()
    out.outputs = (text,)
    part.settle()
    assert part.capture() == third
    out.outputs = ()
    assert part.capture() != third


def test_arrays_in_widgets_go_back_as_the_same_objects(widgets):
    np = import_module("numpy")
    traitlets = import_module("traitlets")

    class Picture(widgets.DOMWidget):
        pixels = traitlets.Any()

    part = WidgetValues()
    first, second = np.zeros(3), np.zeros(3)
    picture = Picture(pixels=first)
    before, stamp = part.capture(), part.stamp()
    picture._trait_values["pixels"] = second  # traitlets itself cannot compare two arrays
    assert changed(part, stamp)
    part.restore(before)

    assert picture.pixels is first


# -- function caches ------------------------------------------------------------------------------


@functools.cache
def squares(n):
    return [n * n]


@functools.lru_cache(maxsize=8)
def double(n):
    return 2 * n


class Model:
    @functools.cache  # noqa: B019 - as users write it
    def fit(self):
        return 1

    @staticmethod
    @functools.cache
    def size():
        return 2


def test_caches_that_were_used_since_are_cleared_and_named():
    namespace = {"squares": squares, "twice": double, "Model": Model, "again": double, "__name__": __name__}
    part = FunctionCaches(lambda: namespace)
    part.restore({})  # those of other test modules, too
    double(2)
    before, stamp = part.capture(), part.stamp()
    assert part.matches(before)
    squares(3).append(0)
    double(2)
    Model().fit()
    assert changed(part, stamp)

    assert part.restore(before) == ["cleared the cache of squares, twice, Model.fit, again"]
    assert squares(3) == [9]
    assert [one.cache_info().currsize for one in (double, Model.fit)] == [0, 0]


def test_a_cache_that_was_not_used_is_kept_where_its_results_cannot_have_changed():
    part = FunctionCaches(lambda: {"squares": squares, "double": double})
    part.restore({})
    double(4)
    held = squares(4)
    before = part.capture()
    held.append(1)

    assert part.restore(before) == ["cleared the cache of squares"]
    assert double.cache_info().currsize == 1


def test_a_cache_that_was_cleared_and_used_as_often_again_is_cleared_by_a_return():
    """What it holds is another result, though it counts as many hits, misses and entries."""
    scale = [-1]
    scaled = functools.lru_cache(lambda n: n * scale[0])
    part = FunctionCaches(lambda: {"scaled": scaled})
    scaled(1)
    first = part.capture()

    scaled.cache_clear()
    scale[0] = -2
    scaled(1)

    assert not part.matches(first)
    assert part.restore(first) == ["cleared the cache of scaled"]
    assert part.restore(first) == ["cleared the cache of scaled"], "it was filled in that state, and is empty now"


@pytest.mark.skipif(os.name != "posix", reason="bash")
def test_the_thread_in_which_ipython_reads_a_script_is_no_thread_of_the_user(kernel):
    kernel.run("x = 1")
    assert kernel.run("%%bash\necho hi").stdout == "hi\n"

    assert "thread" not in kernel.run("%ctx goto 1").stdout


def test_a_branch_that_used_a_cache_as_often_does_not_get_the_results_of_the_other(kernel):
    kernel.run("import functools\n@functools.lru_cache\ndef f(n): return n * x")
    for cell in ("x = 1; a = f(3)", "%ctx goto 1", "x = 2; b = f(3)"):
        kernel.run(cell)

    told = kernel.run("%ctx goto 2").stdout

    assert "cleared the cache of f" in told
    assert kernel.evaluate("f(3)") == "3"


def test_caches_of_own_modules_are_cleared_and_those_of_libraries_stay(tmp_path, monkeypatch):
    (tmp_path / "own_helper.py").write_text("import functools\n@functools.cache\ndef load(n): return [n]\n")
    monkeypatch.syspath_prepend(tmp_path)
    import fnmatch

    import own_helper

    part = FunctionCaches(dict)
    before = part.capture()
    own_helper.load(1)
    fnmatch.fnmatch("a", "b*")
    try:
        assert part.restore(before) == ["cleared the cache of own_helper.load"]
    finally:
        del sys.modules["own_helper"]


def test_a_return_clears_caches_also_where_both_states_used_them_as_often():
    squares.cache_clear()
    part = FunctionCaches(lambda: {"squares": squares})
    state = Ambient([part])
    held = squares(1)
    state.capture()
    held.append(2)

    assert state.restore({}) == {"function caches": "cleared the cache of squares"}
    assert squares(1) == [1]


# -- outside --------------------------------------------------------------------------------------


def test_a_worker_of_a_pool_is_named_only_while_it_works():
    part = Outside()
    before = part.capture()
    done = threading.Event()
    with ThreadPoolExecutor(1, "pool") as pool:
        try:
            started = pool.submit(done.wait)
            assert part.restore(before) == ["thread pool_0: started since, not stopped by going back"]
        finally:
            done.set()
        started.result()
        deadline = time.monotonic() + 30
        while part.restore(before) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert part.restore(before) == []


def test_threads_and_signal_handlers_that_were_started_since_are_named():
    part = Outside()
    state = Ambient([part])
    before = state.capture()["outside"]
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="poller")
    thread.start()
    old = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert state.capture().keys() == {"outside"}
        lines = part.restore(before)
        after = part.capture()
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGUSR1, old)

    assert lines == [
        "thread poller: started since, not stopped by going back",
        "signal handler SIGUSR1: set since, and left as it is",
    ]
    assert part.restore(before) == []
    assert part.restore(after) == ["signal handler SIGUSR1: set since, and left as it is"]
    assert Outside().restore(after) == ()


def test_parts_that_say_nothing_about_a_cell_are_passive():
    assert passive("outside") and passive("function caches")
    assert not passive("random") and not passive("logging")


# -- in a kernel ----------------------------------------------------------------------------------


def test_logging_goes_back_and_forward_in_a_kernel(kernel):
    kernel.run("import io, logging\nfirst, second = io.StringIO(), io.StringIO()")
    kernel.run("h = logging.StreamHandler(first); logging.getLogger('app').addHandler(h)")
    kernel.run("h.setStream(second); logging.getLogger('app').setLevel(10)")
    told = "[(x is logging.getLogger('app').handlers[0], x.stream is second) for x in [h]]"
    assert kernel.evaluate(told) == "[(True, True)]"
    logger = "(len(logging.getLogger('app').handlers), logging.getLogger('app').level)"

    kernel.run("%ctx goto 1")
    assert kernel.evaluate(logger) == "(0, 0)"
    kernel.run("%ctx undo")
    assert kernel.evaluate(logger) == "(1, 10)"
    kernel.run("%ctx goto 2")
    assert kernel.evaluate(logger) == "(1, 0)"
    assert kernel.evaluate("logging.getLogger('app').handlers[0].stream is second") == "False"


def test_open_figures_go_back_and_forward_in_a_kernel(kernel):
    kernel.run("import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt")
    kernel.run("a = plt.figure(1)")
    kernel.run("b = plt.figure(2)")
    kernel.run("plt.close('all')")

    kernel.run("%ctx goto 3")
    assert kernel.evaluate("(plt.get_fignums(), plt.gcf() is b)") == "([1, 2], True)"
    kernel.run("%ctx goto 2")
    assert kernel.evaluate("(plt.get_fignums(), plt.gcf() is a)") == "([1], True)"
    kernel.run("%ctx undo 2")
    assert kernel.evaluate("plt.get_fignums()") == "[]"


def test_widgets_go_back_and_forward_in_a_kernel(kernel):
    kernel.run("import ipywidgets\nseen = []\nw = ipywidgets.IntSlider()")
    kernel.run("w.observe(seen.append, 'value')")
    kernel.run("w.value = 5")
    assert kernel.evaluate("(w.value, len(seen))") == "(5, 1)"

    kernel.run("%ctx goto 1")
    assert kernel.evaluate("w.value") == "0"
    kernel.run("%ctx undo")
    assert kernel.evaluate("w.value") == "5"
    kernel.run("w.value = 6")
    assert kernel.evaluate("len(seen)") == "2"


def test_a_resumed_session_has_its_widgets(start_kernel):
    """A slider in a variable, one in another widget, and one that is only displayed."""
    first = start_kernel()
    first.run("import ipywidgets as w\ns = w.IntSlider(value=3, description='alpha')\ns")
    first.run("box = w.VBox([w.FloatSlider(value=0.5), s])\ndisplay(w.Text('typed'))")
    first.run("s.value = 7")
    ids = first.evaluate("sorted(w.widgets.widget._instances)")
    first.stop()
    second = start_kernel()

    told = second.run("%ctx resume").stdout

    assert "opened again: s, box (widgets)" in told
    assert "not restored" not in told
    assert "widgets:" not in told
    assert second.evaluate("sorted(w.widgets.widget._instances)") == ids
    assert second.evaluate("(s.value, s.description, box.children[1] is s, box.children[0].value)") == (
        "(7, 'alpha', True, 0.5)"
    )
    second.run("%ctx goto 2")
    assert second.evaluate("s.value") == "3"
    second.run("%ctx undo")
    assert second.evaluate("s.value") == "7"


def test_a_resumed_session_has_handles_in_containers_and_functions_of_interact(start_kernel):
    """The container refers to the widget of the handle; the function is made again by its cell, without a word."""
    first = start_kernel()
    first.run("import ipywidgets as w\ndata = [1, 2]\nh = view(data)\nbox = w.VBox([w.Label('x' * 20), h])\nbox")
    first.run("@w.interact(power=(1, 3))\ndef show(power=1):\n    print(3 ** power)")
    first.run("long = w.Output()\nlong.outputs = ({'output_type': 'stream', 'name': 'stdout', 'text': 'x' * 20_000},)")
    first.stop()
    second = start_kernel()

    ran = second.run("%ctx resume")

    assert [one for one in ran.outputs if one["type"] == "error"] == []
    assert "VBox" not in ran.stdout
    assert second.evaluate("(box.children[0].value, box.children[1] is h.widget)") == f"('{'x' * 20}', True)"
    assert second.evaluate("len(long.outputs[0]['text'])") == "20000"
    assert second.evaluate("callable(show)") == "True"


def test_caches_are_cleared_and_threads_are_named_by_a_return_in_a_kernel(kernel):
    kernel.run("import functools, threading\n@functools.cache\ndef rows(n): return [n]")
    kernel.run("rows(1).append(2); stop = threading.Event()")
    kernel.run("threading.Thread(target=stop.wait, name='poller', daemon=True).start()")
    told = kernel.run("%ctx goto 1").stdout

    assert "cleared the cache of rows" in told
    assert "thread poller: started since, not stopped by going back" in told
    assert kernel.evaluate("rows(1)") == "[1]"


def test_a_thread_that_sends_large_outputs_is_none_of_the_users(kernel):
    """ZeroMQ starts it with the first output of 64 KB, such as a figure."""
    kernel.run("from IPython.display import HTML; x = 1")
    kernel.run("HTML('a' * 300_000)")

    told = kernel.run("%ctx goto 1").stdout

    assert "GarbageCollector" in kernel.evaluate("[type(one).__name__ for one in __import__('threading').enumerate()]")
    assert "thread" not in told


def test_a_cached_function_that_an_own_module_only_imports_is_not_the_module_s(tmp_path, monkeypatch):
    """`urlsplit` is cached by the standard library: to clear it at each return would be noise."""
    (tmp_path / "imports_it.py").write_text(
        "import functools, json\nfrom urllib.parse import urlsplit\nread = functools.lru_cache(json.loads)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own: Any = importlib.import_module("imports_it")
    monkeypatch.setitem(sys.modules, "imports_it", own)
    part = FunctionCaches(dict)
    before = part.capture()
    own.urlsplit("http://localhost/")
    own.read("[1]")

    (told,) = part.restore(before)

    assert "imports_it.read" in told
    assert "urlsplit" not in told


@pytest.mark.parametrize(("name", "text"), [("api_key", "plain words"), ("base", "sk-ant-api03-" + "a1B2" * 20)])
def test_a_credential_that_a_cell_gave_to_a_library_is_not_stored_and_comes_back(monkeypatch, name, text):
    """It is held in memory: a return within the kernel has it, and the checkpoint does not."""
    import colorsys

    part = LibraryAttributes()
    part.watch([("colorsys", name)], {"colorsys": colorsys}, {})
    monkeypatch.setattr(colorsys, name, text, raising=False)
    value = part.capture()
    setattr(colorsys, name, "another")

    assert text not in repr(value)
    assert not part.restore(value)
    assert getattr(colorsys, name) == text
