"""The panel's files, without a browser: one version, served fresh, text set as text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ctxkernel
from ctxkernel.kernel.display.inline_panel import PARTS, STYLES, renderer

LAB = Path(__file__).resolve().parent.parent / "ctxkernel/lab"
SCRIPTS = sorted((LAB / "app").glob("*.js"))


EXPORTED = r"^export (?:async )?(?:function|const|class) (\w+)"


def module_of(imported: str) -> str:
    """The file that an import names."""
    return imported.removeprefix("./").partition("?")[0]


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
    # In the address of every module, so that no proxy can mix those of two versions.
    for path in SCRIPTS:
        imported = re.findall(r"from '(\./[^']+)'", code(path))
        assert imported == [f"./{module_of(name)}?v={ctxkernel.__version__}" for name in imported], path.name


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


def test_every_module_imports_what_it_uses():
    """A name that is not imported is found only when that line runs, maybe in front of a user."""
    owner = {name: path.name for path in SCRIPTS for name in re.findall(EXPORTED, code(path), re.MULTILINE)}
    for path in SCRIPTS:
        text = code(path)
        imported = {
            name: module_of(module)
            for names, module in re.findall(r"import \{([^}]*)\} from '([^']+)'", text)
            for name in re.split(r"[\s,]+", names.strip(" \n,"))
        }
        assert all(owner.get(name) == module for name, module in imported.items()), path.name
        body = re.sub(r"import \{[^}]*\} from '[^']+';", "", text)
        called = set(re.findall(r"(?<![\w.])(\w+)\(", body)) & set(owner)
        own = set(re.findall(r"(?:function|const|let|class) (\w+)", body))
        assert called <= set(imported) | own | {"createPlugin"}, path.name
        assert all(re.search(rf"\b{name}\b", body) for name in imported), path.name


def test_the_renderer_stands_alone():
    """Joined, its parts are the inline widget's module, and a widget's module can import nothing beside it."""
    text = renderer()
    assert not re.search(r"^(import|export (?!default))", text, re.MULTILINE)
    assert text.count("export default") == 1
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names)), "a name twice would make the joined module fail"
    of_lab = {"remoteEntry.js", "plugin.js", "notebook.js", "handleoutput.js"}
    assert set(PARTS) == {path.name for path in SCRIPTS} - of_lab
    assert set(STYLES) == {path.name for path in (LAB / "app").glob("*.css")}


def test_the_commands_of_menus_and_toolbars_are_those_that_the_plugin_adds():
    """JupyterLab shows nothing, and says nothing, for a command that nobody adds."""
    schema = json.loads((LAB / "schemas/jupyter-ctxkernel/plugin.json").read_text(encoding="utf-8"))
    listed = [*schema["jupyter.lab.menus"]["context"], *schema["jupyter.lab.toolbars"]["Cell"]]
    plugin = (LAB / "app/plugin.js").read_text(encoding="utf-8")
    assert listed
    assert all(f"'{one['command']}'" in plugin for one in listed)


def test_no_script_sets_html():
    """Every text is untrusted; these are the ways by which a text could become markup or code."""
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
        r"|\beval\b|new Function|srcdoc"
    )
    for path in SCRIPTS:
        assert not re.search(ways, code(path)), path.name
