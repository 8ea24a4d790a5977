"""`ctxkernel doctor`: check what works on this machine, and name the next step.

Rule 1: A check never raises; one that fails itself is a warning.
Rule 2: A check leaves nothing behind: it works in temporary folders, and reports of a key only whether it is set.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jupyter_core.paths import jupyter_config_path, jupyter_path

from ctxkernel._version import __version__
from ctxkernel.cli.chromium import find_chromium
from ctxkernel.cli.kernelspec import KERNEL_NAME, OwnKernelSpecs, find_installed
from ctxkernel.cli.output import paint, safe_line, show, show_json, status_colour
from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_duration, format_size, width_of
from ctxkernel.store import signatures
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.background import SWITCH, Background
from ctxkernel.store.chunks.chunk_store import CACHE, ChunkStore, address_of
from ctxkernel.store.log.location import FOLDER
from ctxkernel.store.log.reader import SessionReader

LABEXTENSION = "jupyter-ctxkernel"
JUPYTERLAB = "jupyterlab>=4.2,<5"
IPYKERNEL = "ipykernel>=7.3,<8"
SQLITE_FLOOR = "3.31.0"
REPORT = "please report this, with the output of `ctxkernel doctor --json`."
REINSTALL = "`pip install --force-reinstall --no-deps jupyter-ctxkernel` (in a source folder: `.` for the name)"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_FORK_SECONDS = 20.0
_LITTLE = 100 * 10**6
"""Free bytes below which states may soon be lost."""
_SESSIONS = 20
"""The number of sessions of a folder that are checked, the newest first."""


class Check(NamedTuple):
    """One line of the doctor's report. `next_step` is empty if all is well."""

    status: Literal["ok", "warn", "fail"]
    detail: str
    next_step: str = ""
    name: str = ""


def ok(detail: str) -> Check:
    """Return the result for a part that works."""
    return Check("ok", detail)


def warn(detail: str, next_step: str = "") -> Check:
    """Return the result for a part that is missing or unusual, and that not everybody needs."""
    return Check("warn", detail, next_step)


def fail(detail: str, next_step: str) -> Check:
    """Return the result for a fault that keeps the kernel or the panel from working."""
    return Check("fail", detail, next_step)


def is_writable(folder: Path) -> bool:
    """Return whether a file can be created in `folder`, or in the nearest existing folder above it."""
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            return True
    except OSError:
        return False


def _existing(folder: Path) -> Path:
    return next((one for one in (folder, *folder.parents) if one.exists()), folder)


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: `4.2.0rc1` → (4, 2, 0)."""
    return tuple(int(part) for part in re.split(r"[^\d.]", text)[0].split(".") if part)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_requirement(requirement: str, absent: Check) -> Check:
    """Check the installed version against a requirement `NAME>=LOW,<HIGH`; `absent` is the result without one."""
    name, low, high = re.split(">=|,<", requirement)
    version = installed_version(name)
    if version is None:
        return absent
    if not version_tuple(low) <= version_tuple(version) < version_tuple(high):
        return fail(f"{version} is outside of the supported range ({requirement})", f'`pip install "{requirement}"`')
    return ok(version)


def check_python() -> Check:
    """Report this interpreter."""
    return ok(f"{sys.version.split()[0]} at {sys.executable}")


def check_package() -> Check:
    """Check whether this package is installed, and in which version."""
    where = Path(__file__).resolve().parents[1]
    version = installed_version("jupyter-ctxkernel")
    if version is None:
        return warn(f"{__version__} in {where}, not installed", "`pip install .` in the source folder installs it.")
    if version != __version__:
        return warn(f"{__version__} in {where}, but {version} is installed", f"{REINSTALL} makes them one.")
    return ok(f"{version} in {where}")


def check_ipykernel() -> Check:
    """Check the kernel that ours is a subclass of."""
    return check_requirement(IPYKERNEL, fail("not installed", f'`pip install "{IPYKERNEL}"`'))


def check_kernelspec() -> Check:
    """Check whether Jupyter of this environment finds a kernelspec, and whether its interpreter exists."""
    found = find_installed()
    if found is None:
        step = "`ctxkernel install --sys-prefix` registers it."
        return fail(f"Jupyter finds no kernel named {KERNEL_NAME}", step)
    interpreter = found.argv[0] if found.argv else ""
    detail = f"{found.resource_dir} → {interpreter}"
    if Path(interpreter).name == interpreter:
        # jupyter_client starts its own interpreter for a bare `python`.
        return ok(f"{found.resource_dir} → the Python of the Jupyter that starts it")
    if not Path(interpreter).exists():
        return fail(
            f"{detail}, which is not there any more",
            "`ctxkernel install` writes it anew with this Python, `jupyter kernelspec remove ctxkernel` removes it.",
        )
    if not os.path.samefile(interpreter, sys.executable):
        return warn(
            f"{detail}, which is another Python than this one",
            "that is right for two environments; if not, `ctxkernel install --sys-prefix` registers this one.",
        )
    return ok(detail)


# The parts that are off or failed when they last ran; everything if the session could not begin.
_PARTS_OFF = (
    "(lambda ctx: ['everything but plain IPython'] if ctx is None else ctx.guard.lines())(get_ipython().kernel.ctx)"
)


def check_kernel() -> Check:
    """Start the kernel of this interpreter, and let it compute a value."""
    with tempfile.TemporaryDirectory(prefix="ctxkernel-doctor-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch) / "kernel.log"
        began = time.monotonic()
        try:
            implementation, said = _run_kernel(Path(scratch), log)
        except Exception as fault:
            last = log.read_text("utf-8", "replace").strip().splitlines()[-1:] if log.exists() else []
            why = safe_line(last[0] if last else f"{type(fault).__name__}: {fault}")
            return fail(f"it did not start: {why}", f"`{sys.executable} -m ctxkernel.kernel` shows the whole message.")
        if implementation != "ctxkernel":
            return fail(f"a kernel that calls itself {implementation!r} answered", "install the ctxkernel again.")
        if said["answer"] != "42":
            return fail(f"it answered 6 × 7 with {said['answer']}", REPORT)
        if said["off"] != "[]":
            return warn(f"it runs cells, but does not keep everything: {safe_line(str(said['off']))}", REPORT)
        return ok(f"started and answered in {format_duration(time.monotonic() - began)}")


def _run_kernel(folder: Path, log: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the implementation of a kernel that runs in `folder`, and its answers. Raises any exception."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name=KERNEL_NAME, kernel_spec_manager=OwnKernelSpecs())
    # Session, secret and checkpoint data are in the scratch folder, so they are removed.
    own = {"CTXKERNEL_SESSION": "doctor.sqlite", signatures.HOME: "home", CACHE: "cache"}
    environment = {**os.environ, **{name: str(folder / below) for name, below in own.items()}}
    no_history = ["--HistoryManager.hist_file=:memory:"]
    client: Any = None
    try:
        with log.open("wb") as stream:
            manager.start_kernel(
                cwd=str(folder), env=environment, stdout=stream, stderr=stream, extra_arguments=no_history
            )
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        info = client.kernel_info(reply=True, timeout=30)["content"]
        asked = {"answer": "6 * 7", "off": _PARTS_OFF}
        reply = client.execute("", silent=True, user_expressions=asked, reply=True, timeout=30)["content"]
        given: dict[str, dict[str, Any]] = reply["user_expressions"]
        return info.get("implementation"), {name: one.get("data", {}).get("text/plain") for name, one in given.items()}
    finally:
        if client is not None:
            client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)


def check_sqlite() -> Check:
    """Check the version of SQLite, and whether it has WAL mode, which sessions use."""
    version = sqlite3.sqlite_version
    if version_tuple(version) < version_tuple(SQLITE_FLOOR):
        return fail(f"{version} is older than {SQLITE_FLOOR}", "use a Python that was built with a newer SQLite.")
    with tempfile.TemporaryDirectory(prefix="ctxkernel-doctor-", ignore_cleanup_errors=True) as scratch:
        connection = sqlite3.connect(Path(scratch) / "wal.sqlite")
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        finally:
            connection.close()
    if mode != "wal":
        return warn(f"{version} without WAL mode here", "a session is safer on a local disk than on a network folder.")
    return ok(f"{version}, WAL mode")


def check_session_folder() -> Check:
    """Check the folder in which a notebook in this folder would keep its session."""
    folder = Path.cwd() / FOLDER
    if not is_writable(folder):
        step = "set CTXKERNEL_SESSION to a file in a folder of your own, or work elsewhere."
        return warn(f"{folder} cannot be written", step)
    return ok(str(folder))


def check_checkpoints() -> Check:
    """Check where the data of checkpoints are, and how much of their limit is used."""
    root = quota.root_folder()
    if not is_writable(root):
        return warn(f"{root} cannot be written, so no state can be kept", f"set {CACHE} to a folder of your own.")
    used, limit = sum(quota.usage(root).values()), quota.limit_bytes()
    detail = f"{format_size(used)} of {format_size(limit)} in {root}"
    if used > limit:
        return warn(detail, "`ctxkernel gc` frees space; CTXKERNEL_QUOTA_GB sets another limit.")
    if (free := shutil.disk_usage(_existing(root)).free) < _LITTLE:
        return warn(f"{detail}, where {format_size(free)} are free", "free some space there: `ctxkernel gc`.")
    return ok(detail)


def check_states() -> Check:
    """Check in the logs whether all states of this folder's sessions were kept."""
    told: list[str] = []
    logs = sorted(Path(FOLDER).glob("*.sqlite"), key=lambda path: path.stat().st_mtime)
    for log in logs[-_SESSIONS:]:
        with SessionReader(log) as reader:
            found = reader.checkpoints()
        if lost := [info for info in found.values() if info.state in ("skipped", "damaged")]:
            told.append(f"{log}: {len(lost)} of {len(found)} states were not kept ({lost[-1].reason})")
    if told:
        return warn("; ".join(told), "`ctxkernel verify FILE` says which, and which states can be restored.")
    return ok("all kept" if logs else "no session in this folder")


def check_background() -> Check:
    """Check whether large data are written by a forked process while the next cell runs."""
    if os.environ.get(SWITCH, "").strip() == "0":
        return ok(f"written while you wait, since {SWITCH} is 0")
    if not sys.platform.startswith("linux"):
        return ok("written while you wait: only on Linux a process can be forked for it")
    data = bytes(range(256)) * 512
    with tempfile.TemporaryDirectory(prefix="ctxkernel-doctor-", ignore_cleanup_errors=True) as scratch:
        store = ChunkStore(Path(scratch) / "chunks")
        background = Background(store)
        try:
            ticket = background.submit(lambda chunks: chunks.put(address_of(data), data), nbytes=len(data))
            background.wait(_FORK_SECONDS)
            store.refresh()
            fault = ticket.fault or ("" if ticket.done else f"it did not end within {_FORK_SECONDS:.0f} s")
            if not fault and not store.has(address_of(data)):
                fault = "the data that it wrote are missing"
        except StoreError as error:
            fault = str(error)
        finally:
            background.close()
            store.close()
    if fault:
        return warn(f"a forked writer does not work here: {fault}", f"{SWITCH}=0 has them written while you wait.")
    return ok("written by a forked process beside the next cell")


def check_secret() -> Check:
    """Check whether checkpoints can be signed as this user's."""
    own_folder = f"set {signatures.HOME} to a folder of your own."
    try:
        path = signatures.user_folder(os.environ) / signatures.FILE
    except Exception as error:  # no home at all
        return warn(f"there is no folder for it: {error}", own_folder)
    unsigned = "checkpoints are not signed, and no later kernel loads them"
    if not path.exists() and not path.is_symlink():
        if is_writable(path.parent):
            return ok(f"created at the first start of a kernel, in {path}")
        return warn(f"{path} cannot be written: {unsigned}", own_folder)
    if fault := signatures.load_signer(path.parent).fault:
        return warn(fault, f"without it {unsigned} without asking you.")
    return ok(f"{path}, readable by you alone")


def check_jupyterlab() -> Check:
    """Check the JupyterLab of this environment."""
    elsewhere = "`pip install jupyter-ctxkernel` there, and `ctxkernel install --name NAME` here."
    step = f'`pip install "{JUPYTERLAB}"`. For one in another environment: {elsewhere}'
    return check_requirement(JUPYTERLAB, warn("not installed in this environment", step))


def labextension_disabled() -> bool:
    """Return whether `jupyter labextension disable` was used on the panel."""
    # The first folder that names it wins, as in JupyterLab.
    for folder in jupyter_config_path():
        page = Path(folder) / "labconfig" / "page_config.json"
        try:
            disabled: Any = json.loads(page.read_text("utf-8")).get("disabledExtensions", {})
        except (OSError, ValueError, AttributeError):
            continue
        for name in disabled:
            if name == LABEXTENSION or name.startswith(LABEXTENSION + ":"):
                return isinstance(disabled, list) or bool(disabled[name])
    return False


def check_labextension() -> Check:
    """Check whether the panel is installed, switched on, and of the kernel's version."""
    folders = [Path(folder) / LABEXTENSION for folder in jupyter_path("labextensions")]
    folder = next((one for one in folders if (one / "package.json").is_file()), None)
    if folder is None:
        detail = "the JupyterLab of this environment has no ctxkernel panel"
        return (warn if installed_version("jupyterlab") is None else fail)(detail, f"{REINSTALL} installs it.")
    try:
        version = json.loads((folder / "package.json").read_text("utf-8"))["version"]
    except (OSError, ValueError, KeyError) as fault:
        step = "install jupyter-ctxkernel again."
        return fail(f"{folder}/package.json cannot be read: {safe_line(str(fault))}", step)
    if labextension_disabled():
        step = f"`jupyter labextension enable {LABEXTENSION}` switches it on."
        return warn(f"{version} in {folder}, but switched off", step)
    if version != __version__:
        step = "install the same version of jupyter-ctxkernel in both places, then reload the page."
        return warn(f"{version} in {folder}, but the kernel is {__version__}", step)
    return ok(f"{version} in {folder}")


def check_chromium() -> Check:
    """Check whether there is a browser for the tests."""
    path = find_chromium()
    if path is None:
        step = "`apt-get install chromium`, `playwright install chromium`, or CTXKERNEL_CHROMIUM=/path/to/it."
        return warn("none found; only the browser tests need one", step)
    return ok(f"{path} (for the browser tests)")


def check_key() -> Check:
    """Check whether a key for a model is set, without reading it."""
    used = "only %%ask and summary_model"
    if present := [name for name in KEYS if os.environ.get(name)]:
        return ok(f"{' and '.join(present)} set (the value is not shown; {used} use it)")
    return ok(f"none set; {used} need one")


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


def run_checks() -> Iterator[Check]:
    """Yield the result of each check as it is known."""
    for name, check in CHECKS:
        try:
            found = check()
        except Exception as fault:  # rule 1
            found = warn(f"could not be checked: {safe_line(f'{type(fault).__name__}: {fault}')}")
        yield found._replace(name=name)


def doctor(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel doctor`: status 1 if a check failed; warnings do not count."""
    checks: list[Check] = []
    wide = max(width_of(name) for name, _ in CHECKS)
    for check in run_checks():
        checks.append(check)
        if arguments.json:
            continue
        status = paint(f"{check.status:<4}", status_colour(check.status))
        show(f"{status}  {check.name:<{wide}}  {safe_line(check.detail)}")
        if check.next_step:
            show(f"{'':<4}  {'':<{wide}}  → {check.next_step}")
        sys.stdout.flush()
    failed, warned = (sum(check.status == status for check in checks) for status in ("fail", "warn"))
    if arguments.json:
        report = [{"name": c.name, "status": c.status, "detail": c.detail, "next": c.next_step} for c in checks]
        show_json({"ok": not failed, "version": __version__, "checks": report})
    else:
        show(f"\n{failed} failed, {warned} to look at." if failed or warned else "")
        if not failed:
            show(paint("The kernel works here.", "bold"))
    return 1 if failed else 0
