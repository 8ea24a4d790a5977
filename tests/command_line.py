"""The command line as a function: what it prints and how it ends, without a process of its own for each call.

A call here costs a tenth of `python -m ctxkernel`: packages are imported once, and its kernels are forked (warm.py).
What is about the process itself (a signal, its environment before Python starts) still gets one.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from ctxkernel.cli import main


def ctxkernel(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder `cwd`, with the variables of `env` set, too."""
    given = [str(each) for each in arguments]
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, env or {}),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            status = main(given)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return subprocess.CompletedProcess(given, status, out.getvalue(), err.getvalue())
