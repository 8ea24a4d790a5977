"""The magics `%ctx`, `%%ask`, `%view` and `%group` in IPython: registration, help, completion, errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from IPython.core import completer
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult
from IPython.core.inputtransformer2 import make_tokens_by_line
from IPython.core.magic import no_var_expand  # pyright: ignore[reportUnknownVariableType]
from IPython.core.prefilter import PrefilterChecker
from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.text import show_hidden
from ctxkernel.kernel.commands.context import CommandContext
from ctxkernel.kernel.commands.handle_magics import following, handle_line
from ctxkernel.kernel.commands.table import COMMANDS, HELP_WORDS, CommandOutput, complete, dispatch
from ctxkernel.kernel.display.notices import DECIDED, NOTE

_QUESTION = re.compile(r"^(\s*)%ctx[ \t]+([\w-]+)[ \t]*\?+[ \t]*$", re.MULTILINE)
_MAGIC = re.compile(r"^[ \t]*(?:[\w.\[\], ]+=[ \t]*)?(%{1,2}(?:view|group|ask|ctx))\b", re.MULTILINE)
_PYTHON_FOLLOWS = ("(", "=", ",")
"""Text after the name of a function in Python; after `ls` any other text (-la, *.txt, .., a path) is for the shell."""


class UserRefusal(CtxError):
    """A command that was refused, with a reason of one sentence."""

    def _render_traceback_(self) -> list[str]:
        """Return the line that is shown. Without it, IPython formats all of our frames for its own record: 40 ms."""
        return [show_hidden(f"ctxkernel: {self}")]


class Magics:
    """The magics of one kernel. Their docstrings are the help that users read."""

    def __init__(self, ctx: CommandContext) -> None:
        self._ctx = ctx

    def ctx(self, line: str, cell: str | None = None) -> None:
        """Run a `%ctx` command; the help is built from the table of commands."""
        ctx = self._ctx
        shown = self._refusing(lambda: dispatch(ctx, line) if cell is None else _run_with_body(ctx, line, cell))
        if shown is not None:
            # Displayed, not returned: a command that only reads leaves `_` and `Out` as they are.
            display(shown, metadata=NOTE if repr(shown) == DECIDED else None)

    @no_var_expand
    def ask(self, line: str, cell: str | None = None) -> None:
        """Ask the model: it sees the projection (%ctx projection), and works in this kernel.

        Usage:
          %%ask [--model NAME] [--mode ask|auto] [--max-turns N] [--budget 0.50|50k] [--again]
          the question, in as many lines as it takes

        Each cell that it writes is a statement of the timeline.

        Options:
          --model NAME      which model, from now on (as %ctx model NAME)
          --mode ask|auto   whether each cell waits for your approval, or runs (default: %ctx mode)
          --max-turns N     how often it is called at most, from 1
          --budget B        what it may cost at most: dollars (0.50, $2), or tokens (50k); 0 is no bound
          --again           ask anew what was answered before, rather than replay the answer
        """
        if cell is None and self._help("%%ask", line):
            return
        from ctxkernel.kernel.commands.model import ask

        self._refusing(lambda: ask(self._ctx, line, cell))

    def view(self, line: str) -> Any:
        """Look at a file, a folder, a URI or a variable: what view(…) does, on a line.

        Usage:
          %view TARGET [--pos P] [--tokens N] [--lod N] [--mode M] [--freq F]
          h = %view paper.md --lod 1     keeps the handle

        TARGET is a path, a pattern (data/*.csv), a URI, or a variable; one with spaces stands in quotes.

        Options:
          --pos P     where: a line from 0, line:col, a name (Model.fit, a heading, a row label), a pattern (/def fit/)
          --tokens N  budget of the rendering in estimated tokens, from 1, or All (default: the setting view_tokens)
          --lod N     0 raw excerpt (default), 1 structure, 2 summary, 3 what changed since the last rendering
          --mode M    paused (default: changes by calls only) or running (looks again after every cell)
          --freq F    Sync, Async, Periodic (60 s) or Periodic(seconds): when it looks; giving one sets it running

        view? shows the function, and what the handle can do.
        """
        return self._handle("view", line)

    def group(self, line: str) -> Any:
        """Sum up handles within one budget: what group(…) does, on a line.

        Usage:
          %group HANDLE … [--tokens N] [--lod N] [--mode M] [--freq F]
          g = %group code table --tokens 600     keeps the handle

        HANDLE is a variable that holds a view, a note or a group; at least one.

        Options:
          --tokens N  budget of the summary in estimated tokens, from 1, or All (default: the setting group_tokens)
          --lod N     level at which the members are shown, whatever their own: 0, 1, 2 (default) or 3
          --mode M    running (default: follows its members) or paused
          --freq F    Sync, Async, Periodic (60 s) or Periodic(seconds)

        group? shows the function.
        """
        return self._handle("group", line)

    def _handle(self, magic: str, line: str) -> Any:
        if self._help(f"%{magic}", line):
            return None

        def make() -> Any:
            values, keywords = handle_line(self._ctx, magic, line)
            return getattr(self._ctx.loop, magic)(*values, **keywords)

        return self._refusing(make)

    def _refusing(self, run: Callable[[], Any]) -> Any:
        """Return `run()`; a wrong command becomes an error of the cell, so that Run All stops, without our frames."""
        try:
            return run()
        except CtxError as refused:
            raise UserRefusal(self._ctx.masker(str(refused))) from None

    def _help(self, name: str, line: str) -> bool:
        """Show the help of a magic if its line asks for that. Return whether it did."""
        if line.strip() not in HELP_WORDS:
            return False
        self._ctx.shell.run_line_magic("pinfo", name)
        return True


_ROWS = "\n".join(f"    %ctx {command.usage:<28} {command.help}" for command in COMMANDS.values())
Magics.ctx.__doc__ = f"The timeline, the projection and the session of this notebook.\n\n{_ROWS}\n"


def register(ctx: CommandContext, set_dispatch: Callable[[Callable[[str], object]], None]) -> None:
    """Register the magics in the shell, with help and completion. `set_dispatch` gets the function for gestures."""
    shell, magics = ctx.shell, Magics(ctx)
    set_dispatch(lambda line: dispatch(ctx, line))
    for name, kind in (("view", "line"), ("group", "line"), ("ctx", "line_cell"), ("ask", "line_cell")):
        shell.register_magic_function(getattr(magics, name), magic_kind=kind, magic_name=name)

    def show(shell: Any, etype: type, value: BaseException, tb: Any, tb_offset: Any = None) -> list[str]:
        if (safe := ctx.masker(str(value))) != str(value):
            value.args = (safe,)
        return _show_refusal(shell, etype, value, tb, tb_offset)

    shell.set_custom_exc((UserRefusal, CtxError), show)
    shell.input_transformers_cleanup.append(_rewrite_question)
    # IPython's annotations accept only its own matcher classes, not the plain functions of its documentation.
    matcher: Any = cast("Any", completer).context_matcher

    @matcher(identifier="ctxkernel", priority=1000)
    def complete_command(context: CompletionContext) -> SimpleMatcherResult:
        return _command_completions(ctx, context)

    @matcher(identifier="ctxkernel.handles", priority=1001)
    def complete_handle(context: CompletionContext) -> SimpleMatcherResult:
        return _handle_completions(ctx, context)

    shell.Completer.custom_matchers += [complete_command, complete_handle]
    _keep_ls(shell)


def magic_at(code: str, cursor: int) -> str | None:
    """Return the magic of ctxkernel, such as `%view`, at a cursor; None for none."""
    found = (one for one in _MAGIC.finditer(code) if one.start(1) <= cursor <= one.end(1))
    return next((one[1] for one in found), None)


def _run_with_body(ctx: CommandContext, line: str, cell: str) -> object:
    """Run `%%ctx edit` with the code below it."""
    if line.split() != ["edit"]:
        raise BadCommand(f"%%ctx {line}: only %%ctx edit takes code below it; write %ctx {line}")
    from ctxkernel.kernel.commands.model import edit

    text = edit(ctx, (), cell)
    return CommandOutput(ctx.masker(text)) if text else None


def _show_refusal(shell: Any, etype: type, value: BaseException, tb: Any, tb_offset: Any = None) -> list[str]:
    """Show an error of ctxkernel as one line, with the user's own line if there is one, without our frames."""
    name = "ctxkernel" if etype is UserRefusal else etype.__name__
    lines = [f"{name}: {value}"]
    frame = tb
    while frame is not None:
        if frame.tb_frame.f_globals is shell.user_ns and etype is not UserRefusal:
            lines.insert(0, f"in line {frame.tb_lineno} of the cell, {frame.tb_frame.f_code.co_name}:")
        frame = frame.tb_next
    lines = [show_hidden(line) for line in lines]
    shell._showtraceback(etype, value, lines)
    return lines


def _rewrite_question(lines: list[str]) -> list[str]:
    """Rewrite `%%ask` without a body, and `%ctx SUB?`, which IPython would misread."""
    if lines and lines[0].startswith(("%%ask ", "%ask ")) and not "".join(lines[1:]).strip():
        # IPython refuses a cell magic without a body, and takes a line that ends in ? for a request for help.
        return ["%%ask " + lines[0].partition(" ")[2].rstrip("\n") + "\n", "\n"]
    # IPython would take `%ctx timeline?` for a question about a variable `timeline`.
    if not any(_QUESTION.match(line) for line in lines) or lines[0].startswith("%%"):
        return lines
    # Only at the start of a logical line: within a string it is the user's text.
    starts = {tokens[0].start[0] - 1 for tokens in make_tokens_by_line(lines) if tokens}
    return [_QUESTION.sub(r"\1%ctx help \2", line) if at in starts else line for at, line in enumerate(lines)]


# -- completion --------------------------------------------------------------------------------------


def _command_completions(ctx: CommandContext, context: CompletionContext) -> SimpleMatcherResult:
    """Return the completions of a `%ctx` line, without Python's own names."""
    from ctxkernel.kernel.commands import whatif
    from ctxkernel.kernel.commands.position_names import fitting, place_names

    line, token = context.text_until_cursor, context.token
    if not line.lstrip().startswith("%ctx "):
        return {"completions": []}
    if (given := re.search(r" (?:whatif|set) (?:.* )?(\w+)\.(\w+)=([\"']?)([^\"']*)$", line)) is not None:
        node = ctx.handle(given[1]) if given[2] == "pos" else None
        names = () if node is None else place_names(node)
        values = fitting(names or whatif.SUPPOSED_VALUES.get(given[2], ()), given[4], token, given[3])
        return {"completions": [SimpleCompletion(one) for one in values], "suppress": True, "ordered": True}
    if line.endswith("="):
        return {"completions": []}
    found = complete(ctx, SimpleNamespace(line=line.lstrip(), symbol=token))
    known = [one for one in found if one.startswith(token)]
    known = known or [one for one in found if one.lower().startswith(token.lower())]
    # Where nothing fits, the text stays as it is: IPython would offer its magics.
    return {"completions": [SimpleCompletion(one) for one in known or [token]], "suppress": True, "ordered": True}


def _handle_completions(ctx: CommandContext, context: CompletionContext) -> SimpleMatcherResult:
    """Return the completions where a handle is created or used; they replace Python's if they are all that fits."""
    line = context.text_until_cursor.rpartition("\n")[2]
    found, alone = following(ctx, line, context.token)
    completions = [SimpleCompletion(one) for one in found[:100]]
    return {"completions": completions, "suppress": alone and bool(completions), "ordered": True}


# -- `ls` --------------------------------------------------------------------------------------------


class _ShellLs(PrefilterChecker):
    """Passes `ls …` that is not Python to the shell: the builtin `ls` would hide IPython's alias."""

    def check(self, line_info: Any) -> Any:
        """Return IPython's handler for magics if the line is for the shell, else None."""
        shell: Any = self.shell
        if line_info.ifun != "ls" or line_info.esc or "ls" in shell.user_ns:
            return None
        if line_info.the_rest.lstrip().startswith(_PYTHON_FOLLOWS):
            return None
        if not shell.automagic or shell.find_magic("ls") is None:
            return None
        manager: Any = self.prefilter_manager
        return manager.get_handler_by_name("magic")


def _keep_ls(shell: Any) -> None:
    """Register the checker before IPython's own for magics, whose priority is 700."""
    manager = shell.prefilter_manager
    manager.register_checker(_ShellLs(shell=shell, prefilter_manager=manager, config=manager.config, priority=690))
    manager.sort_checkers()
