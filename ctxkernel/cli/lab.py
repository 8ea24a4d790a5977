"""`ctxkernel lab`: JupyterLab on the tour or on a notebook.

Rule 1: It listens on the loopback address only, and with a token, whatever the user's Jupyter settings are.
Rule 2: The token is in no process's argument list: other users of the machine can read those.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from ctxkernel.cli import Failed, Unusable
from ctxkernel.cli.kernelspec import find_installed
from ctxkernel.cli.output import say
from ctxkernel.cli.read import check_notebook

TOUR = "01-tour.ipynb"
COPY = "ctxkernel-tour.ipynb"


def packaged_tour() -> Path:
    """Return the tour of this installation: in the wheel, or in the source tree. Raises Failed."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "_tour" / TOUR, package.parent / "notebooks" / TOUR):
        if place.is_file():
            return place
    raise Failed("this installation came without its tour; give the notebook to open: `ctxkernel lab NOTEBOOK`.")


def find_tour(folder: Path) -> Path:
    """Return a writable tour: that of a clone, else a copy in `folder`, else a copy in a temporary folder.

    The recorded turns that answer its asks are copied beside it. An existing notebook or turns file may hold changes of
    the user, so it is not overwritten. Raises Failed.
    """
    from ctxkernel.agent.recorded import SUFFIX

    clone = folder / "notebooks" / TOUR
    if clone.is_file() and (folder / "ctxkernel" / "_version.py").is_file():
        return clone
    mine = folder / COPY
    if mine.is_file():
        return mine
    source = packaged_tour()
    if not os.access(folder, os.W_OK):
        mine = Path(tempfile.mkdtemp(prefix="ctxkernel-tour-")) / COPY
    turns = mine.with_suffix(SUFFIX)
    try:
        # The turns first: an existing copy of the tour is not made again, and must not be without them.
        if not turns.exists():
            shutil.copyfile(source.with_suffix(SUFFIX), turns)
        shutil.copyfile(source, mine)
    except OSError as fault:
        raise Failed(
            f"the tour could not be copied to {mine}: {fault.strerror}; call `ctxkernel lab` in a folder of your own."
        ) from fault
    say(f"The tour was copied to {mine}")
    return mine


def server_arguments(notebook: Path, folder: Path, *, browser: bool, port: int | None, token: str) -> list[str]:
    """Return the arguments with which JupyterLab shows `notebook`."""
    root = folder if notebook.is_relative_to(folder) else notebook.parent
    address = "/lab/tree/" + quote(notebook.relative_to(root).as_posix())
    given = [
        f"--ServerApp.root_dir={root}",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.allow_remote_access=False",
        f"--ServerApp.default_url={address}",
        f"--LabApp.default_url={address}",
        f"--ServerApp.open_browser={browser}",
        f"--IdentityProvider.token={token}",
    ]
    if port is not None:
        given += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Containers often have no other user; the server is on loopback and asks for a token.
        given.append("--ServerApp.allow_root=True")
    return given


def lab(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel lab`. Returns when JupyterLab is shut down."""
    if arguments.notebook is not None:
        check_notebook(arguments.notebook)
        if arguments.notebook.suffix != ".ipynb":
            raise Unusable(f"{arguments.notebook} is not a notebook; give an .ipynb file.")
    if importlib.util.find_spec("jupyterlab") is None:
        raise Failed(
            f"JupyterLab is not installed for {sys.executable}. "
            '`pip install "jupyter-ctxkernel[lab]"` installs it here; '
            "for a JupyterLab in another environment see `ctxkernel install --help`."
        )
    if find_installed() is None:
        raise Failed(
            "Jupyter does not find the kernel; register it with `ctxkernel install --sys-prefix`, then call this again."
        )
    folder = Path.cwd().resolve()
    notebook = arguments.notebook.resolve() if arguments.notebook is not None else find_tour(folder).resolve()

    from jupyterlab.labapp import LabApp  # pyright: ignore[reportMissingTypeStubs]

    given = server_arguments(
        notebook, folder, browser=not arguments.no_browser, port=arguments.port, token=secrets.token_hex(24)
    )
    # In this process, since the argument list of another process can be read by others (rule 2).
    server = LabApp.initialize_server(argv=given)  # pyright: ignore[reportUnknownMemberType]
    # Jupyter prints the address with its token only where it made the token itself.
    server.identity_provider.token_generated = True
    server.start()
    return 0
