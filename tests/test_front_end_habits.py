"""The messages of other front ends than JupyterLab, as they send them: which become statements, and with what id.

The shapes are those of vscode-jupyter, google-colab, jupyter_console, qtconsole with spyder-kernels, and PyCharm.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from kernels import Ran, RunningKernel

FIELDS = ("source", "cell", "kind", "tags", "author")
CELL = {"silent": False, "store_history": True, "stop_on_error": False, "user_expressions": {}}
HIDDEN = {**CELL, "store_history": False}
"""vscode-jupyter's `executeSilently`: its output is read, its prompt is not counted."""


def send(kernel: RunningKernel, code: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> Ran:
    return kernel.run(code, metadata=metadata or {}, **content)


def timeline(kernel: RunningKernel) -> list[dict[str, Any]]:
    log = "get_ipython().kernel.ctx.loop.log"
    made = kernel.evaluate(f"[(s.source, s.cell_id, s.kind, dict(s.tags), s.author) for s in {log}]")
    return [dict(zip(FIELDS, one, strict=True)) for one in ast.literal_eval(made)]


# -- VS Code ---------------------------------------------------------------------------------------------------

VSCODE_START = [
    """try:
    import ipywidgets as _VSCODE_ipywidgets
    print("e976ee50-99ed-4aba-9b6b-9dcd5634d07d" + _VSCODE_ipywidgets.__version__)
    del _VSCODE_ipywidgets
except:
    pass""",
    '__vsc_ipynb_file__ = "/home/me/study/a.ipynb"\n%config Completer.use_jedi = False',
]
VSCODE_VARIABLES = """def _VSCODE_getVariable(what_to_get, is_debugging, *args):
    import builtins as _VSCODE_builtins
    return _VSCODE_builtins.repr([(name, _VSCODE_builtins.type(globals()[name]).__name__) for name in args[0]])

_VSCODE_rwho_ls = %who_ls
print(_VSCODE_getVariable("types", False, _VSCODE_rwho_ls))

try:
    del _VSCODE_getVariable
except:
    pass
try:
    del _VSCODE_rwho_ls
except:
    pass"""


def vscode(name: str) -> dict[str, Any]:
    return {
        "cellId": f"vscode-notebook-cell:/home/me/study/a.ipynb#{name}",
        "tags": ["parameters"] if name == "W0sZmlsZQ%3D%3D" else [],
    }


def test_vs_code_has_its_cells_in_the_timeline_and_none_of_its_hidden_requests(kernel: RunningKernel):
    for code in VSCODE_START:
        assert send(kernel, code, HIDDEN).status == "ok"
    assert send(kernel, "x = 1", CELL, vscode("W0sZmlsZQ%3D%3D")).status == "ok"
    listed = send(kernel, VSCODE_VARIABLES, HIDDEN)
    assert "('x', 'int')" in listed.stdout
    assert send(kernel, "x + 1", CELL, vscode("W1sZmlsZQ%3D%3D")).data[0]["text/plain"] == "2"
    send(kernel, VSCODE_VARIABLES, HIDDEN)
    send(kernel, "x = 3", CELL, vscode("W1sZmlsZQ%3D%3D"))

    made = timeline(kernel)

    assert [one["source"] for one in made] == ["x = 1", "x + 1", "x = 3"]
    assert [one["cell"] for one in made] == ["W0sZmlsZQ%3D%3D@1", "W1sZmlsZQ%3D%3D@1", "W1sZmlsZQ%3D%3D@1"]
    assert [one["kind"] for one in made] == ["parameters", "python", "python"]
    assert "/home/me" not in json.dumps(made), "the address of a cell names the user's folders"
    assert kernel.evaluate("In[-1]") == "'x = 3'", "hidden requests have no prompt"


def test_vs_code_remote_and_untitled_cells_have_ids_too(kernel: RunningKernel):
    for address in (
        "vscode-notebook-cell://wsl%2Bubuntu/home/me/a.ipynb#W2sdnNjb2Rl",
        "vscode-notebook-cell:Untitled-1.ipynb?jupyter-notebook#W3sdW50",
    ):
        send(kernel, "1", CELL, {"cellId": address})
    assert [one["cell"] for one in timeline(kernel)] == ["W2sdnNjb2Rl@1", "W3sdW50@1"]


def test_vs_code_opens_its_own_widget_manager(kernel: RunningKernel):
    """It asks for widgets by comm messages of the control target, in the middle of everything."""
    send(kernel, "import ipywidgets\nw = ipywidgets.IntSlider(value=1)\nw", CELL, vscode("W0sZmlsZQ%3D%3D"))
    client = kernel.client
    comm_id = "c" * 32
    opened = {"comm_id": comm_id, "target_name": "jupyter.widget.control", "data": {}}
    version = {"version": "1.0.0"}
    client.shell_channel.send(client.session.msg("comm_open", opened, metadata=version))
    asked = {"comm_id": comm_id, "data": {"method": "request_states"}}
    client.shell_channel.send(client.session.msg("comm_msg", asked))
    model = kernel.evaluate("w.model_id").strip("'")
    moved = {"comm_id": model, "data": {"method": "update", "state": {"value": 5}, "buffer_paths": []}}
    client.shell_channel.send(client.session.msg("comm_msg", moved))
    assert kernel.evaluate("w.value") == "5"
    ran = send(kernel, "w.value + 1", CELL, vscode("W1sZmlsZQ%3D%3D"))
    assert ran.data[0]["text/plain"] == "6"
    sources = [one["source"] for one in timeline(kernel)]
    assert sources[0].startswith("import ipywidgets")
    assert sources[-1] == "w.value + 1"


# -- Colab -------------------------------------------------------------------------------------------------------


def test_colab_cells_have_the_id_of_their_metadata(kernel: RunningKernel):
    metadata = {"colab": {"base_uri": "https://localhost:8080/"}, "cellId": "G5RrWE9R_Nkl", "id": "G5RrWE9R_Nkl"}
    hidden = {"silent": True, "store_history": False, "user_expressions": {}, "stop_on_error": True}
    send(kernel, "__import__('sys').modules.get('google.colab')", hidden, {"colab": {}})
    send(kernel, "#@title Set up { display-mode: 'form' }\nrate = 0.5 #@param {type:'number'}", CELL, metadata)
    [made] = timeline(kernel)
    assert (made["cell"], made["kind"]) == ("G5RrWE9R_Nkl", "python")


# -- consoles ----------------------------------------------------------------------------------------------------


def test_jupyter_console_sends_cells_without_ids(kernel: RunningKernel):
    """jupyter_console asks whether a line is complete, then sends it with `user_expressions` and no metadata."""
    client = kernel.client
    client.is_complete("for n in range(2):")
    while client.get_shell_msg(timeout=30)["msg_type"] != "is_complete_reply":
        pass
    content = {"silent": False, "store_history": True, "stop_on_error": True, "user_expressions": {}}
    assert send(kernel, "n = 1\n", content).status == "ok"
    assert send(kernel, "n\n", content).data[0]["text/plain"] == "1"
    assert [(one["source"], one["cell"]) for one in timeline(kernel)] == [("n = 1\n", None), ("n\n", None)]


SPYDER_HIDDEN = [
    "get_ipython().run_line_magic('matplotlib', 'inline')",
    "getattr(get_ipython().kernel, 'set_value', False)",
    "%colors NoColor",
    "__import__('os').getcwd()",
]


def test_spyder_has_its_hidden_requests_out_of_the_timeline(kernel: RunningKernel):
    """Spyder's console sends what its panes need with `silent`, and reads the answer from `user_expressions`."""
    for code in SPYDER_HIDDEN:
        hidden = {
            "silent": True,
            "store_history": False,
            "user_expressions": {"output": "1 + 1"},
            "stop_on_error": True,
        }
        ran = send(kernel, code, hidden)
        assert ran.status == "ok", ran.reply
        assert ran.reply["user_expressions"]["output"]["data"]["text/plain"] == "2"
    runs = "%runcell -i 0 /home/me/untitled0.py"
    content = {"silent": False, "store_history": True, "stop_on_error": True, "user_expressions": {}}
    send(kernel, "value = 4", content)
    failed = send(kernel, runs, content)
    assert failed.status in ("error", "ok"), "spyder-kernels brings that magic"
    send(kernel, "globals()['value'] = 5", {**content, "silent": True, "store_history": False})
    send(kernel, "value", content)
    made = timeline(kernel)
    assert [one["source"] for one in made if not one["tags"].get("outside")] == ["value = 4", runs, "value"]
    outside = [one for one in made if one["tags"].get("outside")]
    assert len(outside) == 1, "the variable explorer changed a value: the timeline says so"


PYCHARM_HIDDEN = """import sys as _pydev_sys
try:
    from _pydevd_bundle import pydevd_vars as _pydevd_vars
except ImportError:
    _pydevd_vars = None
del _pydev_sys, _pydevd_vars"""


def test_pycharm_has_its_hidden_requests_out_of_the_timeline(kernel: RunningKernel):
    hidden = {
        "silent": True,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
    }
    send(kernel, PYCHARM_HIDDEN, {key: value for key, value in hidden.items() if key != "allow_stdin"})
    content = {"silent": False, "store_history": True, "stop_on_error": True, "user_expressions": {}}
    send(kernel, "x = 1", content, {"cellId": "b2c4f2f1", "deletedCells": [], "pycharm": {"name": "#%%\n"}})
    send(kernel, "print(x)", HIDDEN)
    assert [(one["source"], one["cell"]) for one in timeline(kernel)] == [("x = 1", "b2c4f2f1")]


@pytest.mark.parametrize(
    "metadata", [{"cellId": 5}, {"cellId": "x" * 5000}, {"tags": "no list"}, {"tags": [1, "", "y" * 500, "ok"] * 50}]
)
def test_odd_metadata_do_no_harm(kernel: RunningKernel, metadata: dict[str, Any], tmp_path: Path):
    assert send(kernel, "x = 1", CELL, metadata).status == "ok"
    [made] = timeline(kernel)
    assert made["cell"] is None
    assert made["tags"] in ({}, {"cell_tags": ["ok"]})
