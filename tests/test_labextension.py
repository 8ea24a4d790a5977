"""The panel's files, without a browser: one version, served fresh, text set as text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ctxkernel

LAB = Path(__file__).resolve().parent.parent / "ctxkernel/lab"
SCRIPTS = sorted((LAB / "app").glob("*.js"))


def code(path: Path) -> str:
    """The script without its comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("/*", "*", "//")))


def test_front_end_and_kernel_have_one_version():
    """The panel tells versions apart by these; a release that forgets one would warn everybody."""
    package = json.loads((LAB / "package.json").read_text(encoding="utf-8"))
    original = json.loads((LAB / "schemas/jupyter-ctxkernel/package.json.orig").read_text(encoding="utf-8"))
    in_script = re.search(r"VERSION = '([^']+)'", (LAB / "app/remoteEntry.js").read_text(encoding="utf-8"))
    assert in_script
    assert {package["version"], original["version"], in_script[1]} == {ctxkernel.__version__}


def test_what_lab_loads_exists_and_is_not_served_as_immutable():
    """JupyterLab lets browsers keep a labextension's `static` folder for a year."""
    load = json.loads((LAB / "package.json").read_text(encoding="utf-8"))["jupyterlab"]["_build"]["load"]
    assert (LAB / load).is_file()
    assert not load.startswith("static/")


def test_the_settings_are_those_that_the_plugin_asks_for():
    """Lab finds a plugin's settings by its id: NAME:plugin reads schemas/NAME/plugin.json."""
    assert "const ID = 'jupyter-ctxkernel:plugin'" in (LAB / "app/plugin.js").read_text(encoding="utf-8")
    schema = json.loads((LAB / "schemas/jupyter-ctxkernel/plugin.json").read_text(encoding="utf-8"))
    assert schema["properties"]["autoOpen"]["default"] is True


def test_the_renderer_stands_alone():
    """The same file is the inline widget's module, and a widget's module can import nothing beside it."""
    text = code(LAB / "app/render.js")
    assert not re.search(r"\bimport\b", text)
    assert "export default" in text


def test_no_script_sets_html():
    """Every text is untrusted; these are the ways by which a text could become markup or code."""
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
        r"|\beval\b|new Function|srcdoc"
    )
    for path in SCRIPTS:
        assert not re.search(ways, code(path)), path.name
