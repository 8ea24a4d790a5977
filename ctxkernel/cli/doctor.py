"""`ctxkernel doctor`: what works here, what does not, and the next step.

Rule 1: a check never raises; what it cannot find out is a warning that says so.
Rule 2: a check changes nothing that stays: it works in temporary folders, and of a key it says only whether it is set.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_config_path, jupyter_path

from ctxkernel._version import __version__
from ctxkernel.cli.checks import (
    Check,
    check_background,
    check_checkpoints,
    check_secret,
    check_states,
    fail,
    is_writable,
    ok,
    warn,
)
from ctxkernel.cli.chromium import find_chromium
from ctxkernel.cli.kernelspec import KERNEL_NAME, OwnKernelSpecs, find_installed
from ctxkernel.cli.output import paint, safe_line, show, show_json, status_colour, width_of
from ctxkernel.core.text import format_duration
from ctxkernel.store import trust
from ctxkernel.store.chunks.chunk_store import CACHE

LABEXTENSION = "jupyter-ctxkernel"
LAB_RANGE = ((4, 2), (5,))
IPYKERNEL_RANGE = ((7, 3), (8,))
SQLITE_FLOOR = (3, 31, 0)
REPORT = "please report this, with the output of `ctxkernel doctor --json`."
REINSTALL = "`pip install --force-reinstall --no-deps jupyter-ctxkernel` (in a source folder: `.` for the name)"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: `4.2.0rc1` → (4, 2, 0)."""
    numbers: list[int] = []
    for part in text.split("."):
        digits = part[: next((i for i, c in enumerate(part) if not c.isdigit()), len(part))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_python() -> Check:
    """This interpreter."""
    return ok("Python", f"{sys.version.split()[0]} at {sys.executable}")


def check_package() -> Check:
    """This package, and whether it is installed or only lies on the path."""
    where = Path(__file__).resolve().parents[1]
    version = installed_version("jupyter-ctxkernel")
    if version is None:
        return warn(
            "ctxkernel", f"{__version__} in {where}, not installed", "`pip install .` in the source folder installs it."
        )
    if version != __version__:
        return warn(
            "ctxkernel",
            f"{__version__} in {where}, but {version} is what is installed",
            f"{REINSTALL} makes them one.",
        )
    return ok("ctxkernel", f"{version} in {where}")


def check_ipykernel() -> Check:
    """The kernel that ours is a subclass of."""
    version = installed_version("ipykernel")
    low, high = IPYKERNEL_RANGE
    wanted = f"ipykernel >={'.'.join(map(str, low))},<{'.'.join(map(str, high))}"
    if version is None:
        return fail("ipykernel", "not installed", f'`pip install "{wanted.replace(" ", "")}"`')
    if not low <= version_tuple(version) < high:
        return fail(
            "ipykernel",
            f"{version} is outside of what was tested ({wanted})",
            f'`pip install "{wanted.replace(" ", "")}"`',
        )
    return ok("ipykernel", version)


def check_kernelspec() -> Check:
    """The kernelspec that the Jupyter of this environment finds, and whether its interpreter is there."""
    found = find_installed()
    if found is None:
        return fail(
            "kernelspec",
            f"Jupyter finds no kernel named {KERNEL_NAME}",
            "`ctxkernel install --sys-prefix` registers it.",
        )
    interpreter = found.argv[0] if found.argv else ""
    if Path(interpreter).name == interpreter:
        # jupyter_client starts its own interpreter for a bare `python`.
        return ok("kernelspec", f"{found.resource_dir} → the Python of the Jupyter that starts it")
    if not Path(interpreter).exists():
        return fail(
            "kernelspec",
            f"{found.resource_dir} → {interpreter}, which is not there any more",
            "`ctxkernel install` writes it anew with this Python, `jupyter kernelspec remove ctxkernel` takes it away.",
        )
    if not os.path.samefile(interpreter, sys.executable):
        return warn(
            "kernelspec",
            f"{found.resource_dir} → {interpreter}, which is another Python than this one",
            "that is right for two environments; if not, `ctxkernel install --sys-prefix` registers this one.",
        )
    return ok("kernelspec", f"{found.resource_dir} → {interpreter}")


# The parts that are off, or failed when they last ran; everything where the session could not be begun at all.
_WHAT_IS_OFF = (
    "(lambda ctx: ['everything but plain IPython'] if ctx is None else ctx.guard.lines())(get_ipython().kernel.ctx)"
)


def check_kernel() -> Check:
    """Start the kernel of this interpreter for real and let it compute something."""
    from jupyter_client.manager import KernelManager

    with tempfile.TemporaryDirectory(prefix="ctxkernel-doctor-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch) / "kernel.log"
        manager = KernelManager(kernel_name=KERNEL_NAME, kernel_spec_manager=OwnKernelSpecs())
        # Session, secret and data of checkpoints in the scratch folder: nothing of it stays.
        own = {"CTXKERNEL_SESSION": "doctor.sqlite", trust.HOME: "home", CACHE: "cache"}
        environment = {**os.environ, **{name: str(Path(scratch) / below) for name, below in own.items()}}
        client: Any = None
        began = time.monotonic()
        try:
            with log.open("wb") as stream:
                manager.start_kernel(
                    cwd=scratch,
                    env=environment,
                    stdout=stream,
                    stderr=stream,
                    extra_arguments=["--HistoryManager.hist_file=:memory:"],
                )
            client = manager.client()
            client.start_channels()
            client.wait_for_ready(timeout=60)
            info = client.kernel_info(reply=True, timeout=30)["content"]
            asked = {"answer": "6 * 7", "off": _WHAT_IS_OFF}
            reply = client.execute("", silent=True, user_expressions=asked, reply=True, timeout=30)["content"]
            said = {name: given.get("data", {}).get("text/plain") for name, given in reply["user_expressions"].items()}
        except Exception as fault:
            last = log.read_text("utf-8", "replace").strip().splitlines()[-1:] if log.exists() else []
            why = safe_line(last[0]) if last else safe_line(f"{type(fault).__name__}: {fault}")
            return fail(
                "kernel",
                f"it did not start: {why}",
                f"`{sys.executable} -m ctxkernel.kernel` shows the whole message.",
            )
        finally:
            if client is not None:
                client.stop_channels()
            if manager.has_kernel:
                manager.shutdown_kernel(now=True)
        took = time.monotonic() - began
        if info.get("implementation") != "ctxkernel":
            return fail(
                "kernel",
                f"a kernel that calls itself {info.get('implementation')!r} answered",
                "install the ctxkernel again.",
            )
        if said["answer"] != "42":
            return fail("kernel", f"it answered 6 × 7 with {said['answer']}", REPORT)
        if said["off"] != "[]":
            return warn("kernel", f"it runs cells, but does not keep everything: {safe_line(str(said['off']))}", REPORT)
        return ok("kernel", f"started and answered in {format_duration(took)}")


def check_sqlite() -> Check:
    """Sessions are SQLite files in WAL mode."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_FLOOR:
        floor = ".".join(map(str, SQLITE_FLOOR))
        return fail("SQLite", f"{version} is older than {floor}", "use a Python that was built with a newer SQLite.")
    with tempfile.TemporaryDirectory(prefix="ctxkernel-doctor-", ignore_cleanup_errors=True) as scratch:
        connection = sqlite3.connect(Path(scratch) / "wal.sqlite")
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        finally:
            connection.close()
    if mode != "wal":
        return warn(
            "SQLite", f"{version} without WAL mode here", "a session is safer on a local disk than on a network folder."
        )
    return ok("SQLite", f"{version}, WAL mode")


def check_session_folder() -> Check:
    """Where a notebook in this folder would keep its session."""
    folder = Path.cwd() / ".ctxkernel"
    if not is_writable(folder):
        return warn(
            "session folder",
            f"{folder} cannot be written",
            "set CTXKERNEL_SESSION to a file in a folder of your own, or work elsewhere.",
        )
    return ok("session folder", str(folder))


def check_jupyterlab() -> Check:
    """The JupyterLab of this environment."""
    version = installed_version("jupyterlab")
    low, high = LAB_RANGE
    wanted = f"jupyterlab>={'.'.join(map(str, low))},<{'.'.join(map(str, high))}"
    if version is None:
        return warn(
            "JupyterLab",
            "not installed in this environment",
            f'`pip install "{wanted}"`. For one in another environment: `pip install jupyter-ctxkernel` there, '
            "and `ctxkernel install --name NAME` here.",
        )
    if not low <= version_tuple(version) < high:
        return fail("JupyterLab", f"{version}; the panel needs {wanted}", f'`pip install "{wanted}"`')
    return ok("JupyterLab", version)


def find_labextension() -> Path | None:
    """Return the folder of the panel that a JupyterLab of this environment would load, or None."""
    for folder in jupyter_path("labextensions"):
        candidate = Path(folder) / LABEXTENSION
        if (candidate / "package.json").is_file():
            return candidate
    return None


def labextension_disabled() -> bool:
    """Say whether `jupyter labextension disable` was used on the panel."""
    # The first folder that names it wins, as in JupyterLab.
    for folder in jupyter_config_path():
        page = Path(folder) / "labconfig" / "page_config.json"
        try:
            disabled = json.loads(page.read_text("utf-8")).get("disabledExtensions", {})
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(disabled, list):
            disabled = dict.fromkeys(disabled, True)
        for name, value in disabled.items():
            if name == LABEXTENSION or name.startswith(LABEXTENSION + ":"):
                return bool(value)
    return False


def check_labextension() -> Check:
    """The panel: there, switched on, and of the kernel's version."""
    folder = find_labextension()
    if folder is None:
        detail = "the JupyterLab of this environment has no ctxkernel panel"
        step = f"{REINSTALL} puts it there."
        return (warn if installed_version("jupyterlab") is None else fail)("panel", detail, step)
    try:
        version = json.loads((folder / "package.json").read_text("utf-8"))["version"]
    except (OSError, ValueError, KeyError) as fault:
        return fail(
            "panel",
            f"{folder}/package.json cannot be read: {safe_line(str(fault))}",
            "install jupyter-ctxkernel again.",
        )
    if labextension_disabled():
        return warn(
            "panel",
            f"{version} in {folder}, but switched off",
            f"`jupyter labextension enable {LABEXTENSION}` switches it on.",
        )
    if version != __version__:
        return warn(
            "panel",
            f"{version} in {folder}, but the kernel is {__version__}",
            "install the same version of jupyter-ctxkernel in both places, then reload the page.",
        )
    return ok("panel", f"{version} in {folder}")


def check_chromium() -> Check:
    """A browser for the tests."""
    path = find_chromium()
    if path is None:
        return warn(
            "Chromium",
            "none found; only the browser tests need one",
            "`apt-get install chromium`, `playwright install chromium`, or CTXKERNEL_CHROMIUM=/path/to/it.",
        )
    return ok("Chromium", f"{path} (for the browser tests)")


def check_key() -> Check:
    """Whether a key for a model is set. Its value is not looked at."""
    present = [name for name in KEYS if os.environ.get(name)]
    if present:
        return ok(
            "model key", f"{' and '.join(present)} set (the value is not shown; only %%ask and summary_model use it)"
        )
    return ok("model key", "none set; only %%ask and summary_model need one")


CHECKS: tuple[tuple[str, Callable[[], Check]], ...] = (
    ("Python", check_python),
    ("ctxkernel", check_package),
    ("ipykernel", check_ipykernel),
    ("kernelspec", check_kernelspec),
    ("kernel", check_kernel),
    ("SQLite", check_sqlite),
    ("session folder", check_session_folder),
    ("checkpoints", check_checkpoints),
    ("states", check_states),
    ("large data", check_background),
    ("secret", check_secret),
    ("JupyterLab", check_jupyterlab),
    ("panel", check_labextension),
    ("Chromium", check_chromium),
    ("model key", check_key),
)


def examine() -> Iterator[Check]:
    """Yield one report line after the other, as they are found out."""
    for name, check in CHECKS:
        try:
            yield check()
        except Exception as fault:  # rule 1
            yield warn(name, f"could not be checked: {safe_line(f'{type(fault).__name__}: {fault}')}")


def doctor(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel doctor`: status 1 if a check failed; warnings do not count."""
    checks: list[Check] = []
    wide = max(width_of(name) for name, _ in CHECKS)
    for check in examine():
        checks.append(check)
        if arguments.json:
            continue
        status = paint(f"{check.status:<4}", status_colour(check.status))
        show(f"{status}  {check.name:<{wide}}  {safe_line(check.detail)}")
        if check.next_step:
            show(f"{'':<4}  {'':<{wide}}  → {check.next_step}")
        sys.stdout.flush()
    good = all(check.status != "fail" for check in checks)
    if arguments.json:
        report = [{"name": c.name, "status": c.status, "detail": c.detail, "next": c.next_step} for c in checks]
        show_json({"ok": good, "version": __version__, "checks": report})
    else:
        failed, warned = (sum(c.status == status for c in checks) for status in ("fail", "warn"))
        show("" if good and not warned else f"\n{failed} failed, {warned} to look at.")
        if good:
            show(paint("The kernel works here.", "bold"))
    return 0 if good else 1
