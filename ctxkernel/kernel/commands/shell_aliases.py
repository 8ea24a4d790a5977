"""What a plain user's fingers know must go on to work: `ls -la` stays the shell's, though `ls()` is ours."""

from __future__ import annotations

from typing import Any

from IPython.core.prefilter import PrefilterChecker

PYTHON_FOLLOWS = ("(", "=", ",")
"""What follows a function in Python; anything else after `ls` (-la, *.txt, .., a path) is for the shell."""


class LsStaysTheShells(PrefilterChecker):
    """Hands `ls …` that is no Python to the shell, before the builtin `ls` hides IPython's alias."""

    def check(self, line_info: Any) -> Any:
        """Return IPython's handler for magics where the line is the shell's, else None."""
        shell: Any = self.shell
        if line_info.ifun != "ls" or line_info.esc or "ls" in shell.user_ns:
            return None
        if line_info.the_rest.lstrip().startswith(PYTHON_FOLLOWS):
            return None
        if not shell.automagic or shell.find_magic("ls") is None:
            return None
        manager: Any = self.prefilter_manager
        return manager.get_handler_by_name("magic")


def keep_ls(shell: Any) -> None:
    """Register the checker, just before IPython's own for magics."""
    manager = shell.prefilter_manager
    # Its priority is below AutoMagicChecker's 700, so it is asked first.
    manager.register_checker(
        LsStaysTheShells(shell=shell, prefilter_manager=manager, config=manager.config, priority=690)
    )
    manager.sort_checkers()
