"""The results of background jobs, in files beside their packs: a job can outlive its kernel.

Rule 1: a result tells which data are loaded, and loading runs code: it counts only with this user's signature of the
        folder, the job and the result.
Rule 2: the kernel that began the job removes the file when the result is in its log. Another one leaves it there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.json_input import load_json
from ctxkernel.core.timeline_events import Json
from ctxkernel.store import signatures
from ctxkernel.store.chunks.manifest import MOST_BYTES
from ctxkernel.store.regular_files import read_bounded, replace_file

_END = ".result"
_JOB = re.compile(r"[A-Za-z0-9.]{1,80}")
_MOST_DEPTH = 10


def keep(folder: Path, job: str, result: Json) -> None:
    """Keep the result of a job. Raises OSError."""
    text = json.dumps(result)
    made = json.dumps({"result": text, "signature": signatures.signer().sign(*_parts(folder, job, text))})
    replace_file(folder / f"{job}{_END}", made.encode())


def kept(folder: Path, job: str) -> dict[str, Any] | None:
    """Return the result of a job; None where there is none that this user signed."""
    if not _JOB.fullmatch(job):
        return None
    with contextlib.suppress(OSError, ValueError):
        made = load_json(read_bounded(folder / f"{job}{_END}", 2 * MOST_BYTES), most_bytes=2 * MOST_BYTES, most_depth=2)
        if isinstance(made, dict):
            text, signature = (cast("dict[str, Any]", made).get(key) for key in ("result", "signature"))
            if isinstance(text, str) and isinstance(signature, str):
                if not signatures.signer().is_signed(signature, *_parts(folder, job, text)):
                    return None
                return cast("dict[str, Any]", load_json(text, most_bytes=MOST_BYTES, most_depth=_MOST_DEPTH))
    return None


def jobs(folder: Path) -> set[str]:
    """Return the jobs that have a result in a folder; none where it cannot be read."""
    with contextlib.suppress(OSError):
        return {name.removesuffix(_END) for name in os.listdir(folder) if name.endswith(_END)}
    return set()


def forget(folder: Path, job: str) -> None:
    """Remove the result of a job, if there is one."""
    if _JOB.fullmatch(job):
        with contextlib.suppress(OSError):
            (folder / f"{job}{_END}").unlink(missing_ok=True)


def is_late_result(name: str) -> bool:
    """Return whether a file name is that of a result, or of one that was being written."""
    return _END in name and _JOB.fullmatch(name.partition(_END)[0]) is not None


def _parts(folder: Path, job: str, text: str) -> tuple[str, ...]:
    return "result", folder.name, job, text
