"""The panel's files, without a browser: one version, served fresh, text set as text."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import ctxkernel
from ctxkernel.export.bundle import bundle_modules, modules_of, read_module
from ctxkernel.kernel.display.inline_panel import APP, STYLES, renderer

LAB = Path(__file__).resolve().parent.parent / "ctxkernel/lab"
SCRIPTS = sorted((LAB / "app").glob("*.js"))


def code(path: Path) -> str:
    """Return the script without its comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("/*", "*", "//")))


def test_front_end_and_kernel_have_one_version():
    """The panel tells versions apart by these; a release that forgets one would warn everybody."""
    package = json.loads((LAB / "package.json").read_text(encoding="utf-8"))
    original = json.loads((LAB / "schemas/jupyter-ctxkernel/package.json.orig").read_text(encoding="utf-8"))
    in_script = re.search(r"VERSION = '([^']+)'", (LAB / "app/remoteEntry.js").read_text(encoding="utf-8"))
    assert in_script
    assert {package["version"], original["version"], in_script[1]} == {ctxkernel.__version__}


def test_all_modules_are_imported_from_one_folder():
    """It is named by the version in a wheel: so the version is in the address of every module."""
    for path in SCRIPTS:
        if path.name != "remoteEntry.js":
            assert {source.parent for source in read_module(path).imports} <= {path.parent}, path.name


def test_what_lab_loads_exists_and_is_not_served_as_immutable():
    """JupyterLab lets browsers keep a labextension's `static` folder for a year."""
    load = json.loads((LAB / "package.json").read_text(encoding="utf-8"))["jupyterlab"]["_build"]["load"]
    assert (LAB / load).is_file()
    assert not load.startswith("static/")


def test_the_settings_are_those_that_the_plugin_asks_for():
    """Lab finds a plugin's settings by its id: NAME:plugin reads schemas/NAME/plugin.json."""
    assert "const ID = 'jupyter-ctxkernel:plugin'" in (LAB / "app/labparts.js").read_text(encoding="utf-8")
    schema = json.loads((LAB / "schemas/jupyter-ctxkernel/plugin.json").read_text(encoding="utf-8"))
    assert all(one["default"] is True for one in schema["properties"].values())
    panel = (LAB / "app/panel.js").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{name}\b", panel) for name in schema["properties"])


def names_of(fields: str) -> set[str]:
    """Return the names of the fields of an object, as `a: b, c: d` has them."""
    return {field.partition(":")[0].strip() for field in fields.split(",")}


def test_every_module_imports_what_it_uses():
    """A name that is not imported is found only when that line runs, maybe in front of a user."""
    modules = {path: read_module(path) for path in SCRIPTS if path.name != "remoteEntry.js"}
    exports = {path: names_of(module.exports) for path, module in modules.items()}
    for path, module in modules.items():
        assert all(names_of(names) <= exports[source] for source, names in module.imports.items()), path.name
        imported = {name for names in module.imports.values() for name in names_of(names)}
        called = set(re.findall(r"(?<![\w.])(\w+)\(", code(path))) & set().union(*exports.values())
        own = set(re.findall(r"(?:function|const|let|class) (\w+)", module.code))
        assert called <= imported | own | {"createPlugin"}, path.name
        assert all(re.search(rf"\b{name}\b", module.code) for name in imported), path.name


OF_NOTEBOOK = (
    "askcells.js",
    "celllinks.js",
    "cellversions.js",
    "commands.js",
    "gutter.js",
    "kepttexts.js",
    "markcard.js",
    "returnedwidgets.js",
    "savepage.js",
    "sheet.js",
    "textdiff.js",
)
"""The modules of what stands in the notebook itself; the inline panel has no notebook."""

OF_LAB = (
    "careful.js",
    "connection.js",
    "handleoutput.js",
    "labparts.js",
    "link.js",
    "notebook.js",
    "panel.js",
    "panelcommands.js",
    "plugin.js",
    "proposaloutput.js",
    "sweepoutput.js",
    "remoteEntry.js",
    "timelinetab.js",
)
"""The modules that need JupyterLab."""


def test_the_renderer_stands_alone():
    """Joined, its parts are the inline widget's module, and a widget's module can import nothing beside it."""
    text = renderer()
    assert not re.search(r"^(import|export (?!default))", text, re.MULTILINE)
    assert text.count("export default") == 1
    of_lab = {*OF_LAB, *OF_NOTEBOOK}
    assert {module.path.name for module in modules_of(APP / "inline.js")} == {path.name for path in SCRIPTS} - of_lab
    assert set(STYLES) == {path.name for path in (LAB / "app").glob("*.css")} - {"notebook.css"}


def test_a_bundle_has_a_scope_for_each_module(tmp_path: Path):
    """Two modules may use one name, and import and export under others."""
    b, a = "const own = 1;\n\nexport { own as one };\n", "const own = other;\n\nexport { own as default };\n"
    (tmp_path / "b.js").write_text(b, encoding="utf-8")
    (tmp_path / "a.js").write_text(f"/** A. */\n\nimport {{ one as other }} from './b.js';\n\n{a}", encoding="utf-8")

    first, second, last = bundle_modules(tmp_path / "a.js").replace("\n\n", "\n").split("})();\n")

    assert first == "const $module0 = (() => {\nconst own = 1;\nreturn { one: own };\n"
    body = "const { one: other } = $module0;\nconst own = other;\nreturn { default: own };\n"
    assert second == f"const $module1 = (() => {{\n{body}"
    assert last == "export default $module1.default;\n"


REFUSED = [
    ("an export in the middle", "export const a = 1;\nconst b = 2;\n\nexport { b };\n", "one list"),
    ("no export", "const b = 2;\n", "one list"),
    ("a default import", "import b from './b.js';\n\nexport { b };\n", "names in braces"),
    ("an import of itself", "import { b } from './a.js';\n\nexport { b };\n", "imports itself"),
]


@pytest.mark.parametrize(("what", "text", "why"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_module_of_another_form_is_refused(tmp_path: Path, what: str, text: str, why: str):
    """The bundler reads one form of module, and never guesses."""
    (tmp_path / "a.js").write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=why):
        list(modules_of(tmp_path / "a.js"))


def commands_in(value: object) -> set[str]:
    """Return the commands that any part of a schema names."""
    if isinstance(value, dict):
        found = {value["command"]} if isinstance(value.get("command"), str) else set()
        return found.union(*map(commands_in, value.values()))
    return set().union(*map(commands_in, value)) if isinstance(value, list) else set()


def test_the_commands_of_menus_toolbars_and_keys_are_those_that_the_plugin_adds():
    """JupyterLab shows nothing, and says nothing, for a command that nobody adds."""
    listed = commands_in(json.loads((LAB / "schemas/jupyter-ctxkernel/plugin.json").read_text(encoding="utf-8")))
    scripts = "".join((LAB / "app" / name).read_text(encoding="utf-8") for name in ("panelcommands.js", "commands.js"))
    sections = {f"ctxkernel:show-{name}" for name in re.findall(r"\['(\w+)', '[\w-]+'\]", scripts)}
    added = {*re.findall(r"'(ctxkernel:[\w-]+)'", scripts), *sections}
    assert len(listed) > 20
    assert listed <= added, listed - added


def test_every_section_of_the_panel_has_a_command():
    scripts = {name: (LAB / "app" / name).read_text(encoding="utf-8") for name in ("commands.js", "sections.js")}
    [tabs] = re.findall(r"TABS = .*?\(\[(.*?)\]\)", scripts["sections.js"])
    assert re.findall(r"\['(\w+)', '[\w-]+'\]", scripts["commands.js"]) == re.findall(r"'(\w+)'", tabs)


def test_no_key_of_ours_is_one_that_jupyterlab_ships():
    """Nor begins with one, nor is the beginning of one: Lab would wait for the next key, or never see it."""
    (share,) = {Path(sys.prefix) / "share/jupyter/lab/schemas"}
    shipped = [path for path in share.glob("@*/*/*.json") if path.name != "package.json.orig"]
    assert len(shipped) > 20
    taken = {
        tuple(one[field])
        for path in shipped
        for one in json.loads(path.read_text(encoding="utf-8")).get("jupyter.lab.shortcuts", [])
        for field in ("keys", "macKeys", "winKeys", "linuxKeys")
        if one.get(field)
    }
    ours = [
        (one["command"], tuple(one["keys"]))
        for one in json.loads((LAB / "schemas/jupyter-ctxkernel/plugin.json").read_text(encoding="utf-8"))[
            "jupyter.lab.shortcuts"
        ]
    ]
    assert len({keys for _, keys in ours}) == len(ours)
    for command, keys in ours:
        clashes = [one for one in taken if one[: len(keys)] == keys or keys[: len(one)] == one]
        assert not clashes, (command, clashes)


def test_no_script_sets_html():
    """Every text is untrusted; these are the ways by which a text could become markup or code."""
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
        r"|\beval\b|new Function|srcdoc"
    )
    for path in SCRIPTS:
        assert not re.search(ways, code(path)), path.name
