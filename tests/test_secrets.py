"""No secret gets out: 90 kinds of credentials in every place, values that are known, and ordinary texts that stay.

The first part runs a real kernel, and reads all that it wrote, sent and showed.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from credentials import ISSUED, OPAQUE, made, tails
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import RunningKernel, starter
from scale import examples, share

import ctxkernel
from ctxkernel.cli import main
from ctxkernel.core.timeline import NamespaceDiff
from ctxkernel.kernel.execution.secret_values import SecretValues
from ctxkernel.projection.known_values import is_secret_value, names_secret
from ctxkernel.projection.masker import Masker
from ctxkernel.projection.secrets import fits_masked, mask
from ctxkernel.projection.value import Projection

# -- every kind in every place -----------------------------------------------------------------------

PLACES = (
    *("source", "stdout", "stderr", "error", "note", "variable", "frame", "file", "environment", "url", "connection"),
    *("late", "html", "json", "command", "refusal", "handle"),
)
BATCH = 23


class Evidence:
    """All that a kernel wrote, sent and showed in its own name."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, where: str, text: str) -> None:
        """Add a text that no secret may be in."""
        self.texts[where] = self.texts.get(where, "") + text + "\n"

    def found(self, credential: str) -> list[str]:
        """Return where a part of a credential is."""
        return [where for where, text in self.texts.items() for part in tails(credential) if part in text]


def batches() -> list[list[str]]:
    kinds = share(ISSUED, len(ISSUED))
    return [kinds[at : at + BATCH] for at in range(0, len(kinds), BATCH)]


def run_batch(kernel: RunningKernel, number: int, kinds: list[str], evidence: Evidence) -> None:
    """Let the kinds stand in all places, in cells of this kernel."""

    def run(source: str, *, ours: bool = False) -> None:
        ran = kernel.run(source)
        for output in ran.outputs:
            if output["type"] == "execute_input":  # the user's own text
                continue
            told = json.dumps(output, ensure_ascii=False)
            if output["type"] == "comm_msg":
                evidence.add("panel", told)
            elif ours or "ctxkernel" in told:
                evidence.add(f"notebook, of {source[:40]!r}", told)

    def of(place: str) -> dict[str, str]:
        return {kind: made(ISSUED[kind], place) for kind in kinds}

    given = {place: of(place) for place in PLACES}
    (kernel.folder / f"given{number}.json").write_text(json.dumps(given), "utf-8")
    (kernel.folder / f"config{number}.txt").write_text("".join(f"{one}\n" for one in given["file"].values()), "utf-8")
    literals = "\n".join(f"# {n}: {one!r}\nc{n} = {one!r}" for n, one in enumerate(given["source"].values()))
    run(f"{literals}\n'''\n" + "\n".join(given["source"].values()) + "\n'''")
    run("import json, sys, os, pandas as pd\nfrom IPython.display import display")
    run(f"given = json.load(open('given{number}.json'))")
    run("for one in given['stdout'].values(): print('using', one, 'now')\nprint(list(given['stdout'].values()))")
    run("for one in given['stderr'].values(): print(f'warning: {one}.', file=sys.stderr)")
    run(
        "fault = ValueError('\\n'.join(given['error'].values()))\n"
        "for one in given['note'].values(): fault.add_note(one)\n"
        "raise fault"
    )
    run(f"v{number} = list(given['variable'].values())\nw{number} = v{number}[0]")
    run("df = pd.DataFrame({'c': [one[:200] for one in given['frame'].values()]}); df")
    run("pd.set_option('display.max_colwidth', None); df")
    run(f"h{number} = view('config{number}.txt', tokens=4000)\nh{number}", ours=True)
    run(f"show(h{number}); h{number}.render(lod=0)", ours=True)
    run(
        "for n, one in enumerate(given['environment'].values()): os.environ[f'THING{n}'] = one\n"
        "print({name: one for name, one in os.environ.items() if name.startswith('THING')})"
    )
    run("for one in given['url'].values(): print(f'https://h.org/?q=a%3D{one}&x=1', f'https://u:{one}@h.org/a')")
    run("for one in given['connection'].values(): print(f'Server=tcp:h;Thing={one};Password={one};Encrypt=yes')")
    run(
        "import threading, time\n"
        "def later():\n    time.sleep(0.15)\n    for one in given['late'].values(): print('late', one)\n"
        "threading.Thread(target=later).start()"
    )
    time.sleep(0.4)
    run("display({'text/html': ''.join(f'<td>{one}</td>' for one in given['html'].values())}, raw=True)")
    run("display({'application/json': given['json'], 'text/plain': repr(given['json'])}, raw=True)")
    run(
        "for one in given['command'].values():\n"
        "    try: get_ipython().run_line_magic('ctx', f'redact s2 a note on {one.splitlines()[0]}')\n"
        "    except Exception as fault: print(fault)",
        ours=True,
    )
    run(f"%ctx {given['refusal'][kinds[0]]}", ours=True)
    run(f"view('https://user:{given['refusal'][kinds[1]]}@localhost:1/a')", ours=True)
    run(f"t{number} = note('\\n'.join(given['handle'].values()))\nt{number}", ours=True)
    run("ls()", ours=True)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Evidence, RunningKernel]]:
    """A kernel in which every kind stood in every place, and all that it wrote and sent."""
    folder = tmp_path_factory.mktemp("secrets")
    evidence = Evidence()
    (folder / "note.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "utf-8")
    environment = {name: made(formula, "environment") for name, formula in OPAQUE.items()}
    gen = starter(folder)
    kernel = next(gen)(folder, env=environment)
    message = kernel.client.session.msg(
        "comm_open", {"comm_id": "p", "target_name": "ctxkernel.panel", "data": {"protocol": 1}}
    )
    kernel.client.shell_channel.send(message)
    opaque(kernel, evidence)
    for number, kinds in enumerate(batches()):
        run_batch(kernel, number, kinds, evidence)
        evidence.add("projection", kernel.run("%ctx projection --json").stdout)
    for command in ("timeline --json", "timeline 500", "status", "show 3", "branches", "cost"):
        ran = kernel.run(f"%ctx {command}")
        evidence.add(f"%ctx {command}", json.dumps(ran.outputs, ensure_ascii=False))
    read_files(folder, evidence)
    yield evidence, kernel
    for _ in gen:
        pass


def opaque(kernel: RunningKernel, evidence: Evidence) -> None:
    """Show the kinds that only a name tells, in forms in which they really occur."""
    names = list(OPAQUE)
    for source in (
        "import os, json, base64, urllib.parse, html, pandas as pd",
        f"names = {names!r}",
        "for name in names: print(os.environ[name])",
        "for name in names: print(repr(os.environ[name]), json.dumps(os.environ[name]), [os.environ[name]])",
        "for name in names: print(urllib.parse.quote(os.environ[name], safe=''), html.escape(os.environ[name]))",
        "for name in names: print(base64.b64encode(f'mike:{os.environ[name]}'.encode()).decode())",
        "pd.DataFrame({'a': [os.environ[name] for name in names]})",
        "raise RuntimeError(' '.join(os.environ[name] for name in names))",
        "open('dump.txt', 'w').write('\\n'.join(os.environ[name] for name in names)); d = view('dump.txt'); d",
        "copy = [os.environ[name] for name in names]",
    ):
        for output in kernel.run(source).outputs:
            if output["type"] == "comm_msg" or "ctxkernel" in json.dumps(output):
                evidence.add("panel or notebook", json.dumps(output, ensure_ascii=False))


def read_files(folder: Path, evidence: Evidence) -> None:
    """Add what is in the session file: every table, and the bytes with those of the write-ahead log."""
    for path in (folder / ".ctxkernel").rglob("*"):
        if path.is_file():
            evidence.add(f"bytes of {path.name}", path.read_bytes().decode("latin-1"))
    (session,) = (folder / ".ctxkernel").glob("*.sqlite")
    with sqlite3.connect(f"file:{session}?mode=ro", uri=True) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f"SELECT * FROM {table}"):
                evidence.add(f"table {table}", " ".join(map(str, row)))


@pytest.mark.parametrize("place", PLACES)
def test_no_kind_of_credential_gets_out_of_a_place(told: tuple[Evidence, RunningKernel], place: str):
    evidence, _ = told
    found = {kind: where for kind, one in ISSUED.items() if (where := evidence.found(made(one, place)))}

    assert not found


@pytest.mark.parametrize("name", OPAQUE)
def test_a_value_of_the_environment_gets_out_in_no_form(told: tuple[Evidence, RunningKernel], name: str):
    import base64
    import html
    import urllib.parse

    evidence, _ = told
    value = made(OPAQUE[name], "environment")
    forms = [value, urllib.parse.quote(value, safe=""), html.escape(value), json.dumps(value)[1:-1]]
    forms.append(base64.b64encode(f"mike:{value}".encode()).decode().rstrip("=")[8:-4])
    assert [where for where, text in evidence.texts.items() for form in forms if form in text] == []


def test_the_corpus_is_of_sixty_kinds_and_was_really_there(told: tuple[Evidence, RunningKernel]):
    evidence, kernel = told

    assert len(ISSUED) >= 60
    assert len(PLACES) >= 8
    assert "[masked: SendGrid key]" in evidence.texts["table endings"]
    assert "[masked: value of WANDB_API_KEY]" in evidence.texts["table endings"]
    assert "[masked: " in evidence.texts["panel"]
    assert "[masked: " in evidence.texts["projection"]
    assert {"table statements", "table late_output", "table blocks", "table node_states"} <= set(evidence.texts)
    assert len(kernel.run("print(given['stdout'])").stdout) > 200  # and the user's own output is whole
    assert "[masked" not in kernel.run("print(given['stdout'])").stdout


def test_the_commands_in_a_terminal_show_none(told: tuple[Evidence, RunningKernel], capsys: pytest.CaptureFixture[str]):
    _, kernel = told
    notebook = str(kernel.folder / "note.ipynb")

    assert main(["timeline", notebook, "--json"]) == 0
    assert main(["timeline", notebook]) == 0
    assert main(["projection", notebook, "--json"]) == 0

    shown = capsys.readouterr().out
    for place in PLACES:
        for formula in ISSUED.values():
            assert not [part for part in tails(made(formula, place)) if part in shown]


# -- known values ------------------------------------------------------------------------------------

VALUE = made("{A12}!%&{A6}", "value")
PLAIN_VALUE = made("{A20}", "plain")
CELLS = [
    ("api_key = {0}; service_password = {0}", "x = {0}"),
    ("settings = {{'a': [1, {{'service': {{'client_secret': {0}}}}}]}}", "print({0})"),
    ("class Config:\n    def __init__(self): self.auth_token = {0}\nconfig = Config()", "print({0})"),
    ("import os; os.environ['APP_SECRET'] = {0}", "print(os.environ['APP_SECRET'])"),
    ("%env APP_SECRET={1}", "import os\nprint(os.environ['APP_SECRET'])"),
    ("import types; box = types.SimpleNamespace(db_password={0})", "box.db_password"),
    ("connect = print\nconnect(password={2!r})", "print({0})"),
    ("secret_bytes = {0}.encode()", "print({0})"),
    ("dsn = 'postgres://me:' + {0} + '@host/db'", "print(dsn)"),
]


def literal(value: str) -> str:
    """Return an expression for a value that does not contain it."""
    return f"({value[:7]!r} + {value[7:]!r})"


@pytest.mark.parametrize(("binds", "shows"), CELLS)
def test_a_value_that_a_name_makes_a_secret_is_masked_from_then_on(kernel: RunningKernel, binds: str, shows: str):
    value = PLAIN_VALUE if "{1}" in binds or "dsn" in binds else VALUE
    words = literal(value), value, value

    kernel.run(binds.format(*words))
    kernel.run(shows.format(*words))
    kernel.run(f"print('again', {literal(value)}); open('f.txt', 'w').write({literal(value)}); view('f.txt')")

    evidence = Evidence()
    evidence.add("projection", kernel.run("%ctx projection --json").stdout)
    evidence.add("timeline", kernel.run("%ctx timeline --json").stdout)
    read_files(kernel.folder, evidence)
    assert [where for where, text in evidence.texts.items() if value in text] == []


def test_what_the_user_types_into_a_hidden_field_is_a_secret(kernel: RunningKernel):
    typed = made("{A14}", "typed")
    token = made("{A15}", "asked")
    kernel.run("import getpass; n = len(getpass.getpass())", answer=typed)
    kernel.run("m = len(input('Your API token: '))", answer=token)

    kernel.run(f"print({literal(typed)}, {literal(token)})")

    shown = kernel.run("%ctx projection --json").stdout
    assert typed not in shown
    assert token not in shown
    assert "[masked: value of token]" in shown


@settings(max_examples=examples(200), deadline=None)
@given(st.text(st.characters(), min_size=8, max_size=40))
def test_any_value_can_be_learned_and_is_masked(value: str):
    masker = Masker()

    learned = masker.learn("password", value)

    if learned and not value.strip().isalpha():
        assert value.strip() not in masker(f"it is {value} here")


def test_two_sessions_share_no_values():
    one, other = Masker(), Masker()
    one.learn("api_key", PLAIN_VALUE)

    assert PLAIN_VALUE not in one(f"it is {PLAIN_VALUE}")
    assert other(f"it is {PLAIN_VALUE}") == f"it is {PLAIN_VALUE}"


SECRET_NAMES = (
    "password db_pass API_KEY apiKey token key HF_TOKEN OPENAI_API_KEY client_secret github_token pw credentials"
)
OTHER_NAMES = (
    "sort_key pad_token secret_name SSH_AUTH_SOCK tokenizer max_tokens keys primary_key next_token DATABASE_URL passed "
    "compass password_file token_type"
)


def test_names_that_say_secret_and_names_that_do_not():
    assert [name for name in SECRET_NAMES.split() if not names_secret(name)] == []
    assert [name for name in OTHER_NAMES.split() if names_secret(name)] == []


ORDINARY = [
    "OPENAI_API_KEY",
    "<pad>",
    "None",
    "12345",
    "1",
    "true",
    "postgres",
    "/usr/lib/x",
    "${TOKEN}",
    "your-api-key-1",
    "pad",
    "0.25",
    "me",
]


@pytest.mark.parametrize("value", ORDINARY)
def test_an_ordinary_value_is_no_secret_whatever_its_name(value: str):
    assert not is_secret_value(value, "strong")


@pytest.mark.parametrize("value", ["international", "feature_12", "layer1.weight", "customer_id_2024", "the next word"])
def test_a_word_under_a_name_that_may_say_secret_is_none(value: str):
    assert not is_secret_value(value, "weak")


def test_the_environment_at_the_start_counts_but_for_paths_flags_and_users(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_API_KEY", PLAIN_VALUE)
    monkeypatch.setenv("SOME_TOKEN", "1")
    monkeypatch.setenv("MY_SECRET", "/run/secrets/x1")
    monkeypatch.setenv("USER_PASSWORD", "postgres")
    masker = Masker()

    SecretValues(masker=masker, namespace={}).start()

    text = f"1 /run/secrets/x1 postgres {PLAIN_VALUE}"
    assert masker(text) == "1 /run/secrets/x1 postgres [masked: value of WANDB_API_KEY]"


def test_a_variable_that_is_still_being_compared_is_read_for_secrets():
    masker = Masker()
    secrets = SecretValues(masker=masker, namespace={"late": {"api_key": PLAIN_VALUE}}, open_names=lambda: ["late"])

    secrets.after_cell(NamespaceDiff(incomplete="still being compared: late"), False)

    assert PLAIN_VALUE not in masker(f"x {PLAIN_VALUE}")


def test_reading_a_variable_runs_no_code_of_the_user():
    class Odd(dict[str, Any]):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def items(self) -> Any:
            raise AssertionError

        def __len__(self) -> int:
            raise AssertionError

    masker = Masker()
    odd = Odd(api_key=PLAIN_VALUE)

    SecretValues(masker=masker, namespace={"odd": [odd]}).after_cell(NamespaceDiff(), True)

    assert PLAIN_VALUE not in masker(f"x {PLAIN_VALUE}")


@pytest.mark.parametrize(
    ("masked", "text", "fits"),
    [
        ("a", "a", True),
        ("x = '[masked]'", "x = 'hunter22'", True),
        ("x = '[masked: value of x]'; print(1)", "x = 'hunter22'; print(1)", True),
        ("x = '[masked]'; y = '[masked]'", "x = 'a1'; y = 'b2'", True),
        ("x = '[masked]'; print(1)", "x = 'hunter22'; print(2)", False),
        ("x = '[masked]'", "y = 'hunter22'", False),
        ("x = '[masked]'", "x = ''", False),
        ("[masked][masked]", "ab", True),
    ],
)
def test_a_masked_source_is_compared_with_the_cell_that_it_was(masked: str, text: str, fits: bool):
    assert fits_masked(masked, text) is fits


def test_the_values_of_a_column_are_secrets_if_its_name_says_so():
    import pandas

    frame = pandas.DataFrame({"user": ["mike", "anna"], "password": [PLAIN_VALUE, "correct-horse"]})
    masker = Masker()

    SecretValues(masker=masker, namespace={"df": frame}).read_names(["df"])

    assert masker(f"mike {PLAIN_VALUE} correct-horse") == "mike [masked: value of password] [masked: value of password]"


# -- laws --------------------------------------------------------------------------------------------


def test_what_was_sent_stays_and_what_is_sent_later_masks_a_value_that_became_known(kernel: RunningKernel):
    """The stored projection is the one that was made; from the cell on that binds the name, none shows the value."""
    from ctxkernel.store.log.reader import SessionReader

    kernel.run(f"print({PLAIN_VALUE!r})")
    before = json.loads(kernel.run("%ctx projection --json").stdout)
    kernel.run(f"service_password = {literal(PLAIN_VALUE)}")
    after = json.loads(kernel.run("%ctx projection --json").stdout)
    kernel.run("pass")
    kernel.manager.shutdown_kernel()

    assert PLAIN_VALUE in json.dumps(before["request"])
    assert PLAIN_VALUE not in json.dumps(after["request"])
    (session,) = (kernel.folder / ".ctxkernel").glob("*.sqlite")
    with SessionReader(session) as reader:
        stored = [one for _, _, one in reader.stored_projections() if isinstance(one, Projection)]
    assert [one.receipt for one in stored][:2] == [before["receipt"], after["receipt"]]
    assert [PLAIN_VALUE.encode() in one.request_bytes for one in stored] == [True, False, False]


WORDS = [
    "token",
    "password",
    "=",
    ":",
    "'",
    '"',
    "…",
    "...",
    " ",
    "\n",
    "\\",
    "sk-",
    "ghp_",
    "://",
    "@",
    "[masked: x]",
    "a1b2c3d4e5f6",
    "-----BEGIN PRIVATE KEY-----",
]
any_text = st.text(max_size=120) | st.lists(
    st.sampled_from([*WORDS, PLAIN_VALUE, PLAIN_VALUE[:9], VALUE]), max_size=12
).map("".join)


@settings(max_examples=examples(400), deadline=None)
@given(any_text)
def test_masking_with_known_values_is_idempotent_and_never_raises(text: str):
    masker = Masker()
    masker.learn("api_key", PLAIN_VALUE)
    masker.learn("password", VALUE)

    once = masker(text)

    assert masker(once) == once
    assert PLAIN_VALUE not in once
    assert VALUE not in once


@settings(max_examples=examples(200), deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_a_text_without_secrets_is_the_same_object(text: str):
    masker = Masker()
    masker.learn("api_key", PLAIN_VALUE)
    if mask(text) == text:
        assert masker(text) is text


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 200), st.integers(1, 80), st.sampled_from(["…", "...", "\n[... 1,234 bytes cut ...]\n", ""]))
def test_no_cut_reveals_a_known_value(before: int, kept: int, mark: str):
    """Wherever a text is cut, less than eight characters of a value are left in it."""
    masker = Masker()
    masker.learn("api_key", PLAIN_VALUE)
    text = "x " * (before // 2) + PLAIN_VALUE + " y" * 40
    at = before // 2 * 2 + min(kept, len(PLAIN_VALUE) - 1)

    for part in (text[:at] + mark, mark + text[at:]):
        shown = masker(part)
        assert not [n for n in range(len(PLAIN_VALUE) - 7) if PLAIN_VALUE[n : n + 8] in shown]


def test_a_value_in_two_messages_of_late_output_is_masked(kernel: RunningKernel):
    kernel.run(f"service_password = {literal(PLAIN_VALUE)}")
    kernel.run(
        "import threading, time, sys\n"
        "def later():\n    time.sleep(0.2)\n    sys.stdout.write(service_password[:5]); sys.stdout.flush()\n"
        "    time.sleep(0.3); sys.stdout.write(service_password[5:]); sys.stdout.flush()\n"
        "threading.Thread(target=later).start()"
    )
    time.sleep(1)
    kernel.run("pass")
    evidence = Evidence()
    read_files(kernel.folder, evidence)

    assert [where for where, text in evidence.texts.items() if PLAIN_VALUE[5:] in text] == []


HOSTILE = [
    "token=abc123def ",
    "password: ",
    "eyJ",
    "://a:",
    "-----BEGIN PRIVATE KEY-----\n",
    "sk-",
    "sk-a1",
    "SG.",
    "$2b$",
    "a.",
    "--token ",
    "<password>",
    "\\n",
    "%3D",
    "…",
    "key",
    "_key=",
    PLAIN_VALUE[:8],
    PLAIN_VALUE,
    "\x1b[1m",
    "A" * 9 + ":AA",
]


@pytest.mark.scaled
@pytest.mark.parametrize("text", share(HOSTILE, 4))
def test_masking_a_megabyte_takes_less_than_a_second(text: str):
    masker = Masker()
    masker.learn("api_key", PLAIN_VALUE)
    long = text * (1_000_000 // len(text))

    best = min(timed(masker, long + str(n)) for n in range(2))

    assert best < 1.0


def timed(masker: Masker, text: str) -> float:
    start = time.process_time()
    masker(text)
    return time.process_time() - start


# -- source ------------------------------------------------------------------------------------------

MASKED_SOURCES = [
    "print('password=hunter22pw')",
    '"""DB_PASSWORD=hunter22pw"""',
    "f'password=hunter22pw {x}'",
    "# token: hunter22pw",
    "export API_KEY=hunter22pw",
    "password: hunter22pw",
    '{"client_secret": "hunter22pw"}',
    'secret_key = "hunter22pw"',
    "Server=h;Database=d;Uid=me;Pwd=hunter22pw;",
    "curl -u me:hunter22pw https://h.org",
    'curl -H "X-Api-Key: hunter22pw" https://h.org',
    'curl -H "Authorization: token hunter22pwhunter22pw"',
    "!tool --password hunter22pw",
    "CREATE USER me IDENTIFIED BY 'hunter22pw'",
    "machine h.org login me password hunter22pw",
    "<password>hunter22pw</password>",
    "AccountName=x;AccountKey=hunter22pw==;EndpointSuffix=y",
    "https://x.blob.org/a?sig=hunter22pw&se=1",
]
KEPT_SOURCES = [
    "token = next(tokens)",
    "password = getpass()",
    "key = df.columns[0]",
    "max_tokens=2000",
    "connect(password=password, api_key=self.api_key or other)",
    "model(pad_token=tokenizer.pad_token)",
    "api_key = os.environ['OPENAI_API_KEY']",
    "for key, value in d.items(): print(key, value)",
    "headers = {'Authorization': f'Bearer {token}'}",
    "basic understanding of bearer",
    "commit 3f2a9c1e5d6b7a8f9e0d1c2b3a4f5e6d7c8b9a0f",
    "id = '0b7f3c1e-9a52-4f0e-8c1d-2e3f4a5b6c7d'",
    "<img src='data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk'>",
    "sort(key=lambda row: row.token)",
    "{'PWD': '/home/me/work', 'OLDPWD': '/home/me'}",
    "cell id 8f14e45fceea167a",
]


@pytest.mark.parametrize("source", MASKED_SOURCES)
def test_a_credential_in_a_source_is_masked(source: str):
    assert "hunter22pw" not in mask(source)
    assert mask(mask(source)) == mask(source)


@pytest.mark.parametrize("source", KEPT_SOURCES)
def test_ordinary_code_stays(source: str):
    assert mask(source) is source


@pytest.mark.parametrize("kind", ISSUED)
def test_a_credential_is_recognised_beside_anything(kind: str):
    for seed in range(5):
        one = made(ISSUED[kind], seed)
        for text in (
            "using {} now",
            "'{}'",
            'x = "{}"\n',
            "a\\n{}",
            "q=a%3D{}",
            "<td>{}</td>",
            "[{}]",
            "e: {}.",
            "\x1b[31m{}\x1b[0m",
        ):
            shown = mask(text.format(one))
            assert not [part for part in tails(one) if part in shown], text
            assert mask(shown) == shown


# -- what the user is told, and allows -------------------------------------------------------------------


def test_a_mask_says_what_it_hid_and_the_cell_says_once_how_to_show_it(kernel: RunningKernel):
    key = made(ISSUED["SendGrid"], "told")
    first, second = kernel.run(f"print({key!r})"), kernel.run(f"print({key!r}, 1)")
    status = kernel.run("%ctx status").data[0]["text/plain"]

    assert '%ctx allow "SendGrid key"' in first.stderr
    assert second.stderr == ""
    assert key not in first.stderr + status
    assert "SendGrid key" in status


def test_what_is_allowed_is_shown_until_that_is_taken_back(kernel: RunningKernel):
    kernel.run(f"service_password = {PLAIN_VALUE!r}")
    hidden = kernel.run("%ctx projection --json").stdout

    kernel.run("%ctx allow service_password")
    shown = kernel.run("%ctx projection --json").stdout
    kernel.run("%ctx allow service_password --off")
    again = kernel.run("%ctx projection --json").stdout

    assert PLAIN_VALUE not in hidden
    assert PLAIN_VALUE in shown
    assert PLAIN_VALUE not in again
    assert "no such name" in kernel.run("%ctx allow nothing").error["evalue"]
    matches = kernel.client.complete("%ctx allow serv", 15, reply=True, timeout=20)["content"]["matches"]
    assert "service_password" in matches


# -- texts that stay -----------------------------------------------------------------------------------


def notebooks() -> list[Path]:
    """Return ten notebooks that stand in this repository, the largest ones."""
    root = Path(ctxkernel.__file__).parents[1]
    found = [*root.glob("notebooks/*.ipynb"), *root.glob("tests/notebooks/*.ipynb")]
    return sorted(found, key=lambda one: -one.stat().st_size)[:10]


def lines_of(path: Path) -> list[str]:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    for cell in cells:
        for output in cell.get("outputs", ()):
            plain = output.get("text") or output.get("data", {}).get("text/plain", "")
            texts.append("".join(plain) if isinstance(plain, list) else str(plain))
    return [line for text in texts for line in text.splitlines()]


def test_hardly_a_line_of_ten_notebooks_and_of_installed_packages_is_masked(record_property: Any):
    import numpy
    import pandas

    sources = [one for package in (numpy, pandas, pytest) for one in Path(package.__file__).parent.rglob("*.py")]
    found = notebooks()
    lines = [line for path in found for line in lines_of(path)]
    code = [line for path in share(sources, 150) for line in path.read_text("utf-8").splitlines()]

    masked = [line for line in lines if mask(line) is not line]
    masked_code = [line for line in code if mask(line) is not line]

    print(f"{len(masked)} of {len(lines)} lines of notebooks, {len(masked_code)} of {len(code)} lines of packages")
    assert len(found) == 10
    assert len(masked) * 1000 <= len(lines)
    assert len(masked_code) * 1000 <= len(code)


def test_keys_of_mappings_are_masked_too():
    from ctxkernel.store.log.row_masking import mask_for, masked_json

    key = made(ISSUED["GitHub"], "key")
    for value in ({key: 1}, {"a": {key: {"b": 2}}}, [{key: "x"}]):
        found = mask_for((value,), mask)
        assert key not in json.dumps(masked_json(value, found))


BOUND = {
    "a value that begins with x": ("db_password = 'xK9mP2qLw8Zt'", "xK9mP2qLw8Zt"),
    "a value that begins with a dollar sign": ("password = '$ecure99Pass'", "$ecure99Pass"),
    "a value that begins with a slash": ("aws_secret_access_key = '/Xq7rT9uPPPdd8s7d6f5'", "/Xq7rT9uPPPdd8s7d6f5"),
    "a value with the word for itself in it": ("header = {'X-Api-Key': 'xapikeyval111'}", "xapikeyval111"),
    "a passphrase": ("password = 'correct horse battery staple'", "correct horse battery staple"),
    "a list": ("PASSWORDS = ['listPw111222']", "listPw111222"),
    "a column": ("data = {'user': ['a'], 'password': ['annPwFrame11']}", "annPwFrame11"),
    "an option of a command": ("command = ['x', '--api-key', 'argvKey112233']", "argvKey112233"),
    "an argument": ("connect = dict(password='kwPass998877')", "kwPass998877"),
    "an attribute": ("settings.password = 'attrPw445566'", "attrPw445566"),
}


@pytest.mark.parametrize(("source", "value"), BOUND.values(), ids=BOUND.keys())
def test_what_a_source_binds_to_a_telling_name_is_masked_in_it_and_in_its_output(source, value):
    masker = Masker()
    SecretValues(masker=masker, namespace={}).before_cell(source)
    assert value not in masker(source)
    assert value not in masker(f"printed {value} here")


@pytest.mark.parametrize(
    "source",
    [
        "header = {'name': 'X-Api-Key'}",
        "error = {'password': 'The password is wrong.'}",
        "token_path = '/run/secrets/token'",
        "password = '<your password>'; token = '${TOKEN}'; secret = '%s'; key = '{key}'",
        "access_key = None; password = getpass(); tokens = ['the', 'cat']",
    ],
)
def test_a_source_without_a_secret_stays(source):
    masker = Masker()
    SecretValues(masker=masker, namespace={}).before_cell(source)
    assert masker(source) == source
