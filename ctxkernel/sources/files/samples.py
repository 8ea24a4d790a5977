"""Facts about a large log, table or JSON text: from the survey of all of it, or from a sample."""

from __future__ import annotations

from dataclasses import replace

from ctxkernel.core.text import format_size
from ctxkernel.sources.base.file_reader import make_text, read_at
from ctxkernel.sources.files.text_documents import Document, TextFacts
from ctxkernel.sources.outlines.json_facts import JsonFacts
from ctxkernel.sources.outlines.json_records import RecordFacts
from ctxkernel.sources.outlines.logs import LogFacts
from ctxkernel.sources.outlines.tabular import SCAN_CELLS, SampleFacts, cells_of, read_table, whole_records

_HEAD_BYTES = 512 << 10
_OTHER_BYTES = 256 << 10
_JSON_BYTES = 256 << 10
_RECORDS_SHARE = 0.25
"""The share of these that is read of a text with a JSON value a line: each takes ten times as long."""
_LOOK_BYTES = 64 << 10
"""So much shows how dense the cells of a table are."""


def known_of(facts: LogFacts | SampleFacts | JsonFacts | RecordFacts, size: int) -> TextFacts:
    """Return what a survey found in the whole text."""
    if isinstance(facts, JsonFacts):
        return TextFacts(facts if facts.is_whole else None, size, lines=facts.lines)
    if isinstance(facts, RecordFacts):
        return TextFacts(facts if facts.is_records else None, size, lines=facts.lines)
    if isinstance(facts, SampleFacts):
        return TextFacts(facts.table(), size, lines=facts.lines)
    return TextFacts(facts if facts.is_log else None, size, lines=facts.lines)


def sampled(document: Document, descriptor: int, size: int) -> TextFacts:
    """Return what the beginning, the middle and the end of a text show; of JSON the beginning, with what it is in."""
    if document.language.name == "json":
        begun, data = JsonFacts(), read_at(descriptor, 0, _JSON_BYTES)
        begun.take(data)
        about = f"its first {format_size(len(data))} of {format_size(size)} read"
        return TextFacts(None if begun.broken else begun, size, about, round(begun.lines * size / max(len(data), 1)))
    is_table = document.language.name == "table"
    is_records = document.language.name == "jsonlines"
    share = _share(read_at(descriptor, 0, _LOOK_BYTES)) if is_table else _RECORDS_SHARE if is_records else 1.0
    head_bytes, other_bytes = (min(int(share * most), size // 4) for most in (_HEAD_BYTES, _OTHER_BYTES))
    other_bytes = min(other_bytes, size // 8)
    head = _lines(descriptor, 0, head_bytes)[1]
    parts = [(0, head), *(_lines(descriptor, at, other_bytes) for at in (size // 2, size - other_bytes))]
    read = sum(len(data) for _, data in parts)
    average = len(head) / max(head.count(b"\n"), 1)
    lines = round(size / max(average, 1))
    about = f"beginning, middle and end, {format_size(read)} of {format_size(size)} read"
    if is_table:
        texts = [data.decode("utf-8-sig" if not at else "utf-8", "replace") for at, (_, data) in enumerate(parts)]
        whole = [whole_records(part, texts[0]) for part in texts]
        joined = "".join(part if part.endswith("\n") else part + "\n" for part in whole if part)
        text = make_text(joined, size=size, fingerprint="", whole=False)
        return TextFacts(read_table(text, "a sample"), size, about, lines)
    facts = RecordFacts() if is_records else LogFacts()
    for offset, data in parts:
        facts.take(data, round(offset / max(average, 1)))
    return replace(known_of(facts, size), sample=about, lines=lines)


def _share(data: bytes) -> float:
    """Return which share of the most bytes is read of a table that begins so: its cells are what takes time."""
    room = SCAN_CELLS * len(data) / max(cells_of(data.decode("utf-8", "replace")), 1)
    return min(0.5, room / (_HEAD_BYTES + 2 * _OTHER_BYTES))


def _lines(descriptor: int, offset: int, count: int) -> tuple[int, bytes]:
    """Return the whole lines among some bytes, and where they begin; at the end also a last line without an end."""
    data = read_at(descriptor, offset, count)
    start = data.find(b"\n") + 1 if offset else 0
    at_end = not read_at(descriptor, offset + len(data), 1)
    return offset + start, data[start:] if at_end else data[start : data.rfind(b"\n") + 1]
