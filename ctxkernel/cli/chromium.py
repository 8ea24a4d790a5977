"""The search for a Chromium for browser tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None. `CTXKERNEL_CHROMIUM` overrides the search."""
    if by_hand := os.environ.get("CTXKERNEL_CHROMIUM"):
        return by_hand if shutil.which(by_hand) else None
    for name in CHROMIUM_NAMES:
        if path := shutil.which(name):
            return path
    for path in _usual_places():
        if path.is_file():
            return str(path)
    return None


def _usual_places() -> Iterator[Path]:
    if sys.platform == "darwin":
        yield Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
        yield Path("/Applications/Chromium.app/Contents/MacOS/Chromium")
    if sys.platform == "win32":
        for base in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
            if folder := os.environ.get(base):
                yield Path(folder) / "Google/Chrome/Application/chrome.exe"
                yield Path(folder) / "Microsoft/Edge/Application/msedge.exe"
    # The downloads of `playwright install chromium`.
    default = {"darwin": "~/Library/Caches/ms-playwright", "win32": "~/AppData/Local/ms-playwright"}.get(
        sys.platform, "~/.cache/ms-playwright"
    )
    base = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or default).expanduser()
    for pattern in (
        "chromium-*/chrome-linux*/chrome",
        "chromium-*/chrome-win*/chrome.exe",
        "chromium-*/chrome-mac*/Chromium.app/Contents/MacOS/Chromium",
    ):
        yield from sorted(base.glob(pattern), reverse=True)
