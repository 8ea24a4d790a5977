"""The files that the recorded sessions of `benchmarks/sessions` read: the same bytes at every run."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

PARSER = '''\
"""Read the lines of a laboratory's log: `time;sensor;value;state`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One reading."""

    time: dt.datetime
    sensor: str
    value: float | None
    state: str

    @property
    def valid(self) -> bool:
        """Whether the value can be used."""
        return self.state == "ok" and self.value is not None


def parse_line(line: str) -> Entry:
    """Return the entry of a line. Raises ValueError for a malformed line."""
    parts = line.strip().split(";")
    if len(parts) != 4:
        raise ValueError(f"expected 4 fields, found {len(parts)}: {line!r}")
    time = dt.datetime.fromisoformat(parts[0])
    value = float(parts[2])
    return Entry(time, parts[1], value, parts[3])


def is_comment(line: str) -> bool:
    """Whether a line has no reading."""
    return not line.strip() or line.startswith("#")


def parse_file(path: str | Path) -> list[Entry]:
    """Return the entries of a file, comments left out."""
    with open(path, encoding="utf-8") as file:
        return [parse_line(line) for line in file if not is_comment(line)]


def by_sensor(entries: list[Entry]) -> dict[str, list[Entry]]:
    """Return the entries of each sensor, in the order of the file."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.sensor, []).append(entry)
    return found


def gaps(entries: list[Entry], most: dt.timedelta) -> list[tuple[Entry, Entry]]:
    """Return the neighbours that are farther apart than `most`."""
    return [(a, b) for a, b in zip(entries, entries[1:]) if b.time - a.time > most]
'''
STORE = '''\
"""Keep entries in a SQLite database."""

import sqlite3


class Store:
    """A database of readings."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path)
        self.connection.execute("create table if not exists entry (time text, sensor text, value real, state text)")

    def add_all(self, entries):
        """Add entries."""
        rows = [(e.time.isoformat(), e.sensor, e.value, e.state) for e in entries]
        self.connection.executemany("insert into entry values (?, ?, ?, ?)", rows)
        self.connection.commit()

    def count(self):
        """Return the number of rows."""
        return self.connection.execute("select count(*) from entry").fetchone()[0]

    def sensors(self):
        """Return the names of the sensors."""
        return [row[0] for row in self.connection.execute("select distinct sensor from entry order by sensor")]

    def mean(self, sensor):
        """Return the mean of the valid values of a sensor."""
        query = "select avg(value) from entry where sensor = ? and status = 'ok'"
        return self.connection.execute(query, (sensor,)).fetchone()[0]
'''
TESTS = '''\
"""Tests of the parser."""

import unittest

from lablog.parser import parse_line


class ParserTest(unittest.TestCase):
    def test_a_point(self):
        self.assertEqual(parse_line("2024-05-03T10:15:00;T1;21.5;ok").value, 21.5)

    def test_a_comma(self):
        self.assertEqual(parse_line("2024-05-03T10:15:00;T1;21,5;ok").value, 21.5)

    def test_no_value(self):
        self.assertIsNone(parse_line("2024-05-03T10:15:00;T1;;ok").value)
'''
TEXT = (
    "the residual of the fit grows with the age of the amplifier while the reference stays within its error and the"
    " temperature of the room explains less than a tenth of the variance so the sensor itself is the likely cause of"
    " the change that the older series does not show"
)
PAPERS = {
    "drift": ("Drift of field sensors", "Since 2019, when the amplifier was replaced, residuals drift by 0.3 a year."),
    "calibration": ("Calibration against a reference", "The gain changes by 0.4 % a year; 2019 is no exception."),
    "sites": ("A comparison of five sites", "Three of five sites show the step in 2019, two do not [Okafor 2021]."),
}


def cleaning(folder: Path) -> None:
    rng = random.Random(1)
    rows = ["time,station,temperature,humidity,pressure,wind_speed,rain,battery,logger"]
    start = dt.datetime(2024, 5, 1)  # noqa: DTZ001
    for step in range(80):
        for station in ("north", "ridge", "Valley "):
            time = start + dt.timedelta(hours=3 * step)
            warm = 12 + 6 * np.sin(step / 8 * np.pi) + rng.gauss(0, 1)
            warm = -999 if rng.random() < 0.04 else warm * 9 / 5 + 32 if station == "ridge" and step % 3 == 0 else warm
            humid = 140.0 if (step, station) in ((11, "north"), (47, "ridge")) else rng.uniform(40, 95)
            rest = f"{1010 + rng.gauss(0, 4):.1f},{abs(rng.gauss(3, 2)):.1f},{max(rng.gauss(-1, 1), 0):.1f}"
            more = f"{rest},{12 + rng.random():.2f},L{step % 4}"
            rows.append(f"{time:%Y-%m-%d %H:%M},{station},{warm:.2f},{humid:.1f},{more}")
    rows += [rows[7], rows[20], rows[90]]
    del rows[50:53]
    (folder / "stations.csv").write_text("\n".join(rows) + "\n")
    heights = ["station,altitude,latitude,longitude", "NORTH,412,47.31,8.55", "RIDGE,1240,47.22,8.71"]
    heights.append("VALLEY,380,47.28,8.6")
    (folder / "altitudes.csv").write_text("\n".join(heights) + "\n")


def fitting(folder: Path) -> None:
    rng = np.random.default_rng(2)
    times = np.linspace(0, 12, 120)
    sigma = 0.4 + 0.02 * times
    counts = 18 * np.exp(-1.4 * times) + 7 * np.exp(-0.25 * times) + 1.5 + rng.normal(0, sigma)
    rows = [f"{t:.4f},{y:.4f},{s:.4f}" for t, y, s in zip(times, counts, sigma, strict=True)]
    (folder / "decay.csv").write_text("t,counts,sigma\n" + "\n".join(rows) + "\n")


def debugging(folder: Path) -> None:
    package = folder / "lablog"
    package.mkdir()
    for name, text in (("__init__", ""), ("parser", PARSER), ("store", STORE), ("tests", TESTS)):
        (package / f"{name}.py").write_text(text)
    rng = random.Random(3)
    lines = ["# time;sensor;value;state"]
    for number in range(58):
        time = dt.datetime(2024, 5, 3, 10) + dt.timedelta(minutes=5 * number)  # noqa: DTZ001
        value = "21,7" if number == 12 else "" if number == 30 else f"{rng.gauss(21, 2):.2f}"
        lines.append(f"{time.isoformat()};{('T1', 'T2', 'H1')[number % 3]};{value};{'bad' if number == 41 else 'ok'}")
    lines.insert(16, "# 10:20 sensor restarted")
    (folder / "run.log").write_text("\n".join(lines) + "\n")


def literature(folder: Path) -> None:
    papers = folder / "papers"
    papers.mkdir()
    for seed, (name, (title, finding)) in enumerate(PAPERS.items()):
        rng = random.Random(seed)
        text = [f"# {title}\n"]
        for heading in ("Introduction", "Methods", "Results", "Discussion"):
            text.append(f"## {heading}\n")
            for _ in range(3):
                words = " ".join(rng.choices(TEXT.split(), k=60))
                text.append(f"{words.capitalize()} [Meyer 2017].\n")
            text += [finding + "\n"] if heading == "Results" else []
        (papers / f"{name}.md").write_text("\n".join(text))


def images(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(4)
    row, column = np.mgrid[:160, :200]
    picture = rng.normal(30, 6, row.shape)
    for _ in range(24):
        y, x, r = rng.uniform(8, 152), rng.uniform(8, 192), rng.uniform(4, 11)
        picture += 120 * np.exp(-((((row - y) ** 2 + (column - x) ** 2) / r**2) ** 2))
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / "cells.png")


def long(folder: Path) -> None:
    rng = np.random.default_rng(5)
    rows = ["day,sensor,value,battery"]
    days = [dt.date(2015, 1, 4) + dt.timedelta(days=14 * n) for n in range(208)]
    for n in range(1, 13):
        for day in days:
            years = (day - days[0]).days / 365.25
            drift = 0.4 * max(years - 4, 0) if n == 5 else 0
            value = 10 + n / 2 + 5 * np.cos(2 * np.pi * (years - 0.5)) + 0.02 * n * years + drift + rng.normal(0, 0.4)
            value += 6 if rng.random() < 0.01 else 0
            rows.append(f"{day},S{n:02d},{value:.3f},{3.6 - years / 40 + rng.normal(0, 0.01):.2f}")
    (folder / "network.csv").write_text("\n".join(rows) + "\n")


WRITERS: Mapping[str, Callable[[Path], None]] = {
    one.__name__: one for one in (cleaning, fitting, debugging, literature, images, long)
}
"""Session → the function that writes its files."""
