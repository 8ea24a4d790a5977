"""What cells register with IPython's shell belongs to the state."""

from __future__ import annotations

from typing import Any

import pytest
from kernels import RunningKernel

CALLBACKS = {
    "an event": (
        "ran = []\ndef note(result=None): ran.append(1)",
        "get_ipython().events.register('post_run_cell', note)",
        "any(one is note for one in get_ipython().events.callbacks['post_run_cell'])",
    ),
    "a method for an event": (
        "class Timer:\n    def stop(self, result=None): pass\ntimer = Timer()",
        "get_ipython().events.register('post_execute', timer.stop)",
        "any(getattr(one, '__self__', 0) is timer for one in get_ipython().events.callbacks['post_execute'])",
    ),
    "a transformer of cells": (
        "def transform(lines): return [line.replace('«', '(').replace('»', ')') for line in lines]",
        "get_ipython().input_transformers_cleanup.append(transform)",
        "any(one is transform for one in get_ipython().input_transformers_cleanup)",
    ),
    "a transformer of trees": (
        "import ast\nclass Same(ast.NodeTransformer): pass\nsame = Same()",
        "get_ipython().ast_transformers.append(same)",
        "any(one is same for one in get_ipython().ast_transformers)",
    ),
    "a formatter": (
        """def show(value, printer, cycle): printer.text('shown')
plain = get_ipython().display_formatter.formatters['text/plain']""",
        "_before = plain.for_type(float, show)",
        "plain.type_printers.get(float) is show",
    ),
    "a formatter of an own class": (
        """class P: pass
def show(value): return '<b>p</b>'
html = get_ipython().display_formatter.formatters['text/html']""",
        "html.for_type(P, show)\nNone",
        "html.type_printers.get(P) is show",
    ),
    "a formatter of a type by its name": (
        """def show(value): return '<b>p</b>'
html = get_ipython().display_formatter.formatters['text/html']""",
        "html.for_type_by_name('not_loaded', 'P', show)\nNone",
        "html.deferred_printers.get(('not_loaded', 'P')) is show",
    ),
    "a magic": (
        "def hello(line): return line",
        "get_ipython().register_magic_function(hello, 'line', 'hello')",
        "get_ipython().magics_manager.magics['line'].get('hello') is hello",
    ),
    "an alias": ("a = 1", "%alias hello echo hello", "get_ipython().alias_manager.is_alias('hello')"),
    "an alias that is removed": (
        "%alias hello echo hello",
        "%unalias hello",
        "not get_ipython().alias_manager.is_alias('hello')",
    ),
    "the mode of tracebacks": ("a = 1", "%xmode Plain", "get_ipython().InteractiveTB.mode == 'Plain'"),
}


@pytest.mark.parametrize("kind", CALLBACKS)
def test_what_a_cell_registers_with_the_shell_is_there_in_the_states_after_it_and_in_no_other(kernel: Any, kind: str):
    made, registered, there = CALLBACKS[kind]
    kernel.run(made)
    kernel.run(registered)
    kernel.run("b = 1")

    assert kernel.evaluate(there) == "True"
    kernel.run("%ctx goto 1")
    assert kernel.evaluate(there) == "False"
    kernel.run("%ctx goto 3")
    assert kernel.evaluate(there) == "True"
    kernel.run("%ctx goto 0")
    kernel.run("%ctx goto 2")
    assert kernel.evaluate(there) == "True"


def test_a_formatter_of_a_library_is_there_again_where_a_return_takes_that_of_a_cell_away(kernel: Any):
    kernel.run("import math")
    kernel.run("plain = get_ipython().display_formatter.formatters['text/plain']")
    kernel.run("before = plain.for_type(set, lambda value, printer, cycle: printer.text('mine'))")
    assert kernel.run("{1}").data[0]["text/plain"] == "mine"

    kernel.run("%ctx goto 2")

    assert kernel.run("{1}").data[0]["text/plain"] == "{1}"


def test_a_handler_of_exceptions_goes_with_a_return_and_a_state_with_it_names_it(kernel: Any):
    kernel.run("a = 1")
    kernel.run("get_ipython().set_custom_exc((ZeroDivisionError,), lambda *args, **more: print('mine'))")
    assert kernel.run("1 / 0").stdout == "mine\n"

    kernel.run("%ctx goto 1")
    assert "mine" not in kernel.run("1 / 0").stdout
    assert "Traceback" not in kernel.run("%ctx goto 99").stderr, "ctxkernel's own handler is there again"

    assert "ZeroDivisionError (handler of exceptions)" in kernel.run("%ctx goto 2").stdout


def test_figures_are_shown_after_a_return_to_a_state_without_pyplot(kernel: Any):
    """A callback of matplotlib shows them: it stays."""
    kernel.run("a = 1")
    kernel.run("import matplotlib.pyplot as plt\nplt.plot([1])")

    kernel.run("%ctx goto 1")

    shown = kernel.run("import matplotlib.pyplot as plt\nplt.plot([2])")
    assert any("image/png" in data for data in shown.data)


def test_an_extension_of_the_user_s_can_be_loaded_again_after_a_return_to_a_state_without_it(kernel: Any):
    (kernel.folder / "own_extension.py").write_text(
        "def note(result=None): pass\ndef load_ipython_extension(shell): shell.events.register('post_run_cell', note)\n"
    )
    there = "[one.__name__ for one in get_ipython().events.callbacks['post_run_cell']].count('note')"
    kernel.run("a = 1")
    kernel.run("%load_ext own_extension")
    assert kernel.evaluate(there) == "1"

    kernel.run("%ctx goto 1")
    assert kernel.evaluate(there) == "0"

    kernel.run("%load_ext own_extension")
    assert kernel.evaluate(there) == "1"


def test_magics_of_an_own_class_are_those_of_the_variable_in_each_state_and_in_a_new_kernel(start_kernel: Any):
    kernel: RunningKernel = start_kernel()
    kernel.run(
        "from IPython.core.magic import Magics, line_magic, magics_class\n"
        "@magics_class\n"
        "class Noting(Magics):\n"
        "    def __init__(self, shell):\n"
        "        super().__init__(shell)\n"
        "        self.noted = []\n"
        "    @line_magic\n"
        "    def note(self, line): self.noted.append(line)\n"
        "noting = Noting(get_ipython())\n"
        "get_ipython().register_magics(noting)"
    )
    kernel.run("%note a")
    same = "get_ipython().magics_manager.registry['Noting'] is noting"

    kernel.run("%ctx goto 1")
    assert kernel.evaluate(f"(noting.noted, {same})") == "([], True)"
    kernel.run("%note b")
    assert kernel.evaluate("noting.noted") == "['b']"
    kernel.run("%ctx goto s2")
    assert kernel.evaluate(f"(noting.noted, {same})") == "(['a'], True)"
    kernel.stop()

    kernel = start_kernel(kernel.folder)
    kernel.run("%ctx resume")
    kernel.run("%note c")
    assert kernel.evaluate(f"(noting.noted, {same})") == "(['a', 'c'], True)"


def test_callbacks_are_registered_with_the_shell_of_a_new_kernel(start_kernel: Any):
    """The one of a variable is that of the variable."""
    kernel: RunningKernel = start_kernel()
    kernel.run("ran = []\ndef note(result=None): ran.append(1)")
    kernel.run("get_ipython().events.register('post_run_cell', note)")
    kernel.run("get_ipython().events.register('pre_run_cell', lambda info=None: ran.append(2))")
    kernel.stop()
    kernel = start_kernel(kernel.folder)

    kernel.run("%ctx resume")

    assert kernel.evaluate("get_ipython().events.callbacks['post_run_cell'][-1] is note") == "True"
    kernel.run("before = [*ran]")
    assert kernel.evaluate("(before[-1], ran[-1])") == "(2, 1)"
