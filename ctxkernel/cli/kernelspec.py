"""Kernelspecs: the one of this interpreter, found without being installed, and `ctxkernel install`.

Rule 1: A kernelspec has the full path of the running interpreter, so the Jupyter of any environment can start it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

from ctxkernel.cli import Failed, Unusable
from ctxkernel.cli.output import safe_line, say, show

KERNEL_NAME = "ctxkernel"
DISPLAY_NAME = f"ctxkernel (Python {sys.version_info[0]})"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def kernel_argv() -> list[str]:
    """Return the command that starts the kernel of this interpreter."""
    return [sys.executable, "-m", "ctxkernel.kernel", "-f", "{connection_file}"]


class OwnKernelSpecs(KernelSpecManager):
    """Finds this interpreter's kernel under every name, installed or not."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernelspec of this interpreter."""
        return KernelSpec(argv=kernel_argv(), display_name=DISPLAY_NAME, language="python", metadata=spec_metadata())


def spec_metadata() -> dict[str, Any]:
    """Return the capabilities of a kernel, from the installed ipykernel."""
    from ipykernel.kernelspec import get_kernel_dict

    return dict(get_kernel_dict().get("metadata", {}))


def find_installed(name: str = KERNEL_NAME) -> KernelSpec | None:
    """Return the kernelspec that Jupyter of this environment finds under `name`, or None."""
    from jupyter_client.kernelspec import NoSuchKernel

    try:
        return KernelSpecManager().get_kernel_spec(name)
    except NoSuchKernel:
        return None


def _logos() -> list[Path]:
    """Return the logos: beside the source tree's kernelspec, or in the environment of the wheel."""
    found = find_installed()
    places = [
        Path(__file__).resolve().parents[2] / "kernelspec",
        Path(sys.prefix, "share/jupyter/kernels", KERNEL_NAME),
    ]
    places += [Path(found.resource_dir)] if found is not None else []
    found_logos = (sorted(place.glob("logo-*")) for place in places)
    return next(filter(None, found_logos), list[Path]())


def write_spec(folder: Path, display_name: str) -> None:
    """Write kernel.json and the logos into `folder`."""
    argv = kernel_argv()
    if platform.python_implementation() == "CPython":
        # As `ipykernel install` does: the debugger cannot step into frozen modules and warns at every start.
        argv.insert(1, "-Xfrozen_modules=off")
    spec = {
        "argv": argv,
        "display_name": display_name,
        "language": "python",
        "metadata": spec_metadata(),
        "kernel_protocol_version": "5.5",
    }
    (folder / "kernel.json").write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
    for logo in _logos():
        shutil.copy(logo, folder / logo.name)


def install(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel install`."""
    name: str = arguments.name
    if not _NAME.fullmatch(name):
        raise Unusable(f"a kernelspec cannot be named {name!r}: use letters, digits, '.', '_' and '-' only.")
    prefix: str | None = sys.prefix if arguments.sys_prefix else None
    if arguments.prefix is not None:
        if not arguments.prefix.is_dir():
            raise Unusable(f"--prefix {arguments.prefix}: there is no such folder; give the folder of an environment.")
        prefix = str(arguments.prefix.resolve())
    display_name = arguments.display_name or (DISPLAY_NAME if name == KERNEL_NAME else f"{name} (ctxkernel)")
    with tempfile.TemporaryDirectory() as scratch:
        staged = Path(scratch) / "spec"
        staged.mkdir(mode=0o755)
        write_spec(staged, display_name)
        try:
            destination = KernelSpecManager().install_kernel_spec(
                str(staged), kernel_name=name, user=prefix is None, prefix=prefix
            )
        except OSError as fault:
            raise Failed(
                f"the kernelspec could not be written to {fault.filename or prefix}: {fault.strerror}. "
                "`--user` writes to your own folder, `--prefix P` to one of your choice."
            ) from fault
    show(f"Registered the kernel {name}, which Jupyter shows as {safe_line(display_name)!r}.")
    show(f"  kernelspec: {destination}")
    show(f"  starts:     {sys.executable}")
    found = find_installed(name)
    if prefix is None and found is not None and not os.path.samefile(found.resource_dir, destination):
        say(
            f"Note: the Jupyter of this environment finds another kernelspec named {name} first, "
            f"in {found.resource_dir}. "
            "Other environments may do so too; `--name` gives this one a name of its own."
        )
    return 0
