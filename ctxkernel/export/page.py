"""The page of an exported session: one file, with its style, script and data inside.

Rule 1: The page loads nothing: its policy allows only the script and style with these hashes, and images as data.
Rule 2: The data are JSON; the script sets every text as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template

from ctxkernel._version import __version__
from ctxkernel.export.bundle import bundle_modules
from ctxkernel.export.session_data import SessionData, title_of
from ctxkernel.projection.masker import Masker
from ctxkernel.store.log.reader import SessionReader

ENDINGS = frozenset((".html", ".htm", ".ipynb", ""))
"""The endings of files that an export writes. A file of another format would have an ending that is wrong for it."""


def write_page(
    session: Path | SessionReader,
    output: Path,
    *,
    notebook: Path | None,
    masker: Masker,
    private: Collection[str] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    branch: str | None = None,
) -> list[str]:
    """Write the page of a session to `output`, whole or not at all; return lines on what it leaves out.

    `branch` is the execution that is shown as HEAD (default: HEAD). Raises StoreError and OSError.
    """
    text, left_out = make_page(session, notebook=notebook, masker=masker, private=private, now=now, branch=branch)
    replace_text(output, text)
    return left_out


def make_page(
    session: Path | SessionReader,
    *,
    notebook: Path | None,
    masker: Masker,
    private: Collection[str] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    branch: str | None = None,
) -> tuple[str, list[str]]:
    """Return the page of a session, and lines on what it leaves out.

    Names that the session's marks make private are left out too. Raises StoreError and OSError.
    """
    if isinstance(session, Path):
        with SessionReader(session) as reader:
            return make_page(reader, notebook=notebook, masker=masker, private=private, now=now, branch=branch)
    marked = {subject for (subject, mark), _ in session.marks().items() if mark == "private"}
    data = SessionData(session, masker, frozenset((*private, *marked)), branch=branch).build(notebook)
    title = title_of(notebook or session.path, masker)
    text = page_text({**data, "title": title, "version": __version__, "exported": now().isoformat(timespec="seconds")})
    return text, list(map(str, data["left_out"]))


def page_text(data: dict[str, object]) -> str:
    """Return the HTML of a page with these data."""
    own = Path(__file__).parent
    style = "".join((own / name).read_text("utf-8") for name in ("page.css", "../lab/app/sweeps.css"))
    script = bundle_modules(own / "page.js", comments=False)
    # `<` only as an escape: nothing in the data can end the script element.
    packed = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return Template((own / "page.html").read_text("utf-8")).substitute(
        title=escape(str(data["title"])),
        policy=f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        data=packed,
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def replace_text(path: Path, text: str) -> None:
    """Write the file `path`, whole or not at all. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n", errors="replace") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
