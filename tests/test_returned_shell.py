"""Parts of IPython's shell that have a name: a return gives the name the part of the running shell."""

from __future__ import annotations

import json

import pytest
from kernels import StartKernel

PARTS = {
    "formatter": "shell.display_formatter",
    "html": "shell.display_formatter.formatters['text/html']",
    "hook": "shell.displayhook",
    "events": "shell.events",
    "history": "shell.history_manager",
    "magics": "shell.magics_manager",
    "basic": "shell.magics_manager.registry['BasicMagics']",
    "config": "shell.config",
}
CELL = "; ".join(["shell = get_ipython()", *(f"{name} = {part}" for name, part in PARTS.items())])


@pytest.mark.parametrize("again", [False, True], ids=["the same kernel", "a new kernel"])
def test_parts_of_the_shell_are_those_of_the_running_shell(start_kernel: StartKernel, again: bool):
    """A copy would have no effect, and a copy of all that they refer to takes seconds."""
    kernel = start_kernel()
    for cell in (CELL, "html.for_type(range, str); del hook, events, history, formatter", "other = 1"):
        assert kernel.run(cell).status == "ok"
    if again:
        kernel.stop()
        kernel = start_kernel()
        assert kernel.run("%ctx resume").status == "ok"

    told = kernel.run("%ctx goto 1").stdout

    assert "not restored" not in told and "as it is now" not in told, told
    assert kernel.evaluate(" and ".join(f"{name} is {part}" for name, part in PARTS.items())) == "True"


def test_a_configurable_object_of_the_user_is_stored(start_kernel: StartKernel):
    kernel = start_kernel()
    kernel.run("from traitlets import Int; from traitlets.config import Config, Configurable")
    kernel.run("class Model(Configurable):\n    n = Int(1)\nmodel = Model(); config = Config(); config.Model.n = 2")
    kernel.run("model.n = 5; config.Model.n = 6")

    told = kernel.run("%ctx goto 2").stdout

    assert "not restored" not in told and "as it is now" not in told, told
    assert kernel.evaluate("(model.n, config.Model.n)") == "(1, 2)"


def test_the_exit_code_of_a_shell_command_is_that_of_the_state(start_kernel):
    """IPython binds `_exit_code`, and cells read it as a variable."""
    kernel = start_kernel()
    for cell in ("!exit 3", "a = 1", "!exit 4", "%ctx goto 2"):
        assert kernel.run(cell).status == "ok"
    assert kernel.evaluate("_exit_code") == "3"
    kernel.stop()
    kernel = start_kernel()

    kernel.run("%ctx resume")

    assert kernel.evaluate("(a, _exit_code)") == "(1, 3)"


def test_an_option_set_in_the_class_of_the_shell_is_that_of_the_state(start_kernel: StartKernel):
    """`InteractiveShell.ast_node_interactivity = "all"` is what tutorials write; it hides the option of the shell."""
    kernel = start_kernel()
    shown = "1\n2"

    def results() -> int:
        return len(kernel.run(shown).data)

    kernel.run("from IPython.core.interactiveshell import InteractiveShell as Shell")
    kernel.run("Shell.ast_node_interactivity = 'all'")
    kernel.run("get_ipython().ast_node_interactivity = 'none'")
    for statement, count in ((1, 1), (2, 2), (3, 0), (2, 2), (1, 1), (3, 0)):
        kernel.run(f"%ctx goto {statement}")
        assert results() == count, statement
    kernel.run("%ctx goto 1")
    kernel.run("%ctx undo")
    assert results() == 0
    kernel.run("%ctx goto 1")

    kernel.run("Shell.ast_node_interactivity = 'all'")

    assert results() == 2
    kernel.run("Shell.ast_node_interactivity = 'last_expr'")
    assert results() == 1


@pytest.mark.parametrize("again", [False, True], ids=["the same kernel", "a new kernel"])
def test_a_name_that_the_shell_hides_is_a_variable_once_a_cell_binds_it(start_kernel: StartKernel, again: bool):
    """IPython puts a function `open` of its own into the namespace, and `%who` does not show it."""
    kernel = start_kernel()
    first = "open.__module__ + ' ' + str(open is get_ipython().user_ns_hidden['open'])"
    shown = kernel.evaluate(first)
    for cell in ("a = 1", "from gzip import open", "open = [7]", "open.append(8)", "del open", "from io import open"):
        assert kernel.run(cell).status == "ok"
    if again:
        kernel.stop()
        kernel = start_kernel()
        kernel.run("%ctx resume")

    for statement, expected in ((3, "[7]"), (4, "[7, 8]"), (2, "'gzip'"), (3, "[7]")):
        told = kernel.run(f"%ctx goto {statement}").stdout
        assert kernel.evaluate("open if type(open) is list else open.__module__") == expected, told
    kernel.run("%ctx goto 1")
    assert kernel.evaluate(first) == shown
    kernel.run("%ctx undo")

    assert kernel.evaluate("open") == "[7]"


def test_names_of_pylab_are_variables(start_kernel: StartKernel):
    """IPython hides them from `%who`, but cells use them, bind them anew, and change what they hold."""
    kernel = start_kernel()
    for cell in ("a = 1", "%pylab inline", "e = [1]", "e.append(2)"):
        assert kernel.run(cell).status == "ok"
    kernel.stop()
    kernel = start_kernel()
    kernel.run("%ctx resume")
    assert kernel.evaluate("(e, zeros(1).tolist())") == "([1, 2], [0.0])"

    kernel.run("%ctx goto 3")
    assert kernel.evaluate("e") == "[1]"
    kernel.run("%ctx goto 2")
    assert kernel.evaluate("float(e) > 2.7") == "True"
    kernel.run("%ctx goto 1")

    assert kernel.evaluate("('e' in globals(), 'zeros' in globals())") == "(False, False)"


@pytest.mark.parametrize("again", [False, True], ids=["the same kernel", "a new kernel"])
def test_the_folders_that_were_visited_are_those_of_the_state(start_kernel: StartKernel, again: bool):
    """`%cd -` goes to the folder before, and `%popd` to the one that `%pushd` put aside."""
    kernel = start_kernel()
    for cell in ("a = 1", "%cd -q /usr", "%cd -q /usr/lib", "%cd -q /", "%pushd /usr", "b = 1"):
        assert kernel.run(cell).status == "ok"
    if again:
        kernel.stop()
        kernel = start_kernel()
        kernel.run("%ctx resume")

    kernel.run("%ctx goto 3")

    assert "empty" in kernel.run("%popd").stderr + str(kernel.run("%popd").outputs)
    assert kernel.run("%cd -").stdout.strip() == "/usr"
    kernel.run("%ctx goto 5")
    assert "popd -> /" in kernel.run("%popd").stdout
    kernel.run("%ctx goto 1")
    assert kernel.evaluate("(_dh[1:], get_ipython().dir_stack)") == "([], [])"
    kernel.run("%ctx undo")

    visited = "([str(one) for one in _dh[1:]], {type(one) for one in _dh} == {type(_dh[0])}, get_ipython().dir_stack)"
    assert kernel.evaluate(visited) == "(['/usr', '/usr/lib', '/', '/usr', '/'], True, [])"


def test_no_other_cell_is_run_again_for_the_folders_that_were_visited(start_kernel: StartKernel):
    kernel = start_kernel()
    for cell in ("a = 1", "%cd -q /usr", "b = 2", "%cd -q /usr/lib", "c = 3"):
        assert kernel.run(cell).status == "ok"
    book = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    for cell in ("a = 2", "%cd -q /usr", "b = 2", "%cd -q /usr/lib", "c = 3"):
        book["cells"].append({"cell_type": "code", "metadata": {}, "source": cell, "outputs": []})
    (kernel.folder / "edited.ipynb").write_text(json.dumps(book))

    told = kernel.run(f"%ctx rerun --affected --notebook {kernel.folder / 'edited.ipynb'}").stdout

    assert "3 cells ran, 2 kept" in told, told


TYPED = {
    "%debug": "%debug",
    "pdb.run": "import pdb; pdb.run('1 + 1')",
    "%%debug": "%%debug\nsome = 1",
    "code.interact": "import code; code.interact()",
}


@pytest.mark.parametrize("cell", TYPED.values(), ids=TYPED)
def test_what_is_typed_at_a_debugger_or_a_console_is_a_change_of_its_cell(start_kernel: StartKernel, cell: str):
    """The text of the cell does not name what the typed commands change."""
    kernel = start_kernel()
    kernel.run("held = [1]\ndef fails(): raise ValueError\nfails()")
    to_console = "import __main__, sys; __main__.held.append(2); sys.exit()"
    typed = to_console if "interact" in cell else "!held.append(2) ;; q"
    kernel.run(cell, answer=typed)
    kernel.run("other = 1")
    assert kernel.evaluate("held") == "[1, 2]"

    assert kernel.run("%ctx goto 1").status == "ok"
    assert kernel.evaluate("held") == "[1]"
    assert "as it is now" not in kernel.run("%ctx goto 2").stdout
    assert kernel.evaluate("held") == "[1, 2]"
