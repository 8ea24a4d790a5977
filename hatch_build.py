"""Where the files of the panel go in a wheel: below a folder that is named by the version.

JupyterLab's server has a browser ask for these files each time, but a proxy may ignore that. With the version in the
address of every file no cache can mix the modules of two versions, and an upgrade is seen at the next load.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "ctxkernel/lab"
TARGET = "share/jupyter/labextensions/jupyter-ctxkernel"


def lay_out(source: Path, target: Path, version: str) -> None:
    """Copy the panel's files from `source` to the new folder `target`, as JupyterLab is to find them."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("app", "widget", "*.d.ts"))
    shutil.copytree(source / "app", target / f"app-{version}")
    for path in (target / "package.json", *target.glob("schemas/*/package.json.orig")):
        package = json.loads(path.read_text(encoding="utf-8"))
        build = package["jupyterlab"]["_build"]
        build["load"] = build["load"].replace("app/", f"app-{version}/", 1)
        path.write_text(json.dumps(package, indent=2), encoding="utf-8")


class LabExtensionHook(BuildHookInterface[Any]):
    """Adds the panel's files to what a wheel installs for Jupyter."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Lay the files out in a folder of this build's own."""
        self.made = tempfile.TemporaryDirectory(prefix="ctxkernel-lab-")
        target = Path(self.made.name) / "lab"
        lay_out(Path(self.root) / SOURCE, target, self.metadata.version)
        build_data["shared_data"][str(target)] = TARGET

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        self.made.cleanup()
