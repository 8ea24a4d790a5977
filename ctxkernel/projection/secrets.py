"""Masking of credentials in texts, before they are stored and before they are projected.

Rule 1: `mask` is pure, linear and idempotent, and changes only what looks like a credential.
Rule 2: a false positive hides a few characters; a false negative reveals a key. But ordinary uses of such words
        (`max_tokens=2000`, `pad_token = "<pad>"`, `token = next(tokens)`) are not masked.
Rule 3: masking is heuristic. It knows these forms:

| kind | form |
|---|---|
| API keys | `sk-…`, `sk_live_…` `rk_live_…`, `AIza…`, `hf_…`, `npm_…`, `pypi-…`, `glpat-…` |
| GitHub | `ghp_…` `gho_…` `ghu_…` `ghs_…` `ghr_…`, `github_pat_…` |
| AWS | `AKIA…` `ASIA…` |
| Slack | `xoxb-…` `xoxp-…` and their kin |
| private keys | PEM, from `-----BEGIN … PRIVATE KEY-----` to its end, or to the end of the text |
| JWT | `eyJ….eyJ….…` |
| headers and URLs | `Bearer …`, `Basic …`, `scheme://user:password@host`, `?token=…`, `&X-Amz-Signature=…`, `&sig=…` |
| assignments | a name ending in password, passwd, pwd, passphrase, secret, token, api_key, access_key, private_key or
  credential, then `=` or `:`, then a quoted value, or a bare one that has a digit or directly follows the `=` |
| truncated | a quoted value that ends with its line or in `…`, a password in a URL that does, and a key with a digit
  that ends in `…` |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

# A prefix, then at least so many of these characters. The look-behind keeps words such as `task-…` whole, and makes
# the search linear: a run of such characters is tried once.
_EDGE = r"(?<![A-Za-z0-9_-])"
_KEYS = re.compile(
    _EDGE + r"(?:sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|AIza[A-Za-z0-9_-]{30,}"
    r"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{40,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}"
    # A truncated one, in a table or a summary, may be shorter.
    r"|(?:sk-|[sr]k_(?:live|test)_|AIza|hf_|npm_|pypi-|glpat-|gh[pousr]_|github_pat_|AKIA|ASIA|xox[a-z]-)"
    r"(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{6,}+(?=…))"
)
_PREFIXES = (
    *("sk-", "k_live_", "k_test_", "aiza", "hf_", "npm_", "pypi-", "glpat-", "akia", "asia", "xox"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
)
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:(?!-----END )[\s\S])*(?:-----END [A-Z0-9 ]{0,40}-----)?"
)
_JWT = re.compile(_EDGE + r"eyJ[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?")
_HEADER = re.compile(r"(?i)\b(bearer|basic)([ \t]+)[A-Za-z0-9._~+/-]{12,}={0,2}")
_URL = re.compile(r"(://[^\s/:@'\"<>]{0,100}:)(?!\[masked)[^\s/@'\"<>]{1,200}(?:(?=@)|(?<=[^\d…]…))")

# A signed URL. Its last value ends with the quote that the URL ends with, which the value of an assignment must not.
_QUERY = re.compile(
    r"(?i)([?&](?:[a-z0-9_.-]{0,40}(?:token|secret|signature|password|passwd|credential|api[_-]?key|access[_-]?key)|sig|key)=)"
    r"(?!\[masked)[^&\s'\"<>#\\]{6,}"
)

# Assignments are looked for in the text in lower case: a pattern that ignores case is tried at every character, one
# that does not only where a first letter fits. The name (a longer one may end in it), a closing quote of a JSON key, an
# annotation as in `token: str = …`, the sign, then the value.
_NAME = r"pass(?:word|wd|phrase)|pwd|secret|token|(?:api|access|private)[_-]?key|credential"
_SIGN = r"(?:\\?[\"'](?P<item>\])?)?\s{0,4}(?::\s{0,4}[a-z_.\[\]]{1,40}\s{0,4}(?==))?(?:=(?!=)|:)"
# A quoted one: without space in it, and not what stands between two strings (`print("token:", x, "y")`) or a template.
# Its end may have been cut off: then it ends with its line, or in `…`.
_QUOTED = (
    r"\s{0,4}[rbfu]{0,2}(?P<escaped>\\)?(?P<quote>[\"'])(?![<\[{$%,;:)\]}+])"
    r"(?P<quoted>(?:[^\"'\s\\]|(?(escaped)(?!)|\\\S)){3,}+)"
    r"(?:(?=\\?(?P=quote))|(?<=…)|(?=\\…|[\r\n]|\Z))"
)
# A bare value: with a digit, or right after the sign; not a mere number; and no bracket after it, since an expression
# shows no secret. Nor does the right side of `frame["token"] = …`, unless it is quoted.
_CHAR = r"[^\s\"'`,;&()\[\]{}<>\\]"
_BARE = (
    rf"(?(item)(?!))(?:[ \t]{{1,4}}(?={_CHAR}{{0,200}}?\d))?"
    rf"(?!\d+(?:\.\d+)?(?!{_CHAR}))(?P<bare>{_CHAR}{{6,}}+)(?![(\[{{\"'])"
)
_ASSIGNED = re.compile(rf"(?:{_NAME}){_SIGN}(?:{_QUOTED}|{_BARE})")
_NAMES = ("passw", "passphrase", "pwd", "secret", "token", "credential", "api", "access", "private")
_ASCII_LOWER = {upper: upper + 32 for upper in range(65, 91)}


def _assignments(text: str, low: str) -> str:
    for word in _NAMES:
        if word in low:
            break
    else:
        return text
    if len(low) != len(text):  # a few letters, as İ, grow in lower case; places must stay places
        low = text.translate(_ASCII_LOWER)
    out: list[str] = []
    done = 0
    for found in _ASSIGNED.finditer(low):
        start, end = found.span("bare" if found["bare"] is not None else "quoted")
        out += [text[done:start], "[masked]"]
        done = end
    return "".join([*out, text[done:]]) if out else text


def _keep_name(found: re.Match[str]) -> str:
    return found[1] + "[masked]"


def _header(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}[masked]"


# Words of which one must occur (in lower case), the pattern, and its replacement. The words are searched first, since
# most texts contain none and a regular expression is a hundred times slower.
_TABLE: tuple[tuple[tuple[str, ...], re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (("private key-----",), _PEM, "[masked: private key]"),
    (("eyj",), _JWT, "[masked: token]"),
    (_PREFIXES, _KEYS, "[masked: key]"),
    (("bearer", "basic"), _HEADER, _header),
    (("://",), _URL, _keep_name),
    (("token=", "secret=", "signature=", "passw", "credential=", "key=", "sig="), _QUERY, _keep_name),
)


def mask(text: str) -> str:
    """Return `text` with credentials replaced by `[masked…]`; the same object where there are none."""
    if len(text) > _SHORT:
        return _masked(text)
    masked = _known(text)
    return text if masked == text else masked


def _masked(text: str) -> str:
    low = text.lower()
    before = text
    for words, pattern, instead in _TABLE:
        for word in words:
            if word in low:
                text = pattern.sub(instead, text)
                break
    return _assignments(text, low if text is before else text.lower())


_SHORT = 200
_known = lru_cache(256)(_masked)  # a cell's source, and a name with its value, are masked several times a turn


def mask_value(name: str, value: str) -> str:
    """Return the repr of a variable, masked where its name or the repr itself says that it is a credential."""
    opening = f"{name} = "
    masked = mask(together := opening + value)
    if masked is together:
        return value
    return masked[len(opening) :] if masked.startswith(opening) else mask(value)
