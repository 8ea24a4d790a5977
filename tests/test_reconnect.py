"""How a user says how something is connected again, and what is stored of it."""

from __future__ import annotations

import pickle
import sqlite3

import pytest

from ctxkernel.state import reconnect as module
from ctxkernel.state.ambient import reconnect
from ctxkernel.state.reconnect import REGISTRY, Description, Entry, NotConnected, Registry


class Database:
    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = sqlite3.connect(":memory:")


class Special(Database):
    pass


@pytest.fixture(autouse=True)
def registry(monkeypatch) -> Registry:
    own = Registry(tuple(REGISTRY._entries.values()))
    monkeypatch.setattr(module, "REGISTRY", own)
    return own


def test_a_user_s_entry_describes_an_object_and_connects_it_again(registry):
    reconnect(Database, describe=lambda one: one.url, connect=Database)
    found = registry.description_of(Special("sqlite:///a.db"))

    assert found == (f"{__name__}.Database", "sqlite:///a.db")
    assert pickle.loads(pickle.dumps(found)) == found
    again = registry.connect(*found)
    assert type(again) is Database and again.url == "sqlite:///a.db"


def test_an_object_that_no_entry_is_for_has_no_description(registry):
    assert registry.description_of(object()) is None
    assert registry.why_not(object()) == ""


def test_a_class_can_be_named_before_it_is_loaded(registry):
    reconnect(f"{__name__}.Database", describe=lambda one: [one.url, 1], connect=lambda value: value)

    assert registry.description_of(Database("x")) == Description(f"{__name__}.Database", ["x", 1])


def test_a_predicate_chooses_objects_of_any_type(registry):
    reconnect("numbers", matches=lambda one: one == 7, describe=lambda one: one, connect=lambda value: value)

    assert registry.description_of(7) == ("numbers", 7)
    assert registry.description_of(8) is None


def test_the_entry_that_was_added_last_is_asked_first_and_one_of_its_kind_is_replaced(registry):
    reconnect(Database, describe=lambda one: 1, connect=lambda value: value)
    reconnect(Special, describe=lambda one: 2, connect=lambda value: value)
    assert registry.description_of(Special("")).value == 2
    reconnect(Database, describe=lambda one: 3, connect=lambda value: value)
    assert registry.description_of(Special("")).value == 3
    registry.remove(f"{__name__}.Database")
    assert registry.description_of(Special("")).value == 2


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "it cannot be connected again"),
        (object(), "describe() returned a object; return text, numbers, lists, tuples or dicts of them"),
        ({"a": [b"raw"]}, "describe() returned a bytes"),
        ("postgresql://me:hunter22@host/db", "credential"),
        ({"password": "correct horse battery"}, "credential"),
        (["sk-" + "a1" * 20], "credential"),
    ],
)
def test_a_description_that_cannot_be_stored_is_refused_with_the_reason(registry, value, why):
    reconnect(Database, describe=lambda one: value, connect=lambda value: value)

    assert registry.description_of(Database("")) is None
    assert why in registry.why_not(Database(""))


def test_a_fault_of_a_user_s_function_costs_that_object_only(registry):
    reconnect(Database, describe=lambda one: one.gone, connect=lambda value: 1 / 0)
    assert registry.description_of(Database("")) is None
    assert "describing it raised AttributeError" in registry.why_not(Database(""))

    with pytest.raises(NotConnected, match="'x' could not be connected: ZeroDivisionError"):
        registry.connect(f"{__name__}.Database", "x")
    with pytest.raises(NotConnected, match=r"no entry says how own\.Thing is connected"):
        registry.connect("own.Thing", 1)


def test_an_entry_is_a_plain_value():
    entry = Entry("kind", lambda one: 1, lambda value: value, lambda one: True)

    assert Registry((entry,)).description_of(object()) == ("kind", 1)


def test_a_dask_client_is_connected_again_by_the_address_of_its_scheduler(registry):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://") as cluster:
        with distributed.Client(cluster) as client:
            kind, address = registry.description_of(client)
        assert (kind, address) == ("distributed.client.Client", cluster.scheduler_address)
        assert registry.description_of(client) is None
        with registry.connect(kind, address) as again:
            assert again.submit(pow, 2, 3).result() == 8


def test_a_database_s_engine_is_connected_again_without_its_password(registry, monkeypatch):
    """The example of the documentation."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    reconnect(
        "sqlalchemy.engine.base.Engine",
        describe=lambda engine: engine.url.render_as_string() if engine.url.password is None else None,
        connect=sqlalchemy.create_engine,
    )
    engine = sqlalchemy.create_engine("sqlite:///here.db")
    kind, url = registry.description_of(engine)

    assert registry.connect(kind, url).url == engine.url
    secret = engine.url.set(drivername="sqlite", password="hunter22")
    monkeypatch.setattr(engine, "url", secret)
    assert registry.description_of(engine) is None
