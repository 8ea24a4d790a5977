"""Masking of credentials in texts by their form: what a provider issues, and what a name or a context announces.

Rule 1: `mask` is pure, linear and idempotent, never raises, and changes only what looks like a credential.
Rule 2: a false positive hides a few characters; a false negative reveals a key. But ordinary uses of such words
        (`max_tokens=2000`, `pad_token = "<pad>"`, `token = next(tokens)`) are not masked.
Rule 3: masking is heuristic. It knows these forms:

| kind | form |
|---|---|
| keys and tokens | the prefixes of more than 90 providers, private keys, JSON web tokens (`credential_forms.py`) |
| headers and URLs | `Bearer …`, `Basic …`, `scheme://user:password@host`, `?token=…`, `&X-Amz-Signature=…`, `&sig=…` |
| commands | `curl -u user:…`, `--password …`, `login … password …`, `IDENTIFIED BY '…'` |
| assignments | a name ending in password, passwd, pwd, passphrase, secret, token, api_key, access_key, private_key
  or another kind of key, or credential, then `=` or `:`, then a quoted value, or a bare one that has a digit or
  directly follows the `=` |
| truncated | a quoted value that ends with its line or in `…`, a password in a URL that does, and a key with a digit
  that ends in `…` or `...` |

`Masker` (masker.py) masks known values, too, and is what a session uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from ctxkernel.projection.credential_forms import (
    BODIES,
    CONTEXTS,
    JOINED,
    NAMED_CONTEXTS,
    PATTERNS,
    PREFIXED,
    WHOLE,
    WHOLE_LENGTHS,
    JoinedForm,
    PatternForm,
    PrefixedForm,
)


class SecretSpan(NamedTuple):
    """A part of a text to mask."""

    start: int
    end: int
    label: str = ""
    """The kind of the credential; empty where the text beside it says what it is."""
    name: str = ""
    """The name that announced it, such as `DB_PASSWORD`."""


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


# -- keys that a provider issues ---------------------------------------------------------------------

# A run of such characters is tried once, at its beginning: so words such as `task-…` stay whole.
_RUN = re.compile(r"[A-Za-z0-9_-]{9,}")
_CUT_MARKS = ("…", "...")
_CUT_LEAST = 6
"""Characters after the prefix that a truncated key has at least, with a digit."""
_NO_WORD = re.compile(r"[A-Za-z0-9]{20}")
"""Such a run is taken for a key without a digit too: words that are joined have shorter ones."""
# What may stand right before a key: `\n` in a repr, `%3D` in a URL, a change of colour in a terminal.
_ESCAPE = re.compile(r"\\[nrt]|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]{0,20}m")

_BY_START: dict[str, list[tuple[str, PrefixedForm]]] = {}
for _form in PREFIXED:
    for _prefix in _form.prefixes:
        _BY_START.setdefault(_prefix[:2], []).append((_prefix, _form))
for _listed in _BY_START.values():
    _listed.sort(key=lambda pair: -len(pair[0]))  # the most specific prefix first
_BY_JOINT: dict[str, list[JoinedForm]] = {}
for _joined in JOINED:
    _BY_JOINT.setdefault(_joined.before[0][-1], []).append(_joined)


def _issued(text: str) -> Iterator[SecretSpan]:
    """Yield the keys that are recognised by a run of characters and by what is right before it."""
    starts, joints = _BY_START, _BY_JOINT
    if "\\" in text or "%" in text or "\x1b" in text:
        text = _ESCAPE.sub(lambda found: " " * len(found[0]), text)  # places stay places
    for run in _RUN.finditer(text):
        start, end = run.span()
        before = text[start - 1] if start else ""
        if before in joints and (found := _joined_at(text, start, joints[before])) is not None:
            yield found
        if end - start in WHOLE_LENGTHS:
            yield from _whole(text, start, end)
        forms = starts.get(text[start : start + 2])
        if forms is not None and (found := _key_at(text, start, end, forms)) is not None:
            yield found


def _joined_at(text: str, start: int, forms: Sequence[JoinedForm]) -> SecretSpan | None:
    for form in forms:
        if text.endswith(form.before, 0, start) and text.startswith(form.begins, start):
            pattern = _pattern(form.pattern)
            for place in range(max(0, start - form.back), start):
                found = pattern.match(text, place)
                if found is not None:
                    return SecretSpan(*found.span(), form.label)
    return None


def _whole(text: str, start: int, end: int) -> Iterator[SecretSpan]:
    for form in WHOLE:
        if text.find(form.words[0], start, end) >= 0 and _pattern(form.pattern).fullmatch(text, start, end):
            yield SecretSpan(start, end, form.label)


def _key_at(text: str, start: int, end: int, forms: Sequence[tuple[str, PrefixedForm]]) -> SecretSpan | None:
    """Return the key that begins at `start` of a run that ends at `end`."""
    cut = text.startswith(_CUT_MARKS, end)
    for prefix, form in forms:
        if not text.startswith(prefix, start):
            continue
        place = start + len(prefix)
        body = _pattern(BODIES[form.body]).match(text, place)
        if body is None:
            continue
        shown, last = body[0], body.end()
        digits = any(map(str.isdecimal, shown))
        if cut and digits and last >= end and len(shown) >= _CUT_LEAST:
            return SecretSpan(start, last, form.label)
        if len(shown) < form.least or (form.digit and not digits and not _NO_WORD.search(shown)):
            continue
        if form.tail:
            tail = _pattern(form.tail).match(text, last)
            if tail is None:
                continue
            last = tail.end()
        return SecretSpan(start, last, form.label)
    return None


# -- patterns ----------------------------------------------------------------------------------------


def _matches(text: str, forms: Sequence[PatternForm]) -> Iterator[SecretSpan]:
    """Yield what the patterns find. Their words are searched first: most texts contain none."""
    for form in forms:
        for word in form.words:
            if word in text:
                pattern = _pattern(form.pattern)
                group = "v" if "v" in pattern.groupindex else 0
                for found in pattern.finditer(text):
                    yield SecretSpan(*found.span(group), form.label)
                break


_PASSWORD = re.compile(r"://[^\s/:@'\"<>]{0,100}:(?!\[masked)([^\s/@'\"<>]{1,200})(?:(?=@)|(?<=[^\d…]…))")
_USER = re.compile(r"://(?=[A-Za-z_-]{0,200}[0-9])([A-Za-z0-9_-]{20,200})@")


def _in_urls(text: str) -> Iterator[SecretSpan]:
    if "://" in text:
        for pattern in (_PASSWORD, _USER):
            for found in pattern.finditer(text):
                yield SecretSpan(*found.span(1))


# -- assignments -------------------------------------------------------------------------------------

# Assignments are looked for in the text in lower case: a pattern that ignores case is tried at every character, one
# that does not only where a first letter fits. The name (a longer one may end in it), a closing quote of a JSON key, an
# annotation as in `token: str = …`, the sign, then the value.
_SIGN = r"(?:\\?[\"'](?P<item>\])?)?\s{0,4}(?::\s{0,4}[a-z_.\[\]]{1,40}\s{0,4}(?==))?(?:=(?!=)|:)"
# A quoted one: without space in it, and not what stands between two strings (`print("token:", x, "y")`) or a template.
# Its end may have been cut off: then it ends with its line, or in `…`.
_QUOTED = (
    r"\s{0,4}[rbfu]{0,2}(?P<escaped>\\)?(?P<quote>[\"'])(?![<\[{$%,;:)\]}+])"
    r"(?P<quoted>(?:[^\"'\s\\]|(?(escaped)(?!)|\\\S)){3,}+)"
    r"(?:(?=\\?(?P=quote))|(?<=…)|(?=\\…|[\r\n]|\Z))"
)
# A bare value: with a digit, or right after the sign; not a mere number; and no bracket after it, since an expression
# shows no secret. Nor does the right side of `frame["token"] = …`, unless it is quoted. A value without a digit may
# neither end at a quote nor be an argument of a call: `f(token=tokenizer.pad_token)`.
_BOUND = 512
"""Characters of a bare value that are looked at before it is known to be one."""
_CHAR = r"[^\s\"'`,;&()\[\]{}<>\\]"
_BARE = (
    rf"(?(item)(?!))(?:[ \t]{{1,4}}(?={_CHAR}{{0,200}}?\d))?"
    rf"(?!\d+(?:\.\d+)?(?!{_CHAR}))(?P<digit>(?={_CHAR}{{0,200}}?\d))?(?P<bare>{_CHAR}{{6,{_BOUND}}}+)"
    r"(?(digit)(?![(\[{])|(?![(\[{\"'`,)]))"
)
_VALUE = re.compile(rf"{_SIGN}(?:{_QUOTED}|{_BARE})")
_REST = re.compile(rf"{_CHAR}*+")
_WORDS = {
    "pass": ("word", "wd", "phrase", "code"),
    "pwd": ("",),
    "secret": ("",),
    "token": ("",),
    "credential": ("s", ""),
    "key": ("",),
}
"""The beginnings of names, with their ends."""
_KEYS = (
    *("api", "access", "account", "auth", "client", "encryption", "license", "master", "private", "secret", "service"),
    *("shared", "shared_access", "signing", "ssh", "storage", "subscription"),
)
"""The words before `key` that make it the name of a secret."""
_AFTER = ("\\", '"', "'", " ", "\t", "\r", "\n", "=", ":")
"""The characters that may follow a name."""
_PATHS = ("/", "~", "C:\\")
_ASCII_LOWER = {upper: upper + 32 for upper in range(65, 91)}
_NAME_CHARS = re.compile(r"[A-Za-z0-9_.-]{0,60}\Z")


def _is_expression(found: re.Match[str]) -> bool:
    """Return whether a value is another variable, as in `api_key=self.api_key`, or a template."""
    bare = found["bare"]
    if bare is None:
        value = found["quoted"]
        return "{" in value and "}" in value and found.string[found.start("quote") - 1] == "f"
    return found["digit"] is None and _SAME.fullmatch(bare) is not None


_SAME = re.compile(r"[a-z_.]{0,60}(?:password|passwd|passphrase|passcode|pwd|secret|token|credentials?|key)s?")


def _assignments(text: str, low: str, words: Sequence[str]) -> Iterator[SecretSpan]:
    """Yield the values of names that contain one of `words`."""
    for word in words:
        at = low.find(word)
        while at >= 0:
            after = at + len(word)
            place = _end_of_name(low, at, after, word)
            span = _value_at(text, low, place) if place else None
            if span is not None and word == "pwd" and text.startswith(_PATHS, span.start):  # the working directory
                span = None
            if span is not None:
                yield span
                after = max(after, span.end)
            at = low.find(word, after)


def _end_of_name(low: str, at: int, after: int, word: str) -> int:
    """Return where a name ends that contains the word at `at`; 0 if it is no name of a secret before a sign."""
    for end in _WORDS[word]:
        place = after + len(end)
        if low.startswith(end, after) and low[place : place + 1] in _AFTER:
            return place if word != "key" or low[max(0, at - 14) : at].rstrip("_-").endswith(_KEYS) else 0
    return 0


def _value_at(text: str, low: str, place: int) -> SecretSpan | None:
    """Return the value that follows a name which ends at `place`."""
    found = _VALUE.match(low, place)
    if found is None or _is_expression(found):
        return None
    name = _NAME_CHARS.search(text, max(0, place - 60), place)
    named = name[0].rpartition(".")[2] if name else ""
    if found["bare"] is None:
        return SecretSpan(*found.span("quoted"), "", named)
    start, end = found.span("bare")
    rest = _REST.match(low, end) if end - start == _BOUND else None
    return SecretSpan(start, rest.end() if rest else end, "", named)


# -- all of them -------------------------------------------------------------------------------------


# By the bytes that a PNG, JPEG, GIF or WebP begins with.
_IMAGE_STARTS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
_IMAGE = re.compile(rf"(?<![A-Za-z0-9+/])(?:{'|'.join(_IMAGE_STARTS)})[A-Za-z0-9+/]{{60,}}={{0,2}}")


def without_images(text: str) -> str:
    """Return `text` with images in base64 as spaces, since any form of a credential may occur in one by chance."""
    if any(start in text for start in _IMAGE_STARTS):
        return _IMAGE.sub(lambda found: " " * len(found[0]), text)  # places stay places
    return text


def credentials(text: str) -> list[SecretSpan]:
    """Return the parts of a text that look like credentials, in no order; they may overlap.

    Images in base64 are not searched.
    """
    text = without_images(text)
    low = text.lower()
    if len(low) != len(text):  # a few letters, as İ, grow in lower case; places must stay places
        low = text.translate(_ASCII_LOWER)
    found = [*_issued(text), *_matches(text, PATTERNS), *_in_urls(text), *_matches(low, CONTEXTS)]
    words = [word for word in _WORDS if word in low]
    if words:
        found += [*_matches(low, NAMED_CONTEXTS), *_assignments(text, low, words)]
    return found


def covered(text: str, spans: Sequence[SecretSpan], shown: Callable[[SecretSpan], bool] = lambda span: False) -> str:
    """Return `text` with the parts masked, except those that may be `shown`; overlapping ones as one."""
    out: list[str] = []
    done = 0
    pending: SecretSpan | None = None
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if shown(span):
            continue
        if pending is not None and span.start < pending.end:
            label = pending.label or span.label
            pending = SecretSpan(pending.start, max(pending.end, span.end), label, pending.name or span.name)
            continue
        if pending is not None:
            out += [text[done : pending.start], _replacement(pending)]
            done = pending.end
        pending = span
    if pending is None:
        return text
    return "".join([*out, text[done : pending.start], _replacement(pending), text[pending.end :]])


def _replacement(span: SecretSpan) -> str:
    return f"[masked: {span.label}]" if span.label else "[masked]"


def mask(text: str) -> str:
    """Return `text` with credentials replaced by `[masked…]`; the same object where there are none."""
    if len(text) > _SHORT:
        return _masked(text)
    masked = _known(text)
    return text if masked == text else masked


def _masked(text: str) -> str:
    spans = credentials(text)
    return covered(text, spans) if spans else text


_SHORT = 200
_known = lru_cache(256)(_masked)


_MASK = re.compile(r"\[masked(?:: [^\]\n]{1,100})?\]")


def fits_masked(masked: str, text: str) -> bool:
    """Return whether `masked` may be `text` after masking, whatever was known as a secret then."""
    first, *rest = _MASK.split(masked)
    if not rest:
        return masked == text
    if not text.startswith(first):
        return False
    at = len(first)
    for part in rest[:-1]:
        at = text.find(part, at + 1)
        if at < 0:
            return False
        at += len(part)
    return len(text) - len(rest[-1]) > at and text.endswith(rest[-1])


def mask_beside(opening: str, value: str, mask: Callable[[str], str]) -> str:
    """Return `value` masked as it is after `opening`, such as `password = `: the name decides with the value."""
    masked = mask(together := opening + value)
    if masked is together or masked == together:
        return value
    return masked[len(opening) :] if masked.startswith(opening) else mask(value)


def mask_value(name: str, value: str) -> str:
    """Return the repr of a variable, masked where its name or the repr itself says that it is a credential."""
    return mask_beside(f"{name} = ", value, mask)
