"""What a return leaves as it is and can see: threads and child processes that were started, signal handlers.

It is captured so that a return names it where it concerns the cells between, and only there.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ctxkernel.state.ambient.live_objects import LiveObjects
from ctxkernel.state.ambient.part import Part
from ctxkernel.state.base.namespace import some_of

SIGNALS = [int(number) for number in signal.valid_signals() if number != signal.SIGINT]
"""The kernel sets the handler of SIGINT itself, between cells."""
signal_handler: Any = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
"""Without the enumerations that the module `signal` makes of each number."""
_OWN = "ctxkernel"


class Outside(Part):
    """Threads, child processes of multiprocessing, handlers of signals."""

    name = "outside"
    always = True
    passive = True

    def __init__(self) -> None:
        self._live = LiveObjects()

    def capture(self) -> Any:
        """Return tokens of what is there."""
        token = self._live.token
        handlers = {number: one for number in SIGNALS if (one := signal_handler(number)) not in (signal.SIG_DFL, None)}
        return {
            "threads": sorted(token(one) for one in threading.enumerate() if not one.name.startswith(_OWN)),
            "children": sorted(map(token, _children())),
            "signals": {str(number): token(one) if callable(one) else str(one) for number, one in handlers.items()},
        }

    def matches(self, value: Any) -> bool:
        """Return True: nothing is ever changed."""
        return True

    def restore(self, value: Any) -> Sequence[str]:
        """Change nothing; name what was started or set since."""
        if not all(map(self._live.here, value["threads"])):  # of an earlier kernel: nothing was started since
            return ()
        lines: list[str] = []
        now = self.capture()
        for kind, word in (("threads", "thread"), ("children", "process")):
            names = [str(self._live.get(token).name) for token in now[kind] if token not in value[kind]]
            if names:
                lines.append(f"{_named(word, names)}: started since, not stopped by going back")
        then = value["signals"]
        changed = [name for name in {**then, **now["signals"]} if then.get(name) != now["signals"].get(name)]
        if changed:
            names = [signal.Signals(int(name)).name for name in sorted(changed, key=int)]
            lines.append(f"{_named('signal handler', names)}: set since, and left as it is")
        return lines


def _children() -> Any:
    module = sys.modules.get("multiprocessing.process")
    return list(getattr(module, "_children", ()))


def _named(word: str, names: list[str]) -> str:
    plural = "es" if word.endswith("s") else "s"
    return f"{word}{plural if len(names) > 1 else ''} {some_of(names, 6)}"
