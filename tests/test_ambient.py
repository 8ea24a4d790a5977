"""State of the process that a checkpoint holds: it comes back, and looking at it costs next to nothing."""

from __future__ import annotations

import contextlib
import decimal
import gc
import locale
import os
import pickle
import random
import subprocess
import sys
import types
import warnings
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.state import ambient
from ctxkernel.state.ambient import PARTS, UNKNOWN, Ambient, NotRestored, Part, generators, register
from ctxkernel.state.ambient.process import Environment, ProcessList, WarningFilters

np = import_module("numpy")


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch, tmp_path):
    """Each test leaves the process as it found it."""
    monkeypatch.setattr(ambient, "PARTS", list(PARTS))
    monkeypatch.setattr(ambient, "_replaced", set())
    monkeypatch.chdir(tmp_path)
    before = Ambient()
    values = before.capture()
    yield
    before.restore({name: value for name, value in values.items() if name != "working folder"})


def changes(state: Ambient) -> list[str]:
    return sorted(state.capture())


def test_the_first_look_returns_all_and_the_second_nothing():
    state = Ambient()
    first = state.capture()

    assert {"random", "numpy random", "working folder", "environment", "sys.path", "warnings"} <= first.keys()
    assert state.capture() == {}
    assert state.faults == {}


def test_values_are_plain_and_can_be_pickled():
    def plain(value):
        if isinstance(value, dict):
            return all(type(key) is str and plain(one) for key, one in value.items())
        if isinstance(value, list | tuple):
            return all(map(plain, value))
        return value is None or type(value) in (bool, int, float, str, bytes)

    import_module("matplotlib")
    import_module("pandas")
    for name, value in Ambient().capture().items():
        assert plain(value), name
        assert pickle.loads(pickle.dumps(value)) == value


def test_what_is_put_back_as_it_is_changes_nothing():
    state = Ambient()
    values = state.capture()

    assert state.restore(values) == {}
    assert state.capture() == {}


DRAWS = {
    "random": [
        random.random,
        lambda: random.gauss(mu=0, sigma=1),
        lambda: random.shuffle([1, 2, 3]),
        lambda: random.seed(5),
    ],
    "numpy random": [
        lambda: np.random.rand(3),
        np.random.randn,
        lambda: np.random.shuffle(np.arange(5)),
        lambda: np.random.binomial(100, 0.5),
        lambda: np.random.seed(5),
    ],
}


@given(st.data())
def test_a_generator_that_is_put_back_goes_on_as_it_did(data):
    """Also where it keeps the second of two Gaussian numbers, and whatever was drawn in between."""
    part = data.draw(st.sampled_from(sorted(DRAWS)))
    draws = st.lists(st.integers(0, len(DRAWS[part]) - 1), max_size=5)
    sample = random.random if part == "random" else np.random.standard_normal
    gauss = random.gauss if part == "random" else np.random.normal
    state = Ambient()
    for one in data.draw(draws):
        DRAWS[part][one]()
    state.capture()
    values = Ambient().capture()
    expected = [gauss(0, 1), sample(), gauss(0, 1), sample()]
    for one in data.draw(draws):
        DRAWS[part][one]()
    state.restore(values)

    assert [gauss(0, 1), sample(), gauss(0, 1), sample()] == expected


@given(st.data())
def test_each_draw_is_noticed(data):
    """The stamp is a look at memory: it must not overlook a draw that only takes what was kept."""
    part = data.draw(st.sampled_from(sorted(DRAWS)))
    state = Ambient()
    state.capture()
    for one in data.draw(st.lists(st.integers(0, len(DRAWS[part]) - 2), min_size=1, max_size=4)):
        DRAWS[part][one]()

        assert changes(state) == [part]
        assert changes(state) == []


@pytest.mark.parametrize("looks", [True, False], ids=["by its memory", "by its state"])
def test_each_draw_is_a_change_of_its_generator(monkeypatch, looks):
    parts = generators.PARTS[:2]
    monkeypatch.setattr(parts[1], "_exact", None)  # whether memory tells is not known yet
    if not looks:
        monkeypatch.setattr(generators, "string_at", None)
    state = Ambient(parts)
    state.capture()
    assert changes(state) == []
    random.random()
    assert changes(state) == ["random"]
    np.random.randn()
    assert changes(state) == ["numpy random"]
    np.random.randn()
    assert changes(state) == ["numpy random"]


def test_another_generator_behind_numpy_is_kept_too():
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(1))
        state = Ambient()
        values = state.capture()
        expected = np.random.rand(3)
        assert changes(state) == ["numpy random"]
        state.restore(values)

        assert (np.random.rand(3) == expected).all()
    finally:
        np.random.set_bit_generator(before)


def test_a_generator_of_another_kind_is_named_not_forced():
    state = Ambient()
    values = state.capture()
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(1))

        assert list(state.restore(values)) == ["numpy random"]
    finally:
        np.random.set_bit_generator(before)


def test_the_working_folder_comes_back(tmp_path):
    (tmp_path / "sub").mkdir()
    state = Ambient()
    values = state.capture()
    os.chdir("sub")
    assert changes(state) == ["working folder"]
    state.restore(values)

    assert os.getcwd() == str(tmp_path)


def test_a_folder_that_is_gone_is_named(tmp_path):
    (tmp_path / "sub").mkdir()
    os.chdir("sub")
    state = Ambient()
    values = state.capture()
    os.chdir("..")
    (tmp_path / "sub").rmdir()

    assert state.restore(values)["working folder"].startswith("FileNotFoundError")
    assert os.getcwd() == str(tmp_path)


def test_the_environment_comes_back_but_for_credentials(monkeypatch):
    """What says that it is a key is neither kept nor taken away, by its name or by what stands in it."""
    monkeypatch.setenv("CTX_BEFORE", "1")
    state = Ambient([Environment()])
    state.capture()
    monkeypatch.setenv("CTX_NEW", "2")
    monkeypatch.delenv("CTX_BEFORE")
    monkeypatch.setenv("MY_API_KEY", "abc")
    monkeypatch.setenv("PLAIN", "sk-" + "a" * 40)
    values = state.capture()
    monkeypatch.setenv("CTX_NEW", "3")
    monkeypatch.setenv("CTX_BEFORE", "4")
    monkeypatch.setenv("CTX_LATE", "5")
    state.restore(values)

    assert values == {"environment": {"set": {"CTX_NEW": "2"}, "removed": ["CTX_BEFORE"]}}
    assert os.environ["CTX_NEW"] == "2"
    assert "CTX_BEFORE" not in os.environ
    assert "CTX_LATE" not in os.environ
    assert os.environ["MY_API_KEY"] == "abc"
    assert os.environ["PLAIN"].startswith("sk-")


@given(st.lists(st.sampled_from([*range(4), "/x", "/y"]), max_size=8))
def test_any_import_path_comes_back_and_that_of_the_start_is_the_same_everywhere(told):
    part, before = ProcessList("sys.path"), list(sys.path)
    try:
        path = [
            before[one] if isinstance(one, int) else one for one in told if one in ("/x", "/y") or one < len(before)
        ]
        assert part.capture() == {}
        sys.path[:] = path
        value = part.capture()
        sys.path[:] = before
        assert part.matches(value) == (path == before)
        part.restore(value)
        assert sys.path == path and part.matches(value)
        part.restore({})
        assert sys.path == before
    finally:
        sys.path[:] = before


def test_changes_of_the_import_path_are_made_to_that_of_another_environment():
    before = list(sys.path)
    try:
        sys.path[:] = ["/env/one", "/env/lib"]
        part = ProcessList("sys.path")
        sys.path[:] = ["/mine", "/env/one", "/env/lib", "/last"]
        value = part.capture()
        sys.path[:] = ["/other/one", "/other/lib", "/other/more"]
        ProcessList("sys.path").restore(value)
        assert sys.path == ["/mine", "/other/one", "/other/lib", "/last", "/other/more"]
    finally:
        sys.path[:] = before


def test_the_rest_of_the_process_comes_back():
    state = Ambient()
    values = state.capture()
    sys.path.append("/nowhere")
    warnings.filterwarnings("error", "mine.*", UserWarning, r"a\.b", 7)
    sys.setrecursionlimit(sys.getrecursionlimit() + 7)
    gc.disable()
    gc.set_threshold(500)
    decimal.getcontext().prec = 5
    decimal.getcontext().traps[decimal.Inexact] = True
    locale.setlocale(locale.LC_ALL, "C")
    np.set_printoptions(precision=3, suppress=True)
    np.seterr(divide="raise")
    found = changes(state)
    later = {name: Ambient().capture()[name] for name in found}
    state.restore(values)

    assert set(found) >= {"sys.path", "warnings", "interpreter", "decimal", "numpy"}
    assert "/nowhere" not in sys.path
    assert ("error", "mine.*") not in [
        (action, getattr(message, "pattern", "")) for action, message, *_ in warnings.filters
    ]
    assert decimal.getcontext().prec == 28
    assert not decimal.getcontext().traps[decimal.Inexact]
    assert np.get_printoptions()["precision"] == 8
    assert np.geterr()["divide"] == "warn"
    assert Ambient().capture() == values
    state.restore(later)
    with pytest.raises(UserWarning):
        warnings.warn_explicit("mine too", UserWarning, "f.py", 7, module="a.b")


def test_garbage_collection_that_was_switched_off_is_a_change():
    state = Ambient()
    values = state.capture()
    try:
        gc.disable()
        assert changes(state) == ["interpreter"]
        state.restore(values)
        assert gc.isenabled()
    finally:
        gc.enable()


def test_flags_of_decimal_are_no_change():
    state = Ambient()
    state.capture()
    decimal.Decimal(1) / 3

    assert changes(state) == []


def test_a_warning_s_category_that_is_gone_is_left_out():
    class Own(UserWarning):
        pass

    Own.__module__ = "__main__"
    warnings.simplefilter("ignore", Own)
    value = WarningFilters().capture()
    assert not [row for row in value if "Own" in row[2]]
    value.insert(0, ("ignore", None, "gone_module:Gone", None, 0))
    WarningFilters().restore(value)

    assert len(warnings.filters) == len(value) - 1


def test_options_of_libraries_come_back():
    matplotlib = import_module("matplotlib")
    pandas = import_module("pandas")
    sklearn = import_module("sklearn")
    state = Ambient()
    values = state.capture()
    first = dict(matplotlib.rcParams)
    matplotlib.rcParams["figure.figsize"] = [3.0, 2.0]
    matplotlib.rcParams["axes.prop_cycle"] = matplotlib.cycler(color=["r", "g"], ls=["-", ":"])
    matplotlib.rcParams["lines.solid_capstyle"] = "round"
    pandas.set_option("display.max_rows", 7)
    pandas.options.display.precision = 2
    sklearn.set_config(transform_output="pandas")
    assert changes(state) == ["matplotlib", "pandas", "scikit-learn"]
    later = Ambient().capture()
    state.restore(values)

    assert dict(matplotlib.rcParams) == first
    assert pandas.get_option("display.max_rows") == 60
    assert pandas.get_option("display.precision") == 6
    assert sklearn.get_config()["transform_output"] == "default"
    assert changes(state) == []
    state.restore(later)
    assert matplotlib.rcParams["axes.prop_cycle"] == matplotlib.cycler(color=["r", "g"], ls=["-", ":"])
    assert matplotlib.rcParams["lines.solid_capstyle"] == "round"
    assert pandas.options.display.max_rows == 7


def test_a_function_in_the_options_of_pandas_comes_back():
    """A format also in a new process; of any other function a new process says that it is gone."""
    pandas = import_module("pandas")
    state = Ambient()
    first = state.capture()
    pandas.options.display.float_format = "{:.1f}".format
    assert changes(state) == ["pandas"]
    formatted = Ambient().capture()
    pandas.set_option("display.float_format", abs)
    other = Ambient().capture()

    assert not state.restore(first)
    assert pandas.options.display.float_format is None
    assert not state.restore(other)
    assert pandas.options.display.float_format is abs
    assert not state.restore(formatted)
    assert pandas.options.display.float_format(2.25) == "2.2"
    gone = {"display.float_format": {"object": "another-1"}}
    told = state.restore({**first, "pandas": {**first["pandas"], **gone}})
    assert "the function in display.float_format belongs to an earlier kernel" in str(told)
    assert pandas.options.display.float_format is None


def test_options_of_xarray_come_back_without_a_warning():
    """xarray warns of an old option whenever it is set."""
    xarray = import_module("xarray")
    part = next(one for one in PARTS if one.name == "xarray")
    first = part.capture()
    xarray.set_options(keep_attrs=True)
    with warnings.catch_warnings(action="error"):
        part.restore(first)
    assert xarray.get_options()["keep_attrs"] == "default"


def test_a_list_in_rcparams_that_is_changed_in_place_is_noticed():
    matplotlib = import_module("matplotlib")
    state = Ambient()
    values = state.capture()
    matplotlib.rcParams["font.sans-serif"].insert(0, "Comic Sans MS")
    assert changes(state) == ["matplotlib"]
    state.restore(values)

    assert matplotlib.rcParams["font.sans-serif"][0] != "Comic Sans MS"


def test_a_library_that_was_not_loaded_then_gets_what_it_began_with():
    matplotlib, pandas, numpy = map(import_module, ("matplotlib", "pandas", "numpy"))
    state = Ambient()
    state.capture()
    matplotlib.rcParams["figure.dpi"] = 33
    with numpy.printoptions(), pandas.option_context("display.max_rows", 7):
        numpy.set_printoptions(precision=3)
        state.restore({}, gone=["matplotlib", "numpy", "pandas"])

        assert matplotlib.rcParams["figure.dpi"] == matplotlib.rcParamsOrig["figure.dpi"]
        assert (pandas.get_option("display.max_rows"), numpy.get_printoptions()["precision"]) == (60, 8)


@pytest.mark.parametrize("library", ["matplotlib", "pandas", "numpy", "sklearn", "scipy.special"])
def test_the_first_options_of_a_library_are_those_that_it_is_loaded_with(library):
    """In a process of its own: here they may have been changed."""
    import_module(library)
    code = f"""
import warnings; warnings.simplefilter("ignore")
from ctxkernel.state.ambient import PARTS, first_value
import {library}
for one in PARTS:
    if one.needs == {library!r} and one.loaded and "random" not in one.name:
        assert first_value(one.name) == one.capture() != None, (one.name, first_value(one.name), one.capture())
        print(one.name)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0 and ran.stdout, ran.stderr


def test_a_new_process_gets_the_backend_of_matplotlib_that_cells_chose(start_kernel):
    """With the inline one, which closes figures after each cell, the next cell would find none."""
    first = start_kernel()
    first.run("import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt")
    first.run("x = 1")
    first.stop()
    second = start_kernel()
    assert second.run("%ctx resume").status == "ok"
    second.run("plt.plot([1, 2])")

    assert second.evaluate("(plt.get_backend().lower(), len(plt.gcf().axes))") == "('agg', 1)"
    second.run("%matplotlib inline\nplt.close('all')")
    second.stop()
    third = start_kernel()
    assert third.run("%ctx resume").status == "ok"
    assert third.run("plt.plot([1, 2])").data[-1].keys() >= {"image/png"}


def test_figures_are_shown_after_a_return_to_before_the_first_one(monkeypatch: pytest.MonkeyPatch):
    """`interactive`, without which none is, is switched on when the first is drawn; from then on it comes back."""
    matplotlib = import_module("matplotlib")
    pyplot = types.ModuleType("matplotlib.pyplot")
    pyplot._backend_mod = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    monkeypatch.setitem(matplotlib.rcParams, "interactive", False)
    state = Ambient()
    before = state.capture()
    pyplot._backend_mod = object()  # type: ignore[attr-defined]
    matplotlib.rcParams["interactive"] = True
    drawn = Ambient().capture()

    state.restore(before)
    assert matplotlib.rcParams["interactive"]
    state.restore({}, gone=["matplotlib"])
    assert matplotlib.rcParams["interactive"]

    matplotlib.rcParams["interactive"] = False
    state.restore(drawn)
    assert matplotlib.rcParams["interactive"]


def test_ipython_s_settings_come_back():
    shell_module = import_module("IPython.core.interactiveshell")
    from traitlets.config import Config

    known = shell_module.InteractiveShell.initialized()
    shell = shell_module.InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    try:
        state = Ambient()
        values = state.capture()
        shell.ast_node_interactivity = "all"
        shell.run_line_magic("precision", "3")
        assert "ipython" in changes(state)
        state.restore(values)

        assert shell.ast_node_interactivity == "last_expr"
        assert shell.display_formatter.formatters["text/plain"].float_precision == values["ipython"]["float_precision"]
    finally:
        if not known:
            shell_module.InteractiveShell.clear_instance()


def test_torch_s_generator_is_kept_where_torch_is_loaded(monkeypatch):
    """With a stand-in that has torch's own names: the library is too large for the tests."""

    class Tensor:
        def __init__(self, raw):
            self.raw = bytes(raw)

        def numpy(self):
            return np.frombuffer(self.raw, "uint8")

    torch = types.ModuleType("torch")
    held = {"state": Tensor(b"abc"), "dtype": "torch.float32", "grad": True, "deterministic": False}
    torch.float32, torch.float64, torch.uint8 = "torch.float32", "torch.float64", "uint8"
    torch.get_rng_state = lambda: held["state"]
    torch.set_rng_state = lambda tensor: held.update(state=tensor)
    torch.get_default_dtype = lambda: held["dtype"]
    torch.set_default_dtype = lambda dtype: held.update(dtype=dtype)
    torch.is_grad_enabled = lambda: held["grad"]
    torch.set_grad_enabled = lambda on: held.update(grad=on)
    torch.are_deterministic_algorithms_enabled = lambda: held["deterministic"]
    torch.use_deterministic_algorithms = lambda on: held.update(deterministic=on)
    torch.frombuffer = lambda raw, dtype: Tensor(raw)
    held |= {"precision": "highest", "anomaly": (False, True), "threads": 4}
    torch.get_float32_matmul_precision = lambda: held["precision"]
    torch.set_float32_matmul_precision = lambda name: held.update(precision=name)
    torch.is_anomaly_enabled = lambda: held["anomaly"][0]
    torch.is_anomaly_check_nan_enabled = lambda: held["anomaly"][1]
    torch.autograd = types.SimpleNamespace(set_detect_anomaly=lambda *on: held.update(anomaly=on))
    torch.get_num_threads = lambda: held["threads"]
    torch.set_num_threads = lambda count: held.update(threads=count)
    torch.device = lambda name: contextlib.nullcontext()
    monkeypatch.setitem(sys.modules, "torch", torch)
    state = Ambient()
    values = state.capture()
    held.update(state=Tensor(b"xyz"), dtype="torch.float64", grad=False)
    assert changes(state) == ["torch random"]
    state.restore(values)

    assert (held["state"].raw, held["dtype"], held["grad"]) == (b"abc", "torch.float32", True)


def test_anybody_can_add_a_part():
    class Verbosity(Part):
        name = "verbosity"
        level = 1

        def capture(self):
            return self.level

        def restore(self, value):
            self.level = value

    part = Verbosity()
    register(part)
    state = Ambient()
    values = state.capture()
    part.level = 5
    assert changes(state) == ["verbosity"]
    state.restore(values)
    assert part.level == 1

    other = Verbosity()
    register(other)
    assert [one for one in ambient.PARTS if one.name == "verbosity"] == [other]


def test_a_part_in_place_of_a_built_in_one_is_asked_itself():
    """The witness of the built-in part says nothing about another one of its name."""

    class Folder(Part):
        name = "working folder"
        value = 1

        def capture(self):
            return self.value

    part = Folder()
    register(part)
    state = Ambient()
    state.capture()
    part.value = 2

    assert state.capture() == {"working folder": 2}


def test_changes_are_found_where_a_witness_cannot_be_read(tmp_path):
    """In a working folder that was removed, each part is asked for its value."""
    (tmp_path / "sub").mkdir()
    os.chdir("sub")
    state = Ambient()
    state.capture()
    (tmp_path / "sub").rmdir()
    assert changes(state) == ["working folder"]
    random.random()
    decimal.getcontext().prec += 1
    try:
        assert changes(state) == ["decimal", "random"]
        assert changes(state) == []
    finally:
        decimal.getcontext().prec -= 1
        os.chdir(tmp_path)


def test_which_parts_differ_is_told_without_touching_any():
    state = Ambient([generators.PARTS[0]])
    values = {**state.capture(), "unknown": 1}
    assert state.differing(values) == ("unknown",)
    random.random()

    assert state.differing(values) == ("random", "unknown")
    assert state.differing({}) == ()


def test_a_part_that_fails_costs_itself_only():
    class Broken(Part):
        name = "broken"

        def capture(self):
            raise RuntimeError("out of order")

    state = Ambient([Broken(), generators.PARTS[0]])

    assert state.capture().keys() == {"broken", "random"}
    lost = state.restore({"broken": 1, "unknown": 2, **state.capture()})
    assert lost.keys() == {"broken", "unknown"}
    assert lost["broken"] == "RuntimeError: out of order"


def test_a_part_that_failed_is_tried_again_and_its_value_is_unknown_until_then():
    """A state of which a part is unknown never claims the value of the state before it."""

    class Shaky(Part):
        name = "shaky"
        works = True
        value = 1

        def capture(self):
            if not self.works:
                raise RuntimeError("out of order")
            return self.value

        def restore(self, value):
            self.value = value

    part = Shaky()
    state = Ambient([part])
    assert state.capture() == {"shaky": 1}
    part.works = False
    unknown = state.capture()
    part.works = True
    assert unknown == {"shaky": {UNKNOWN: "RuntimeError: out of order"}}
    assert state.capture() == {"shaky": 1}
    part.value = 2

    assert "out of order" in state.restore(unknown)["shaky"]
    assert part.value == 2
    assert state.capture() == {"shaky": 2}
    part.works = False
    for _ in range(3):
        state.capture()
    assert state.faults == {"shaky": "RuntimeError: out of order"}


def test_what_could_not_be_restored_counts_as_changed():
    """The state after such a return has the value that is there, not the one that was wanted."""

    class Stubborn(Part):
        name = "stubborn"
        value = 1

        def capture(self):
            return self.value

        def restore(self, value):
            raise NotRestored("it is screwed down")

    part = Stubborn()
    state = Ambient([part])
    first = state.capture()
    part.value = 2
    state.capture()

    assert state.restore(first) == {"stubborn": "it is screwed down"}
    assert state.capture() == {"stubborn": 2}


def test_a_library_that_is_not_loaded_costs_nothing():
    class Absent(Part):
        name = "absent"
        needs = "no_such_library"

        def capture(self):
            raise AssertionError

    state = Ambient([Absent()])

    assert state.capture() == {} and state.faults == {}
    assert state.restore({"absent": 1})["absent"].startswith("ModuleNotFoundError")


def test_each_part_has_a_name_of_its_own():
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_going_back_in_a_kernel_brings_the_process_back(kernel):
    """Also what belongs to the context of a cell, as the print options of NumPy and the context of decimal do."""
    kernel.run("import decimal, os, random\nimport numpy as np\nrandom.seed(1); np.random.seed(1)")
    draws = "print(random.gauss(0, 1), np.random.randn(), random.random())"
    told = "print(np.get_printoptions()['precision'], decimal.getcontext().prec, os.environ.get('CTX_X'))"
    first = kernel.run(draws).stdout
    before = kernel.run(told).stdout
    kernel.run("np.set_printoptions(precision=2); decimal.getcontext().prec = 5; os.environ['CTX_X'] = '1'")
    changed = kernel.run(told).stdout
    kernel.run("%ctx goto 1")

    assert kernel.run(told).stdout == before != changed
    assert changed.split() == ["2", "5", "1"]
    assert kernel.run(draws).stdout == first


def test_a_variable_that_is_there_at_the_start_is_no_change_although_it_was_looked_at_before(monkeypatch):
    """A state is told from the start on, so that a return to it finds the environment equal."""
    state = Ambient([Environment()])
    monkeypatch.setenv("SET_BEFORE_THE_START", "1")
    assert state.capture()["environment"]["set"] == {"SET_BEFORE_THE_START": "1"}

    state.begin()

    assert state.capture() == {"environment": {"set": {}, "removed": []}}
