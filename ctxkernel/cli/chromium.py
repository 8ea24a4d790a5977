"""The search for a Chromium for browser tests."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_PLACES: dict[str, tuple[str, ...]] = {
    "darwin": (
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
    ),
    "win32": tuple(
        f"%{base}%/{program}"
        for base in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")
        for program in ("Google/Chrome/Application/chrome.exe", "Microsoft/Edge/Application/msedge.exe")
    ),
}
"""By platform, the paths of programs that are not on the PATH."""
_PLAYWRIGHT = {"darwin": "~/Library/Caches/ms-playwright", "win32": "~/AppData/Local/ms-playwright"}
"""By platform, the folder of the downloads of `playwright install chromium`; elsewhere it is in ~/.cache."""
_DOWNLOADS = ("chrome-linux*/chrome", "chrome-win*/chrome.exe", "chrome-mac*/Chromium.app/Contents/MacOS/Chromium")


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None. `CTXKERNEL_CHROMIUM` overrides the search."""
    if by_hand := os.environ.get("CTXKERNEL_CHROMIUM"):
        return by_hand if shutil.which(by_hand) else None
    on_path = [path for name in _NAMES if (path := shutil.which(name))]
    if on_path:
        return on_path[0]
    default = _PLAYWRIGHT.get(sys.platform, "~/.cache/ms-playwright")
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or default).expanduser()
    places = [Path(os.path.expandvars(place)) for place in _PLACES.get(sys.platform, ())]
    places += [path for below in _DOWNLOADS for path in sorted(folder.glob(f"chromium-*/{below}"), reverse=True)]
    return next((str(path) for path in places if path.is_file()), None)
