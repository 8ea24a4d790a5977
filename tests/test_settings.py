"""Settings: where they come from, what cannot be used, and what setting one does; the properties of the history."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels import RunningKernel

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.settings import DEFAULTS, SPECS, Settings, checked, from_text, shown
from ctxkernel.history.events import HumanStatement
from ctxkernel.history.invariants import PROPERTIES, OwnProperty, Property
from ctxkernel.history.view import HistoryView
from ctxkernel.kernel.commands import configuration
from ctxkernel.kernel.execution.cell import only_reads
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.store import config
from ctxkernel.store.trust_registry import content_digest, trust_registry

ROOT = Path(__file__).resolve().parent.parent


# -- sources -----------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file, in a folder that is there."""
    monkeypatch.setattr(config.platformdirs, "user_config_path", lambda *args, **more: tmp_path / "home")
    (tmp_path / "home").mkdir()
    (tmp_path / "notes").mkdir()
    return tmp_path / "home" / config.FILE


def beside(mine: Path) -> Path:
    return mine.parent.parent / "notes" / config.FILE


def read(mine: Path, **env: str) -> config.Configured:
    return config.read_settings(env, beside(mine).parent)


def test_the_nearer_source_wins_and_each_value_knows_where_it_is_from(mine: Path):
    """defaults < the user's file < the one beside the notebook < the environment."""
    mine.write_text("projection_tokens = 8000\nview_tokens = 11\ngroup_tokens = 12\n")
    beside(mine).write_text("view_tokens = 21\ngroup_tokens = 22\n")

    found = read(mine, CTXKERNEL_GROUP_TOKENS="32")

    said = found.settings
    assert (said.projection_tokens, said.view_tokens, said.group_tokens, said.max_tokens) == (8000, 21, 32, 8192)
    assert found.origins == {
        "projection_tokens": str(mine),
        "view_tokens": str(beside(mine)),
        "group_tokens": "CTXKERNEL_GROUP_TOKENS",
    }
    assert not found.notices


def test_the_table_of_the_seed_is_read_as_it_is_written_there(mine: Path):
    """Seed 003 §5."""
    mine.write_text(
        "[context]\nenforce_history_invariants = true\nauto_recover_from_crash = false\n"
        "warn_on_invariant_violations = false\n"
    )
    said = read(mine).settings

    assert said.enforce_history_invariants
    assert not said.auto_recover_from_crash
    assert not said.warn_on_invariant_violations


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("projection_token = 5", "did you mean projection_tokens (a whole number from 1,000 tokens"),
        ("projection_tokens = 'many'", "a whole number from 1,000 tokens to 10,000,000 tokens"),
        ("projection_tokens = 8000.5", "a whole number"),
        ("projection_tokens = true", "a whole number"),
        ("projection_tokens = 1", "from 1,000 tokens"),
        ("message_pairing = 1", "true or false"),
        ("dialect = 'english'", "auto or tools or script"),
        ("model = 'a b'", "a name of letters"),
        ("tolerance = nan", "a number from 0 to 1"),
        ("api_key = 'sk-verysecret'", "a secret is no setting"),
        ("context = 3", "[context]"),
        ("[tool]\nx = 1", "'tool' is not used"),
        ("projection_tokens = ", "is not used"),
        ("\udcff", "is not used"),
        ("x = " + "[" * 100_000, "more than 100 brackets"),
        ("# " + "x" * 2_000_000, "larger than 1,048,576 bytes"),
    ],
)
def test_what_a_file_says_wrongly_is_a_notice_and_the_rest_holds(mine: Path, text: str, told: str):
    """It names the file and what is allowed; no value is repeated."""
    mine.write_text("view_tokens = 11\n")
    beside(mine).write_bytes(text.encode("utf-8", "surrogateescape"))

    found = read(mine, CTXKERNEL_GROUP_TOKENS="32")

    (notice,) = found.notices
    assert str(beside(mine)) in notice
    assert told in notice
    assert "verysecret" not in notice
    assert found.settings == replace(Settings(), view_tokens=11, group_tokens=32)


def test_a_folder_or_a_pipe_of_that_name_is_no_file(mine: Path):
    mine.mkdir()

    assert read(mine) == config.Configured()


def test_a_variable_that_cannot_be_used_is_told(mine: Path):
    """Known doubt: an unusable CTXKERNEL_TOLERANCE was silently the default."""
    found = read(mine, CTXKERNEL_TOLERANCE="much", CTXKERNEL_PROJECTION_TOKEN="1", CTXKERNEL_MODEL=" ")

    assert found.settings == Settings()
    assert [notice.partition(" ")[0] for notice in found.notices] == [
        "CTXKERNEL_PROJECTION_TOKEN",
        "CTXKERNEL_TOLERANCE",
    ]
    assert "a number from 0 to 1" in found.notices[1]


def test_variables_that_are_places_are_no_settings(mine: Path):
    assert not read(mine, **{f"CTXKERNEL_{name}": "x" for name in config.PLACES}).notices


def test_every_variable_that_the_code_reads_is_a_setting_or_a_place():
    named = {
        name
        for path in (ROOT / "ctxkernel").rglob("*.py")
        for name in re.findall(r"CTXKERNEL_([A-Z_]+)", path.read_text(encoding="utf-8"))
    }

    assert {name for name in named if name.lower() not in SPECS} <= config.PLACES | {"X"}


def test_a_file_beside_a_notebook_sets_nothing_for_other_notebooks(mine: Path):
    """A stranger's folder must not make the checkpoints of all sessions be given up."""
    beside(mine).write_text("quota_gb = 0.001\n")

    found = read(mine)

    assert found.settings.quota_gb == 20
    assert "all your notebooks" in found.notices[0]


MATTERING = [name for name, spec in SPECS.items() if spec.matters]


def toml(name: str) -> str:
    """Return a line that sets a setting to another value than its default."""
    default, spec = DEFAULTS[name], SPECS[name]
    if isinstance(default, bool):
        return f"{name} = {str(not default).lower()}\n"
    if isinstance(default, str):
        return f"{name} = '{next((one for one in spec.choices if one not in ('', default)), 'another')}'\n"
    value = spec.least if spec.least != default else spec.most
    return f"{name} = {type(default)(value)!r}\n"


def test_every_setting_that_sends_spends_runs_writes_or_decides_is_named():
    """Those that are left bound what is recorded and displayed."""
    others = {name for name, spec in SPECS.items() if not spec.matters and not spec.personal}
    assert others == {
        *("stream_bytes", "artifact_bytes", "artifacts_bytes", "file_scan_entries", "file_hash_bytes", "repr_chars"),
        *("end_phase_ms", "view_tokens", "group_tokens", "projection_tokens", "variable_rows", "statement_tokens"),
        "recent_tokens",
        *("ready_per_turn", "stall_seconds", "fetch_seconds", "token_limit", "call_depth", "message_pairing"),
    }


@pytest.mark.parametrize("table", ["", "[context]\n"])
def test_a_file_beside_a_notebook_sets_what_matters_only_if_its_content_is_trusted(mine: Path, table: str):
    beside(mine).write_text(table + "".join(map(toml, MATTERING)) + "view_tokens = 21\n")
    home = {"CTXKERNEL_HOME": str(mine.parent / "ctxkernel")}
    found = read(mine, **home)
    assert found.settings == replace(Settings(), view_tokens=21)
    (notice,) = found.notices
    assert f"`ctxkernel trust {beside(mine)}`" in notice
    assert all(name in notice for name in MATTERING)
    assert not any(name in found.origins for name in MATTERING)

    digest = content_digest(beside(mine).read_bytes())
    registry = trust_registry(home)
    assert registry.give("settings", digest, {}) == ""
    trusted = read(mine, **home)
    assert not trusted.notices
    assert all(getattr(trusted.settings, name) != DEFAULTS[name] for name in MATTERING)
    assert read(mine, **home, CTXKERNEL_MODEL="mine").settings.model == "mine"
    registry.revoke("settings", digest)
    assert read(mine, **home, CTXKERNEL_TRUSTED=digest).settings == trusted.settings
    assert read(mine, **home).settings == found.settings

    registry.give("settings", digest, {})
    beside(mine).write_bytes(beside(mine).read_bytes() + b"\n")
    assert read(mine, **home).settings == found.settings


def test_the_users_own_file_sets_what_matters(mine: Path):
    mine.write_text("".join(map(toml, MATTERING)))
    found = read(mine)
    assert not found.notices
    assert all(getattr(found.settings, name) != DEFAULTS[name] for name in MATTERING)


@pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")
@pytest.mark.timeout(10)
@pytest.mark.parametrize("made", ["pipe", "link", "device", "folder"])
def test_a_file_beside_a_notebook_is_a_regular_file_of_its_folder(mine: Path, made: str):
    path = beside(mine)
    (path.parent.parent / "outside").write_text("view_tokens = 5\n")
    if made == "pipe":
        os.mkfifo(path)
    elif made == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if made == "device" else "../outside")
    found = read(mine)
    assert found.settings == Settings()
    (notice,) = found.notices
    assert notice.startswith(f"{path} is not used: it is")


# -- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_allowed_and_its_text_means_it(name: str):
    default = DEFAULTS[name]

    assert checked(name, default) == default
    assert from_text(name, str(default) or "auto") == default
    assert SPECS[name].about
    assert shown(name, default)


@pytest.mark.parametrize("end", ["least", "most"])
@pytest.mark.parametrize("name", [one.name for one in fields(Settings) if type(one.default) is int])
def test_a_projection_can_be_built_at_the_ends_of_every_bound(name: str, end: str):
    value = int(getattr(SPECS[name], end))

    for model in ("claude-sonnet-5-5", "llama"):
        for dialect in SPECS["dialect"].choices:
            ProjectionEngine(replace(Settings(model=model, dialect=dialect), **{name: value}), count_tokens)


@given(st.sampled_from(sorted(DEFAULTS)), st.text(max_size=60))
def test_any_text_is_a_value_or_is_refused(name: str, text: str):
    try:
        value = from_text(name, text)
    except BadPolicy:
        return
    assert checked(name, value) == value


# -- commands ----------------------------------------------------------------------------------------


def ok(kernel: RunningKernel, source: str) -> str:
    ran = kernel.run(source)
    assert ran.status == "ok", ran.error
    return "\n".join(data.get("text/plain", "") for data in ran.data) + ran.stdout


def projection(kernel: RunningKernel) -> dict:
    return json.loads(ok(kernel, "%ctx projection --json"))


def test_a_setting_counts_in_the_projection_of_the_cell_that_sets_it(kernel: RunningKernel):
    kernel.run("x = 1")

    told = ok(kernel, "%ctx config projection_tokens 8_000")

    assert "8,000 tokens, from this session" in told
    assert projection(kernel)["budget"] == 8000
    assert "default auto" in ok(kernel, "%ctx config projection_tokens")
    ok(kernel, "%ctx config model claude-haiku-4-5")
    assert projection(kernel)["request"]["model"] == "claude-haiku-4-5"
    assert "no model that is known here (did you mean claude-opus-5-5?)" in ok(
        kernel, "%ctx config model claude-opsu-5-5"
    )
    assert "from default" in ok(kernel, "%ctx config projection_tokens --reset")
    assert projection(kernel)["budget"] == 32_000


def test_the_history_can_be_spoken_of_in_the_cell_that_sets_something(kernel: RunningKernel):
    kernel.run("x = 1")

    assert "s1.1 is pinned" in ok(kernel, "%ctx config statement_tokens 100\n%ctx pin s1")


def test_what_is_set_stands_in_the_cache_as_before(kernel: RunningKernel):
    """A setting that does not touch the request leaves what a provider has cached."""
    kernel.run("x = 1")
    kernel.run("y = 1")
    kernel.run("%ctx config view_tokens 300")

    blocks = {block["id"]: block["cached"] for block in projection(kernel)["blocks"]}

    assert blocks["s1.1"]
    assert ok(kernel, "view('.').tokens") == "300"


def test_settings_of_every_part_reach_it(kernel: RunningKernel):
    ok(kernel, "%ctx config stream_bytes 2000\n%ctx config repr_chars 20\n%ctx config variable_rows 1")
    ok(kernel, "print('a' * 9000)\nlong = 'b' * 500\nlonger = 'c' * 500")

    assert kernel.evaluate("len(get_ipython().kernel.ctx.loop.log.statement('s2').source) > 0") == "True"
    kept = kernel.evaluate(
        "(lambda run: (len(run.stdout) < 2200, len(run.state_diff.added['long'].repr) <= 20))"
        "(get_ipython().kernel.ctx.loop.log.executions('s2')[-1])"
    )
    assert kept == "(True, True)"
    assert kernel.evaluate("len(get_ipython().kernel.ctx.loop.names.table().rows)") == "1"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("config projection_token 5", "did you mean projection_tokens?"),
        ("config projection_tokens 5", "from 1,000 tokens"),
        ("config projection_tokens many", "a whole number"),
        ("config tolerance 2", "from 0 to 1"),
        ("config view_tokens 1 2", "one value"),
        ("config resume true", "CTXKERNEL_RESUME"),
        ("properties on token=5", "did you mean tokens?"),
        ("properties on tokens", "tokens=20000"),
        ("properties on depth=0", "no limit"),
        ("properties add Nothing", "define a Property"),
        ("properties remove Nothing", "is not one of your properties"),
        ("properties what", "add NAME"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_next_move(shared_kernel: RunningKernel, command: str, told: str):
    ran = shared_kernel.run(f"%ctx {command}")

    assert ran.status == "error"
    assert told in ran.error["evalue"]


def test_looking_at_settings_and_properties_leaves_no_statement():
    assert only_reads("%ctx config\n%ctx config tolerance\n%ctx properties")
    assert not only_reads("%ctx config tolerance 1")
    assert not only_reads("%ctx config tolerance --reset")
    assert not only_reads("%ctx properties on depth=1")


def test_a_kernel_reads_its_files_and_tells_what_it_cannot_use(start_kernel, tmp_path: Path):
    """In the first cell, and in `%ctx config`; the cell itself is well."""
    (tmp_path / config.FILE).write_text("view_tokens = 77\nprojektion_tokens = 1\n")
    kernel = start_kernel(env={"CTXKERNEL_TOLERANCE": "much", "CTXKERNEL_PROJECTION_TOKENS": "9000"})

    first = kernel.run("1")
    second = kernel.run("2")
    listed = ok(kernel, "%ctx config")

    assert first.status == "ok"
    assert "did you mean projection_tokens" in first.stderr
    assert "CTXKERNEL_TOLERANCE is not used: tolerance is a number from 0 to 1" in first.stderr
    assert not second.stderr
    assert re.search(r"view_tokens +77 tokens +\S+ctxkernel\.toml", listed)
    assert re.search(r"projection_tokens +9,000 tokens +CTXKERNEL_PROJECTION_TOKENS", listed)
    assert "notice: CTXKERNEL_TOLERANCE" in listed
    assert projection(kernel)["budget"] == 9000


def test_what_was_set_is_there_when_the_session_goes_on(start_kernel, tmp_path: Path):
    """Settings and own properties; what was reset is not."""
    first = start_kernel(tmp_path)
    first.run(HIDE)
    ok(first, "%ctx config view_tokens 77\n%ctx config group_tokens 5\n%ctx config group_tokens --reset")
    ok(first, "%ctx properties on depth=3")
    ok(first, "%ctx properties add Hide")
    first.run("hidden_plan = 'hunter2'")
    first.stop()

    second = start_kernel(tmp_path)
    assert kernel_setting(second, "view_tokens") == "2000"
    ok(second, "%ctx resume")

    assert kernel_setting(second, "view_tokens") == "77"
    assert kernel_setting(second, "group_tokens") == "500"
    listed = ok(second, "%ctx properties")
    assert re.search(r"ToolCallDepth +on, 3", listed)
    assert re.search(r"Hide +on, yours", listed)
    assert "hidden_plan" not in blocks_text(second)


def kernel_setting(kernel: RunningKernel, name: str) -> str:
    return kernel.evaluate(f"get_ipython().kernel.ctx.settings.{name}")


# -- properties --------------------------------------------------------------------------------------

# A user's own property, in a notebook: fifteen lines.
HIDE = """
from ctxkernel.history.invariants import Property

class Hide(Property):
    '''A statement that names hunter2 is not shown.'''

    def enforce(self, events, source):
        return [event for event in events if 'hunter2' not in getattr(event, 'source', '')]

    def manipulation_indices(self, events):
        return range(len(events) + 1)
"""


def blocks_text(kernel: RunningKernel) -> str:
    return "\n".join(block["text"] for block in projection(kernel)["blocks"] if block["kind"] == "statement")


def test_a_property_of_ones_own_is_added_in_fifteen_lines(kernel: RunningKernel):
    """It works on what was and what comes, says why something is not there, and goes again."""
    kernel.run("a = 'hunter2'")
    assert "hunter2" in blocks_text(kernel)

    told = ok(kernel, f"{HIDE}\n%ctx properties add Hide")

    assert len(HIDE.strip().splitlines()) <= 14  # and the line that adds it
    assert "Condensations" not in told
    assert re.search(r"Hide +on, yours +A statement that names hunter2 is not shown", told)
    kernel.run("b = 'hunter2 again'")
    kernel.run("c = 'plain'")
    told = blocks_text(kernel)
    assert "a = 'hunter2'" not in told
    assert "again" not in told
    assert "plain" in told
    assert "left out by a property: Hide" in ok(kernel, "%ctx why not s1")
    assert projection(kernel)["report"]["ok"]
    ok(kernel, "%ctx properties remove Hide")
    assert "hunter2 again" in blocks_text(kernel)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise ValueError('oh')", "ValueError: oh"),
        ("raise SystemExit", "SystemExit"),
        ("return [1]", "gave a int"),
        ("return None", "TypeError"),
        (
            "events.clear(); import os, signal; os.kill(os.getpid(), signal.SIGINT); __import__('time').sleep(9)",
            "Keyboard",
        ),
    ],
)
def test_a_property_that_fails_later_is_off_and_the_cell_is_well(kernel: RunningKernel, fault: str, told: str):
    kernel.run("a = 1")
    source = HIDE.replace("        return [", "        if bad: " + fault + "\n        return [")
    ok(kernel, f"bad = False\n{source}\n%ctx properties add Hide")

    ran = kernel.run("bad = True\nprint('mine')")

    assert ran.status == "ok"
    assert ran.stdout == "mine\n"
    assert "the property Hide is off" in ran.stderr
    assert told in ran.stderr
    assert "a = 1" in blocks_text(kernel)
    assert "Hide" not in ok(kernel, "%ctx properties")
    assert kernel.run("bad = 1").stderr == ""
    refused = kernel.run("%ctx properties add Hide")
    assert refused.status == "error"


def test_a_property_is_tried_before_it_is_taken(kernel: RunningKernel):
    kernel.run("class Half:\n    def enforce(self, events, source): return events")
    kernel.run(
        "needs = type('Needs', (__import__('ctxkernel').history.invariants.Property,), {'__init__': lambda s, x: None})"
    )

    half = kernel.run("%ctx properties add Half")
    needs = kernel.run("%ctx properties add needs")

    assert "no validate and no manipulation_indices" in half.error["evalue"]
    assert "TypeError" in needs.error["evalue"]


def test_the_extensions_are_switched_and_shown_in_their_place(kernel: RunningKernel):
    for number in range(8):
        kernel.run(f"x{number} = {'y' * 400!r}")
    whole = len(blocks_text(kernel))

    ok(kernel, "%ctx properties on tokens=400 depth=3 message_pairing")
    listed = ok(kernel, "%ctx properties")

    names = re.findall(r"(?m)^\d+ +(\w+) +(on|off)", listed)
    assert [name for name, _ in names] == [
        *("ObservationUniqueness", "ToolCallMatching", "BatchAtomicity", "ToolCallDepth", "ResultAdjacency"),
        *("ToolLoopAtomicity", "Condensations", "MessagePairing", "TokenLimit"),
    ]
    assert {state for _, state in names} == {"on"}
    assert len(blocks_text(kernel)) < whole
    assert "left out by a property: TokenLimit" in ok(kernel, "%ctx why not s1")
    assert projection(kernel)["report"]["ok"]
    assert len(re.findall("off", ok(kernel, "%ctx properties off tokens depth message_pairing"))) == 3
    assert len(blocks_text(kernel)) > whole


def test_a_property_that_takes_half_a_batch_away_leaves_the_history_sound():
    """What stands before it is enforced again on what it leaves."""
    from histories import call, result

    class NoResults(Property):
        def enforce(self, events, source):
            return [event for event in events if event.place != "result"]

    events = [HumanStatement("s1.1", "s1", "x"), call("c1"), result("c1")]
    before = [one for one in PROPERTIES if type(one).__name__ != "Condensations"]
    own = OwnProperty("NoResults", NoResults(), before)

    view = HistoryView(events, properties=(*PROPERTIES, own))

    assert [event.event_id for event in view.events] == ["s1.1"]
    assert not own.fault


def test_a_property_that_does_not_come_to_rest_is_refused():
    class Shorter(Property):
        def enforce(self, events, source):
            return events[1:]

    with pytest.raises(BadPolicy, match="must not change its own result"):
        OwnProperty("Shorter", Shorter(), ()).attempt([HumanStatement(f"s{n}.1", f"s{n}", "x") for n in range(3)])


@pytest.mark.parametrize("gaps", [[-1], [9], ["a"], [1.5]])
def test_gaps_that_are_none_are_a_fault(gaps: list):
    class Strange(Property):
        def manipulation_indices(self, events):
            return gaps

    own = OwnProperty("Strange", Strange(), ())

    assert list(own.manipulation_indices([HumanStatement("s1.1", "s1", "x")])) == [0, 1]
    assert own.fault


# -- completion and documentation --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("%ctx config ", "projection_tokens"),
        ("%ctx config dialect ", "script"),
        ("%ctx config message_pairing ", "true"),
        ("%ctx config model ", "claude-opus-5-5"),
        ("%ctx config summary_model ", "claude-haiku-5-5"),
        ("%ctx config summary_model ", "extractive"),
        ("%ctx config tolerance ", "--reset"),
        ("%ctx properties ", "add"),
        ("%ctx properties on ", "depth="),
        ("%ctx properties off ", "tokens"),
        ("%ctx properties add ", "Mine"),
    ],
)
def test_names_and_values_are_completed(line: str, some: str):
    class Mine(Property):
        pass

    space = {"Mine": Mine, "Property": Property, "x": 1}
    ctx = SimpleNamespace(configuration=SimpleNamespace(own={}), shell=SimpleNamespace(user_ns=space))
    words = line.split()

    found = configuration.complete_setting(ctx, words[1], words)  # type: ignore[arg-type]

    assert some in found
    assert "Property" not in found


def test_the_page_on_settings_names_every_one_with_default_and_unit():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]+) \| ([^|]*) \|", page)

    assert [(name, default.strip(), about.strip()) for name, default, about in rows] == [
        (name, shown(name, DEFAULTS[name]), spec.about) for name, spec in SPECS.items()
    ]
