"""The masking of one session: the one place that decides what is hidden in its log, projections, panel and displays.

Rule 1: a session has one `Masker`, which is passed to all that store, send or show a text. Nothing here is global.
Rule 2: known values are kept in memory only; a mask contains the name of a value or the kind of a credential, and no
        part of it.
Rule 3: a text is masked by what is known at that moment. `revision` changes when a text may be masked otherwise.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable

from ctxkernel.core.text import strip_ansi
from ctxkernel.projection.known_values import KnownValues, is_secret_value, names_secret
from ctxkernel.projection.secrets import SecretSpan, covered, credentials, mask_beside, without_images

VALUE = "value of "
"""The beginning of the label of a known value; its name follows."""
BY_NAME = "password in a URL or a command"
"""The kind of the credentials that an assignment, a header or a URL announces."""
_MEMO_CHARS = 300_000
"""Characters of the texts whose result is kept."""
_MOST_COUNTED = 10_000
"""Credentials of a kind that are counted."""
_MOST_KINDS = 500
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,59}")


class Masker:
    """Masks texts: credentials by their form, and known values. Calling it returns the masked text."""

    def __init__(self) -> None:
        self.known = KnownValues()
        self.allowed: frozenset[str] = frozenset()
        """Names of values and kinds of credentials that the user wants to see."""
        self.revision = 0
        """Increases when a value becomes known, or the user allows something."""
        self._memo: OrderedDict[str, str] = OrderedDict()
        self._memo_chars = 0
        self._counted: dict[str, set[int]] = {}
        """Kind → the hashes of the credentials that were masked."""
        self._untold: list[str] = []

    def __call__(self, text: str) -> str:
        """Return `text` masked; the same object where there is nothing to mask."""
        if len(text) < 6:
            return text
        known = self._memo.get(text)
        if known is not None:
            return text if known == text else known
        masked = self._masked(text)
        self._keep(text, masked)
        return masked

    def _masked(self, text: str) -> str:
        shown = self._covered(text)
        if "\x1b" in text:
            # A change of colour inside a credential hides it from the search.
            plain = strip_ansi(shown)
            if (safe := self._covered(plain)) != plain:
                return safe
        return shown

    def _covered(self, text: str) -> str:
        spans, formed = self.known.spans(without_images(text)), credentials(text)
        if spans and formed:  # the name right beside a value says what it is
            beside = {(one.start, one.name) for one in formed if one.name}
            spans = [one._replace(label="") if (one.start, one.name) in beside else one for one in spans]
        spans += formed
        if not spans:
            return text
        return covered(text, spans, lambda span: self._may_show(text, span))

    def _may_show(self, text: str, span: SecretSpan) -> bool:
        """Return whether the user allowed this; if not, count it."""
        if self._is_allowed(span):
            return True
        kind = kind_of(span)
        shown = self._counted.get(kind)
        if shown is None and len(self._counted) >= _MOST_KINDS:
            shown = self._counted.setdefault(BY_NAME, set())
        if shown is None:
            shown = self._counted[kind] = set()
            self._untold.append(kind)
        if len(shown) < _MOST_COUNTED:
            shown.add(hash(kind if kind in self.known.names else text[span.start : span.end]))
        return False

    def _is_allowed(self, span: SecretSpan) -> bool:
        return bool(self.allowed) and (kind_of(span) in self.allowed or (span.name != "" and span.name in self.allowed))

    def _keep(self, text: str, masked: str) -> None:
        self._memo[text] = masked
        self._memo_chars += len(text)
        while self._memo_chars > _MEMO_CHARS and self._memo:
            old, _ = self._memo.popitem(last=False)
            self._memo_chars -= len(old)

    def mask_value(self, name: str, value: str) -> str:
        """Return the repr of a variable, masked where its name or the repr itself says that it is a credential."""
        return mask_beside(f"{name} = ", value, self)

    # -- known values -------------------------------------------------------------------------

    def learn(self, name: str, value: object, *, how: str = "") -> bool:
        """Remember a value if its name says that it is a secret, and it is no ordinary one. Return whether it is new.

        `how` is `strong` where it is known that the value is a secret whatever its name.
        """
        if isinstance(value, bytes | bytearray):
            value = bytes(value[:8192]).decode("utf-8", "replace")
        if type(value) is not str:
            return False
        text = value.strip()
        how = how or names_secret(name)
        if not how or not is_secret_value(text, how):
            return False
        shown = name if _NAME.fullmatch(name) and not credentials(name) else "a secret"
        if shown in self.allowed or not self.known.add(shown, text):
            return False
        self._changed()
        return True

    def has_part(self, text: str) -> bool:
        """Return whether a text contains the beginning or the end of a known value."""
        return self.known.has_part(text)

    def reveals(self, text: str) -> bool:
        """Return whether a text that was masked earlier contains a value that is known now."""
        return any(not self._is_allowed(span) for span in self.known.spans(without_images(text)))

    def _changed(self) -> None:
        self.revision += 1
        self._memo.clear()
        self._memo_chars = 0

    # -- what the user is told, and allows ----------------------------------------------------------

    def allow(self, names: Iterable[str], *, allowed: bool) -> None:
        """Show these names and kinds from now on, or mask them again."""
        given = frozenset(names)
        self.allowed = self.allowed | given if allowed else self.allowed - given
        self._changed()

    @property
    def counts(self) -> dict[str, int]:
        """Kind → how many different credentials were masked."""
        return {kind: len(found) for kind, found in self._counted.items()}

    def take_untold(self) -> list[str]:
        """Return the kinds that were masked for the first time since the last call."""
        told, self._untold = self._untold, []
        return told


def kind_of(span: SecretSpan) -> str:
    """Return the kind under which a masked part is counted and can be allowed."""
    if span.label.startswith(VALUE):
        return span.label.removeprefix(VALUE)
    return span.label or span.name or BY_NAME
