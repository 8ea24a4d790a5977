"""The Python and the packages of this process and of the workers, compared before anything runs."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Mapping
from typing import Any

from ctxkernel._version import __version__

_NEEDED = ("cloudpickle", "dask", "distributed", "ipykernel", "ipython", "jupyter_client")
"""Packages whose versions may differ."""


def packages_here() -> dict[str, str]:
    """Return the versions of Python, of ctxkernel, and of the packages whose modules are loaded."""
    loaded = {name.partition(".")[0] for name in list(sys.modules)}
    found = {"python": platform.python_version(), "ctxkernel": __version__}
    for module, distributions in importlib.metadata.packages_distributions().items():
        if module in loaded:
            for name in distributions:
                found[name] = importlib.metadata.version(name)
    return {name: version for name, version in found.items() if name.lower() not in _NEEDED}


def installed_here() -> dict[str, Any]:
    """Return the versions of Python, of ctxkernel and, under `packages`, of all that are installed, loaded or not."""
    packages: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        packages.setdefault(one.name, one.version)  # the first one on the path is imported
    return {"python": platform.python_version(), "ctxkernel": __version__, "packages": packages}


def differences(here: Mapping[str, str], workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what differs, one line a package, with the workers that have another version."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for worker, about in workers.items():
        there = {_plain(name): str(version) for name, version in about.get("packages", {}).items()}
        there |= {"python": str(about.get("python")), "ctxkernel": str(about.get("ctxkernel"))}
        for name, version in here.items():
            other = there.get(_plain(name), "none")
            if other != version:
                found.setdefault((name, version, other), []).append(worker)
    return [
        f"{name} is {version} here and {other} on {len(names)} of {len(workers)} workers"
        for (name, version, other), names in found.items()
    ]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
