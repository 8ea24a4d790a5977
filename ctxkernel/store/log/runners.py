"""The notebook that a runner executes, from the command line of the program that started the kernel.

papermill, nbconvert, `jupyter execute` and jupytext do not tell a kernel which notebook they run.

Rule 1: The command is data: nothing is executed or read. A command that is not understood names no notebook.
Rule 2: A session belongs to the notebook that the runner writes; if it writes none, to the one that it reads.
Rule 3: The session of a kernel that another Python program started, without a notebook's name, is that program's.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from ctxkernel.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunnerCommand:
    """A command that executes one notebook."""

    runner: str
    source: str
    """The notebook that is read, as the command names it."""
    output: str
    """The notebook that is written; empty if there is none."""


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a program: by name, how many words follow. Other options take one word."""

    words: Mapping[str, int]


SOURCE = "source"
"""The fact of a run that names the notebook that its runner read."""

_FLAGS_OF_PAPERMILL = (
    "--help-notebook --inject-input-path --inject-output-path --inject-paths --prepare-only --prepare-execute "
    "--request-save-on-cell-execute --no-request-save-on-cell-execute --progress-bar --no-progress-bar --log-output "
    "--no-log-output --report-mode --no-report-mode --version"
)
_FLAGS_OF_APPS = (
    "--execute --allow-errors --inplace --debug --stdout --stdin --clear-output --coalesce-streams --no-prompt "
    "--no-input --generate-config -y --show-config --show-config-json --allow-chromium-download "
    "--disable-chromium-sandbox --show-input --embed-images --sanitize-html"
)
_FLAGS_OF_JUPYTEXT = "--execute --sync --paired-paths --test --test-strict --update -q --quiet --version --show-changes"
_PAPERMILL = _Options(
    {**dict.fromkeys(_FLAGS_OF_PAPERMILL.split(), 0), **dict.fromkeys(("-p", "-r"), 2)}
    | {
        "--parameters": 2,
        "--parameters_raw": 2,
    }
)
_APPS = _Options(dict.fromkeys(_FLAGS_OF_APPS.split(), 0))
_JUPYTEXT = _Options(dict.fromkeys(_FLAGS_OF_JUPYTEXT.split(), 0))
_PYTHON = re.compile(r"(?:python|pypy)[0-9.w]*(?:\.exe)?", re.IGNORECASE)
_FRONT_ENDS = re.compile(r"jupyter.*|notebook|spyder.*|ctxkernel")
"""Programs in Python that name the notebook of a kernel, or have none."""


def runner_command(command: Sequence[str]) -> RunnerCommand | None:
    """Return the notebook that a command executes; None for another program, or several notebooks."""
    program, words = _program(list(command))
    if program == "jupyter" and words:
        program, words = f"jupyter-{words[0]}", words[1:]
    if program == "papermill":
        return _papermill(words)
    if program in ("jupyter-nbconvert", "nbconvert"):
        return _nbconvert(words)
    if program in ("jupyter-execute", "nbclient"):
        return _jupyter_execute(words)
    return _jupytext(words) if program == "jupytext" else None


def program_name(command: Sequence[str]) -> str | None:
    """Return the name of the session of a kernel that a Python program started; None for a front end."""
    words = list(command)
    if not words or not _PYTHON.fullmatch(PurePath(words[0]).name):
        return None
    name = _program(words)[0]
    if _FRONT_ENDS.fullmatch(name):
        return None
    return f"{'python' if name in ('', '-', '-c') else name.removesuffix('.py')}.program"


def _program(command: list[str]) -> tuple[str, list[str]]:
    """Return the name of the program without the interpreter, and its words."""
    if command and _PYTHON.fullmatch(PurePath(command[0]).name):
        command = command[1:]
        while command and command[0].startswith("-") and command[0] not in ("-m", "-c", "-"):
            command = command[2:] if command[0] in ("-W", "-X") else command[1:]
        if command and command[0] == "-m":
            command = command[1:]
    if not command:
        return "", []
    name = command[0].replace("\\", "/").rpartition("/")[2]
    return name.removesuffix(".exe").removesuffix("-script.py"), command[1:]


def _parse(words: Sequence[str], options: _Options) -> tuple[list[str], dict[str, str]]:
    """Return the positional words, and the options with the first word that follows (empty for a flag)."""
    positional: list[str] = []
    given: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            return [*positional, *words[at:]], given
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        if equals:
            given[name] = value
            continue
        count = options.words.get(name, 1)
        given[name] = words[at] if count and at < len(words) else ""
        at += count
    return positional, given


def _papermill(words: Sequence[str]) -> RunnerCommand | None:
    paths, given = _parse(words, _PAPERMILL)
    if not paths or "--prepare-only" in given:
        return None
    output = paths[1] if len(paths) > 1 else ""
    return RunnerCommand("papermill", paths[0], "" if output == "-" else output)


def _nbconvert(words: Sequence[str]) -> RunnerCommand | None:
    paths, given = _parse(words, _APPS)
    if len(paths) != 1:
        return None
    [source] = paths
    folder = given.get("--output-dir") or os.path.dirname(source)
    name = given.get("--output", "")
    if "--inplace" in given:
        return RunnerCommand("nbconvert", source, source)
    if given.get("--to") != "notebook" or "--stdout" in given:
        return RunnerCommand("nbconvert", source, "")
    name = name.removesuffix(".ipynb") or f"{PurePath(source).stem}.nbconvert"
    return RunnerCommand("nbconvert", source, os.path.join(folder, f"{name}.ipynb"))


def _jupyter_execute(words: Sequence[str]) -> RunnerCommand | None:
    paths, given = _parse(words, _APPS)
    if len(paths) != 1:
        return None
    source = str(PurePath(paths[0]).with_suffix(".ipynb"))
    output = given.get("--output", "")
    if "--inplace" in given or not output:
        return RunnerCommand("jupyter execute", source, "")
    output = output.replace("{notebook_name}", PurePath(source).stem)
    return RunnerCommand(
        "jupyter execute", source, str(PurePath(source).parent / PurePath(output).with_suffix(".ipynb"))
    )


def _jupytext(words: Sequence[str]) -> RunnerCommand | None:
    paths, given = _parse(words, _JUPYTEXT)
    if len(paths) != 1 or "--execute" not in given:
        return None
    [source] = paths
    output = given.get("--output") or given.get("-o") or ""
    target = given.get("--to", "")
    if not output and target in ("ipynb", "notebook", ".ipynb"):
        output = str(PurePath(source).with_suffix(".ipynb"))
    return RunnerCommand("jupytext", source, output if output.endswith(".ipynb") else "")


@dataclass(frozen=True, slots=True)
class RunNotebook:
    """A notebook that a runner executes in this kernel, with absolute paths."""

    runner: str
    path: Path
    """The notebook of the session."""
    source: Path
    """The notebook that is read; `path` where it is also written."""

    @property
    def facts(self) -> dict[str, str]:
        """Return what a run stores of it: the notebook that was read is relative to the folder of the other."""
        with contextlib.suppress(ValueError):  # on another drive
            return {"runner": self.runner, SOURCE: os.path.relpath(self.source, self.path.parent)}
        return {"runner": self.runner, SOURCE: str(self.source)}


def run_notebook(
    commands: Iterable[tuple[Sequence[str], str]], env: Mapping[str, str], cwd: Path
) -> RunNotebook | None:
    """Return the notebook that the first runner among `commands` executes, each with its working directory.

    papermill changes its directory (`--cwd`), so that of the shell (`PWD`) counts if the notebook is there. A remote
    notebook (`s3://…`) has the session that a notebook of its name in `cwd` would have.
    """
    for words, folder in commands:
        found = runner_command(words)
        if found is None:
            continue
        bases = [Path(one) for one in (folder, env.get("PWD", ""), str(cwd)) if one]
        source = _local(found.source, cwd)
        base = next((one for one in bases if _is_file(one / source)), bases[0])
        output = _local(found.output, cwd) if found.output else source
        return RunNotebook(found.runner, Path(os.path.normpath(base / output)), Path(os.path.normpath(base / source)))
    return None


def _local(name: str, cwd: Path) -> Path:
    return cwd / PurePath(name).name if "://" in name else Path(name).expanduser()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
