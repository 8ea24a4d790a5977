"""What all tests share: an isolated Jupyter, hypothesis profiles, and real kernels of this interpreter.

Rule 1: no test reads or writes the settings, kernelspecs, sessions or keys of the person who runs it.
Rule 2: a kernel here is a real process of this interpreter, found without any installed kernelspec. On Linux
        most are forked from one that has imported what every kernel imports (`warm.py`); `cold_kernels` says which not.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import long_tests
import mutate_rules
import pytest
import scale
import schedule
import warm
from hypothesis import HealthCheck, settings
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from kernels import RunningKernel, StartKernel, starter

import ctxkernel
from ctxkernel.cli.light import without_grammars

with without_grammars():  # for all tests of this process: three seconds
    import nbformat  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
# The same examples at every run, so that a red run can be repeated; `thorough` searches further.
_quiet: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", derandomize=True, max_examples=scale.examples(100), **_quiet)
settings.register_profile("full", derandomize=True, **_quiet)
settings.register_profile("thorough", max_examples=2000, **_quiet)
settings.load_profile(scale.PROFILE)


def isolated_environment(folder: Path) -> dict[str, str]:
    """Return the variables that keep Jupyter, IPython and ctxkernel inside `folder`."""
    names = {
        "JUPYTER_CONFIG_DIR": "jupyter/config",
        "JUPYTER_DATA_DIR": "jupyter/data",
        "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
        "JUPYTERLAB_SETTINGS_DIR": "jupyter/lab/settings",
        "JUPYTERLAB_WORKSPACES_DIR": "jupyter/lab/workspaces",
        "IPYTHONDIR": "ipython",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "config",
        "CTXKERNEL_HOME": "ctxkernel",
        "MPLCONFIGDIR": "matplotlib",
    }
    made = {name: folder / below for name, below in names.items()}
    for path in made.values():
        path.mkdir(parents=True, exist_ok=True)
    return {name: str(path) for name, path in made.items()}


# At import, not in a fixture: child processes and module-level constants of Jupyter must see it too.
_home = Path(tempfile.mkdtemp(prefix="ctxkernel-tests-"))
os.environ.update(isolated_environment(_home))
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
# A key in the environment would otherwise be one slip away from a bill.
for _name in [n for n in os.environ if n.startswith(("CTXKERNEL_", "ANTHROPIC_", "JPY_", "JUPYTER_TOKEN"))]:
    if _name not in ("CTXKERNEL_CHROMIUM", "CTXKERNEL_HOME"):
        del os.environ[_name]
# The suite starts some hundred interpreters: without this each would compile all of ctxkernel anew (0.4 s).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Programs of others import jsonschema, which builds grammars that no test uses in 1.2 s (`ctxkernel.cli.light`).
_light = _home / "light"
_light.mkdir()
(_light / "rfc3987_syntax.py").write_text("raise ImportError('left out by the tests')\n", "utf-8")
_paths = [str(_light), os.environ.get("PYTHONPATH")]
# In a source tree that is not installed the kernels shall be those of the tree too.
if Path(ctxkernel.__file__).resolve().is_relative_to(ROOT):
    _paths.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))


# The mutation check: these tests are to fail without it.
if mutate_rules.WITHOUT in os.environ:
    mutate_rules.take_out(os.environ[mutate_rules.WITHOUT])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests by the scopes of `schedule.py` where `--dist loadfile` is given."""
    if config.getoption("dist") != "loadfile":
        return None
    return schedule.ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the garbage collector, which later leaves out what is there now: all modules and 8,000 tests.

    Then it runs a tenth as often: libraries that tests import make each full collection 0.1 s and more.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10 * gc.get_threshold()[0])
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that take long; put the files that take longest first."""
    left_out = long_tests.left_out(item.nodeid for item in items)
    for item in items:
        if item.nodeid in left_out:
            item.add_marker(pytest.mark.long)
    items.sort(key=schedule.rank)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the isolated folders."""
    shutil.rmtree(_home, ignore_errors=True)


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the kernels of one module."""
    return tmp_path_factory.mktemp("kernel")


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[StartKernel]:
    """Start real kernels that end with the test: `start_kernel(folder=…, stock=False, env=…, notebook=…)`."""
    yield from starter(tmp_path)


@pytest.fixture
def kernel(start_kernel: StartKernel) -> RunningKernel:
    """A fresh real ctxkernel in the test's own folder."""
    return start_kernel()


@pytest.fixture
def cold_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the kernels of a test as any program does, by an interpreter of their own."""
    monkeypatch.setattr(LocalProvisioner, "launch_kernel", warm.COLD)


@pytest.fixture
def loaded_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start kernels that have NumPy, pandas and pyplot loaded already: half a second less for each."""
    monkeypatch.setattr(warm, "loaded", warm.LIBRARIES)


@pytest.fixture(scope="module")
def shared_kernel(module_folder: Path) -> Iterator[RunningKernel]:
    """One real ctxkernel for a module, for tests that do not mind each other."""
    with contextlib.contextmanager(starter)(module_folder) as start:
        yield start()
