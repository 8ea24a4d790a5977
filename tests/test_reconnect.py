"""How a user says how something is connected again, and what is stored of it."""

from __future__ import annotations

import json
import pickle
import sqlite3
from importlib import import_module

import pytest

from ctxkernel.state.ambient import reconnect
from ctxkernel.state.checkpoints.units import Unit, unit_from_json, unit_to_json
from ctxkernel.state.types import connections as module
from ctxkernel.state.types.connections import (
    CLOSED,
    REGISTRY,
    Connection,
    Description,
    NotConnected,
    ReconnectEntry,
    Registry,
)
from ctxkernel.state.types.packer import Lost, Packer


class Database:
    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = sqlite3.connect(":memory:")


class Special(Database):
    pass


@pytest.fixture(autouse=True)
def registry(monkeypatch) -> Registry:
    own = Registry(tuple(REGISTRY.entries.values()))
    monkeypatch.setattr(module, "REGISTRY", own)
    return own


def test_a_user_s_entry_describes_an_object_and_connects_it_again(registry):
    reconnect(Database, describe=lambda one: one.url, connect=Database)
    found = registry.describe(Special("sqlite:///a.db"))

    assert found == (f"{__name__}.Database", "sqlite:///a.db")
    assert pickle.loads(pickle.dumps(found)) == found
    again = registry.connect(*found)
    assert type(again) is Database and again.url == "sqlite:///a.db"


def test_an_object_that_no_entry_is_for_has_no_description(registry):
    assert registry.describe(object()) == ""


def test_a_class_can_be_named_before_it_is_loaded(registry):
    reconnect(f"{__name__}.Database", describe=lambda one: [one.url, 1], connect=lambda value: value)

    assert registry.describe(Database("x")) == Description(f"{__name__}.Database", ["x", 1])


def test_a_class_can_be_named_by_where_its_library_shows_it(registry):
    """The class itself names another module, `json.decoder`."""
    reconnect("json.JSONDecoder", describe=lambda one: one.strict, connect=lambda value: value)

    assert registry.describe(json.JSONDecoder()) == ("json.JSONDecoder", True)


def test_a_predicate_chooses_objects_of_any_type(registry):
    reconnect("numbers", matches=lambda one: one == 7, describe=lambda one: one, connect=lambda value: value)

    assert registry.describe(7) == ("numbers", 7)
    assert registry.describe(8) == ""


def test_the_entry_that_was_added_last_is_asked_first_and_one_of_its_kind_is_replaced(registry):
    reconnect(Database, describe=lambda one: 1, connect=lambda value: value)
    reconnect(Special, describe=lambda one: 2, connect=lambda value: value)
    assert registry.describe(Special("")).value == 2
    reconnect(Database, describe=lambda one: 3, connect=lambda value: value)
    assert registry.describe(Special("")).value == 3
    registry.remove(f"{__name__}.Database")
    assert registry.describe(Special("")).value == 2


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, CLOSED),
        (float("nan"), "describe() returned a float"),
        (object(), "describe() returned a object; return text, numbers, lists, tuples or dicts of them"),
        ({"a": [b"raw"]}, "describe() returned a bytes"),
        ("postgresql://me:hunter22@host/db", "credential"),
        ({"password": "correct horse battery"}, "credential"),
        (["sk-" + "a1" * 20], "credential"),
    ],
)
def test_a_description_that_cannot_be_stored_is_refused_with_the_reason(registry, value, why):
    reconnect(Database, describe=lambda one: value, connect=lambda value: value)

    assert why in registry.describe(Database(""))


def test_a_fault_of_a_user_s_function_costs_that_object_only(registry):
    reconnect(Database, describe=lambda one: one.gone, connect=lambda value: 1 / 0)
    assert "describe() raised AttributeError" in registry.describe(Database(""))

    with pytest.raises(NotConnected, match="'x' could not be connected: ZeroDivisionError"):
        registry.connect(f"{__name__}.Database", "x")
    with pytest.raises(NotConnected, match=r"no entry says how own\.Thing is connected"):
        registry.connect("own.Thing", 1)


def test_an_entry_is_a_plain_value():
    entry = ReconnectEntry("kind", lambda one: 1, lambda value: value, lambda one: True)

    assert Registry((entry,)).describe(object()) == ("kind", 1)


def test_a_dask_client_is_connected_again_by_the_address_of_its_scheduler(registry):
    distributed = import_module("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://") as cluster:
        with distributed.Client(cluster) as client:
            kind, address = registry.describe(client)
        assert (kind, address) == ("distributed.client.Client", cluster.scheduler_address)
        assert registry.describe(client) == CLOSED
        with registry.connect(kind, address) as again:
            assert again.submit(pow, 2, 3).result() == 8


def test_a_database_s_engine_is_connected_again_without_its_password(registry, monkeypatch):
    """The example of the documentation."""
    sqlalchemy = import_module("sqlalchemy")
    reconnect(
        "sqlalchemy.engine.base.Engine",
        describe=lambda engine: engine.url.render_as_string() if engine.url.password is None else None,
        connect=sqlalchemy.create_engine,
    )
    engine = sqlalchemy.create_engine("sqlite:///here.db")
    kind, url = registry.describe(engine)

    assert registry.connect(kind, url).url == engine.url
    secret = engine.url.set(drivername="sqlite", password="hunter22")
    monkeypatch.setattr(engine, "url", secret)
    assert registry.describe(engine) == CLOSED


# -- in a pack ---------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("url",)

    def __init__(self, url: str) -> None:
        self.url = url


def lives(n):
    yield n


def test_a_pack_says_what_can_be_connected_again_and_where_it_is():
    reconnect(Database, describe=lambda one: {"url": one.url, "at": (1, 2)}, connect=Database)
    db = Database("x")
    packed = Packer({}).pack({"db": db, "d": {"in": [db, lives(1)]}})

    (one,) = packed.again
    assert one[1:3] == (f"{__name__}.Database", "{'url': 'x', 'at': (1, 2)}")
    assert one.places == ("db", "d['in'][0]")
    assert packed.live[one.token] is db and len(packed.live) == 2
    assert packed.faults["db"].endswith("Database: a connection, which has no stored form")


def test_unpacking_connects_nothing_by_itself():
    calls = []
    reconnect(Database, describe=lambda one: one.url, connect=calls.append)
    packer = Packer({})
    packed = packer.pack({"d": [Database("x")]})

    assert type(packer.unpack(packed.stream, trial=True)["d"][0]) is Lost
    assert calls == []


def test_another_description_is_another_content():
    reconnect(Database, describe=lambda one: one.url, connect=Database)
    packer, db = Packer({}), Database("x")
    before = packer.pack({"db": db}).stream
    assert packer.pack({"db": db}).stream == before
    db.url = "y"

    assert packer.pack({"db": db}).stream != before


def test_an_entry_counts_from_the_moment_it_is_added(registry):
    """Reducers of library classes are kept from pack to pack."""
    packer = Packer({})
    assert packer.pack({"db": sqlite3.connect(":memory:")}).again == ()
    reconnect(sqlite3.Connection, describe=lambda one: "a file", connect=sqlite3.connect)
    assert [one.text for one in packer.pack({"db": sqlite3.connect(":memory:")}).again] == ["'a file'"]
    registry.remove("sqlite3.Connection")
    assert packer.pack({"db": sqlite3.connect(":memory:")}).again == ()


def test_an_object_that_describe_does_not_know_is_stored_as_without_an_entry():
    reconnect(Slotted, describe=lambda one: None, connect=Slotted)
    packer = Packer({})

    assert packer.unpack(packer.pack({"one": Slotted("x")}).stream)["one"].url == "x"


def test_a_unit_keeps_its_connections_in_the_manifest():
    one = Connection("p-1", "own.Client", "{'a': (1, 2.5, None)}", ("client", "d['x']"))
    unit = Unit(("client",), "x1", ("x2", 0), missing={"client": "a connection"}, again=(one,))
    row = json.loads(json.dumps(unit_to_json(unit, lambda _: "")))

    assert unit_from_json(row, lambda _: ()) == unit
