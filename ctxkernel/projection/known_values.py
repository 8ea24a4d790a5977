"""Known secrets: which names and values are secrets, and where a text contains one of them.

Rule 1: a value is searched as it is, percent-encoded, escaped as in JSON, `repr` and HTML, and in base64 (as in a Basic
        header, whatever the user name).
Rule 2: a value that a text or a mark of truncation cuts is found by eight of its characters.
Rule 3: an ordinary value is no secret: a short one, a number, a path, a placeholder, a word that a password is not.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus

from ctxkernel.projection.secrets import SecretSpan

MOST_VALUES = 1_000
"""Values that are remembered: the newest."""
MOST_CHARS = 8_192
"""Characters of the longest value that is remembered."""
LEAST = 6
"""Characters of the shortest value that is remembered."""
_LEAST_ENCODED = 10
"""Bytes of the shortest value that is searched in base64."""
_PART = 8
"""Characters by which a truncated value is recognised."""

_STRONG = re.compile(
    r"(?i)pass(?:word|wd|phrase|code)|secret|credential|(?:^|_)p(?:ass|w|wd)$|pwd$|connection_?string|conn_?str$"
    r"|(?:api|access|account|auth|client|encryption|license|master|private|service|shared|signing|ssh|storage"
    r"|subscription)[_-]?key|(?:api|access|auth|bearer|bot|id|refresh|session|hf|github|gitlab)[_-]?token"
)
_WEAK = re.compile(r"(?i)(?:token|key|auth|pat|jwt|bearer|cookie|signature)s?$")
_NOT = re.compile(
    r"(?i)(?:^|_)(?:pad|eos|bos|unk|sep|cls|mask|special|max|min|num|n|next|sort|primary|foreign|partition|group|public|ssh_agent"
    r"|auth_sock|cache|gpg)_?(?:token|key|auth|id)s?|tokenizer|_(?:file|path|dir|folder|url|uri|name|id|ids|count|len|length|type|size"
    r"|field|column|col|env|var|hash|prefix|suffix|pattern|regex|hint|prompt|format|expires?|expiry|ttl|age|timeout)$|^keys$|^_+$"
)


@lru_cache(4096)
def names_secret(name: str) -> str:
    """Return `strong` if a name says that its value is a secret, `weak` if it may, else an empty text."""
    spoken = _spoken(name)
    if _NOT.search(spoken):
        return ""
    if _STRONG.search(spoken):
        return "strong"
    if _WEAK.search(spoken):
        return "strong" if spoken.isupper() and "_" in spoken else "weak"
    return ""


def _spoken(name: str) -> str:
    """Return a name in snake case: `apiKey` as `api_key`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").replace(" ", "_")


_ORDINARY = frozenset(
    (
        *("password", "passwords", "passphrase", "changeme", "postgres", "administrator", "anonymous", "username"),
        *("disabled", "required", "optional", "undefined", "sequence", "redacted", "secret", "unknown", "default"),
    )
)
_PLACEHOLDER = re.compile(
    r"(?i)^(?:<.*>|\[.*\]|\(.*\)|\$?\{.*\}|\$\(.*\)|%.*[sr%]|\$[a-z_]+|[x*.•-]+)$|your[_-]|example|placeholder|dummy"
    r"|\*{3}|x{5}|…|changeme|\$\{"
)
_PATH = re.compile(
    r"^(?:[~.]{1,2}/|/(?:[a-z][\w.-]*|Users|Volumes|Library|Applications)(?:/|$)|[A-Za-z]:[\\/]|https?://[^@]*$|file:)"
)
_NAME_OF_SECRET = re.compile(r"[a-z_-]+|[A-Z_-]+|[a-z]+(?:[A-Z][a-z]+)*|(?:[A-Z][a-z]+)+|X(?:-[A-Z][a-z]+)+")
"""A name, as in `header = "X-Api-Key"`: no password has this form and the word for itself in it."""
_SENTENCE = re.compile(r"[.!?:]\s*$|\s(?:is|are|was|not|must|should|please|your|the|for|to|in)\s", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z]+|[\d.,:eE+-]+")
_MIXED = re.compile(r"[a-zA-Z][0-9]+[a-zA-Z]|[0-9][a-zA-Z]+[0-9]|[a-z][A-Z][a-z0-9]*[A-Z0-9]")


def is_secret_value(value: str, how: str) -> bool:
    """Return whether a value under a name that says secret (`strong` or `weak`) is worth to be masked."""
    if not LEAST <= len(value) <= MOST_CHARS or value.isspace() or _PLACEHOLDER.search(value) or _PATH.match(value):
        return False
    if (
        value.lower() in _ORDINARY
        or (_NAME_OF_SECRET.fullmatch(value) and names_secret(value))
        or (value.isdecimal() and len(value) < 12)
    ):
        return False
    digits = any(map(str.isdecimal, value))
    if how == "strong":
        if re.fullmatch(r"[\d.,:eE+-]+", value):
            return value.isdecimal() and len(value) >= 12
        if any(map(str.isspace, value)) and _SENTENCE.search(value):
            return False
        return digits or len(value) >= _PART
    if any(map(str.isspace, value)) or len(value) < 10:
        return False
    parts = re.split(r"[-_./:]+", value)
    return digits and any(len(part) >= 7 and _MIXED.search(part) for part in parts)


def _encodings(value: str) -> Iterator[str]:
    """Yield the forms in which a value occurs in texts."""
    raw = value.encode("utf-8", "surrogatepass")
    yield value
    yield from (quote(raw, safe=""), quote(raw), quote_plus(raw), json.dumps(value)[1:-1], repr(value)[1:-1])
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield html.escape(value)
    yield json.dumps(json.dumps(value)[1:-1])[1:-1]
    if len(raw) < _LEAST_ENCODED:
        return
    for offset in range(3):  # behind a user name of any length
        told = base64.b64encode(bytes(offset) + raw).decode("ascii")
        # The first and the last characters depend on what is beside.
        yield told[-(-offset * 8 // 6) : (offset + len(raw)) * 8 // 6]


class KnownValues:
    """The secrets of one session, in memory only."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        """Value → its name."""
        self._clear()

    def _clear(self) -> None:
        self._forms: dict[str, tuple[str, str]] = {}
        """Form of a value → (the value's name, the value)."""
        self._heads: dict[str, list[str]] = {}
        """The first characters of forms → the forms."""
        self._tails: dict[str, list[str]] = {}
        """The last characters of forms → the forms."""
        self._longest = 0

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def names(self) -> frozenset[str]:
        """The names of the values."""
        return frozenset(self._labels.values())

    def add(self, name: str, value: str) -> bool:
        """Remember a value. Return whether it is new."""
        if value in self._labels:
            return False
        if len(self._labels) >= MOST_VALUES:
            del self._labels[next(iter(self._labels))]
            self._clear()
            for old, named in self._labels.items():
                self._add_forms(named, old)
        self._labels[value] = name
        self._add_forms(name, value)
        return True

    def _add_forms(self, name: str, value: str) -> None:
        for form in dict.fromkeys(_encodings(value)):
            if len(form) >= LEAST and form not in self._forms:
                self._forms[form] = name, value
                self._heads.setdefault(form[:_PART], []).append(form)
                if len(form) > _PART:
                    self._tails.setdefault(form[-_PART:], []).append(form)
                    self._longest = max(self._longest, min(len(form), _MOST_CUT))

    def spans(self, text: str) -> list[SecretSpan]:
        """Return where a text contains a value, or as much of one as a cut leaves."""
        if not self._heads or len(text) < LEAST:
            return []
        found: list[SecretSpan] = []
        for head in [head for head in list(self._heads) if head in text]:
            forms = self._heads[head]
            at = text.find(head)
            while at >= 0:
                if (span := self._begun(text, at, forms)) is not None:
                    found.append(span)
                at = text.find(head, max(at + 1, span.end if span is not None else 0))
        found += self._ended(text)
        return found

    def has_part(self, text: str) -> bool:
        """Return whether a text contains the beginning or the end of a value."""
        return any(part in text for part in [*self._heads, *self._tails])

    def _begun(self, text: str, at: int, forms: list[str]) -> SecretSpan | None:
        """Return the longest form that begins at `at`, or the part of one before a cut."""
        best: SecretSpan | None = None
        for form in forms:
            name, _ = self._forms[form]
            if text.startswith(form, at):
                end = at + len(form)
                if form.isalpha() and (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
                    continue
            else:
                end = at + _common(text, at, form)
                if end - at < _PART or not (end == len(text) or _CUT.match(text, end)):
                    continue
            if best is None or end > best.end:
                best = SecretSpan(at, end, f"value of {name}", name)
        return best

    def _ended(self, text: str) -> Iterator[SecretSpan]:
        """Yield the rests of values after a cut, and at the beginning of the text."""
        starts = [0]
        for mark in _CUT_MARKS:
            at = text.find(mark)
            while at >= 0 and len(starts) < _MOST_CUTS:  # rows of dots are no cuts
                starts.append(at + len(mark))
                at = text.find(mark, at + len(mark))
        tails = self._tails
        for start in starts:
            window = text[start : start + self._longest]
            for place in range(len(window) - _PART + 1):
                for form in tails.get(window[place : place + _PART], ()):
                    if form.endswith(window[: place + _PART]):
                        name = self._forms[form][0]
                        yield SecretSpan(start, start + place + _PART, f"value of {name}", name)


_MOST_CUT = 200
"""Characters of a value's rest that is recognised after a cut."""
_MOST_CUTS = 50
_CUT_MARKS = ("…", "...", "bytes cut ...]\n")
_CUT = re.compile(r"\n?\[\.\.\. [\d,]{1,20} bytes cut \.\.\.\]|[\"']?(?:…|\.\.\.)")
"""The text right after the beginning of a value that was cut."""


def _common(text: str, at: int, form: str) -> int:
    """Return how many characters of `form` are in `text` at `at`."""
    low, high = 0, min(len(form), len(text) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(form[:middle], at):
            low = middle
        else:
            high = middle - 1
    return low
