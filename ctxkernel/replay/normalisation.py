"""Makes texts comparable: parts that differ at each run of the same program without meaning get one spelling.

Rule 1: a rule has a name and is a function from text to text; `RULES` holds the rules in the order in which they are
        applied, and accepts more: `RULES["run id"] = lambda text: re.sub(r"run-\\w+", "run", text)`.
Rule 2: a rule masks no more than its name says. Masking all hexadecimal numbers or all dates would hide results: an
        address is masked only in the forms that Python prints, a date only if it is that of the run.
Rule 3: a rule that fails changes nothing. Each takes linear time; texts are the bounded copies of the timeline.

The rules mask: `path` temporary files and folders, the files that cells are compiled as, a process's folder in /proc;
`address` addresses in default reprs; `object id` ids made at each run, also in HTML; `prompt` numbers of prompts in
tracebacks and warnings; `figure size` the text beside a figure, which is compared by its pixels; `clock` durations
that are named as such; `now` times of the run; `process` numbers of processes and threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from time import gmtime, localtime

from ctxkernel.core.text import strip_ansi

NormalisationRule = Callable[[str], str]

TimeSpan = tuple[float, float]
"""The time when an execution ran: Unix seconds, begin and end."""

LINE = 4000
"""A longer line is data (HTML on one line, a base64 text), in which no progress bar is searched."""

PatternTable = tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]
"""Words of which one must occur, the pattern, its replacement. Searching for a word takes a hundredth of the time."""


def _mask(text: str, table: PatternTable) -> str:
    for words, pattern, instead in table:
        for word in words:
            if word in text:
                text = pattern.sub(instead, text)
                break
    return text


# -- the terminal ---------------------------------------------------------------------------------


def overwritten(text: str) -> str:
    """Keep the last state of a line that carriage returns or backspaces overwrote."""
    if "\r" not in text and "\b" not in text:
        return text
    lines = [_last_state(line) for line in text.replace("\r\n", "\n").split("\n")]
    return "\n".join(lines)


def _last_state(line: str) -> str:
    parts = [part for part in line.split("\r") if part.strip()]
    if not parts:
        return ""
    # A shorter state would leave the end of a longer one, but progress bars fill it up with blanks.
    line = parts[-1]
    if "\b" not in line:
        return line
    out: list[str] = []
    at = 0
    for sign in line:
        if sign == "\b":
            at = max(0, at - 1)
        else:
            out[at : at + 1] = [sign]
            at += 1
    return "".join(out)


# -- progress bars --------------------------------------------------------------------------------

_BLOCKS = "\u2588\u2589\u258a\u258b\u258c\u258d\u258e\u258f\u2591\u2592\u2593\u2501\u2578\u257a\u2500\u25a0"
_COUNT = r"[\d.,]+[kKMGTP]?i?B?"
_TIME = r"(?:\d+:)?\d+:\d\d|\?"
_TQDM = re.compile(
    rf"(?P<share>\d{{1,3}}%)?\|[^|\n]{{0,300}}\|[ ]{{0,4}}(?P<count>{_COUNT}/{_COUNT})"
    rf"[ ]\[(?:{_TIME})(?:<(?:{_TIME}))?(?:,[ ]*[\d.?e+-]+[ ]?[\w/]*(?:/s|s/[\w/]+))?(?P<more>[^\]\n]{{0,300}})\]"
)
_TQDM_PLAIN = re.compile(
    rf"(?P<count>\b\d\w{{0,20}})[ ]\[(?:{_TIME}),[ ]*[\d.?e+-]+[ ]?\w*(?:/s|s/\w+)(?P<more>[^\]\n]*)\]"
)
_STEP = r"[ ][\d.]+(?:ms|us|s)/(?:step|epoch|sample)"
_KERAS = re.compile(
    rf"(?P<count>\b\d+/\d+)[ ](?:\[[=>.]{{5,100}}\]|[{_BLOCKS}]{{5,100}})(?:[ ]-)?"
    rf"(?:[ ](?:ETA:[ ])?(?:\d+[dhms]|\d+ms|(?:\d+:)+\d\d)(?:{_STEP})?|{_STEP})"
)
_SPEED, _LEFT = r"[ ]+[\d.]+[ ]?[kKMGT]?i?B/s", r"[ ]+(?:eta[ ])?(?:\d+:)+\d\d"
_RATE = re.compile(
    rf"[ ]{{0,20}}[{_BLOCKS}]{{5,200}}[ ]{{0,4}}(?P<count>{_COUNT}/{_COUNT}(?:[ ][kKMGT]?i?B)?|\d{{1,3}}%)?"
    rf"(?:{_SPEED}(?:{_LEFT})?|{_LEFT})"
)
_WIDGET = re.compile(
    r"\b(?:HBox|VBox)\(children=\((?:(?!\n).){0,2000}?(?:Float|Int)Progress\((?:(?!\n).){0,2000}", re.ASCII
)
_JOBLIB = re.compile(r"(\[Parallel\(n_jobs=-?\d+\)\]:[^\n|]*\|[ ]elapsed:)[ ]*[\d.]+(?:s|min)(?:[ ]remaining:[^\n]*)?")


def progress(text: str) -> str:
    """Mask bars, times and rates of progress bars (tqdm, Keras, pip, rich, joblib, widgets); keep the counts."""
    if not any(sign in text for sign in ("|", "[", "Progress", "\u2501")):
        return text
    lines = text.split("\n")
    for n, line in enumerate(lines):
        if 8 <= len(line) <= LINE:
            lines[n] = _bar(line)
    return "\n".join(lines)


def _bar(line: str) -> str:
    line = _TQDM.sub(lambda found: f"{found['share'] or ''} {found['count']} <progress>{found['more']}", line)
    line = _TQDM_PLAIN.sub(r"\g<count> <progress>\g<more>", line)
    line = _KERAS.sub(r"\g<count> <progress>", line)
    line = _RATE.sub(lambda found: f" {found['count'] or ''} <progress>", line)
    line = _WIDGET.sub("<progress>", line)
    return _JOBLIB.sub(r"\1 <progress>", line)


# -- paths, addresses, ids and numbers ---------------------------------------------------

_PATHS: PatternTable = (
    (("<ipython-input-",), re.compile(r"<ipython-input-\d+-[0-9a-f]+>"), "<cell>"),
    (("/ipykernel_",), re.compile(r"(?:/[\w.+-]+){1,8}/ipykernel_\d+/\d+\.py"), "<cell>"),
    (("\\ipykernel_",), re.compile(r"(?:[A-Za-z]:)?(?:\\[\w .~+-]+){1,8}\\ipykernel_\d+\\\d+\.py"), "<cell>"),
    (("ipykernel_",), re.compile(r"ipykernel_\d+"), "ipykernel"),
    (("/proc/",), re.compile(r"/proc/\d+/"), "/proc/pid/"),
    (("var/folders/",), re.compile(r"/(?:private/)?var/folders/\w\w/\w+/T\b"), "<temp>"),
    (
        ("/tmp", "<temp>/tmp"),  # noqa: S108 - looked for, not used
        re.compile(r"(?<![\w-])((?:/tmp|/var/tmp|/dev/shm|<temp>)/(?:[\w.-]+/){0,3}?)tmp[a-z0-9_]{8}(?![a-z0-9_])"),
        r"\1<tmp>",
    ),
    (("Temp\\tmp",), re.compile(r"(\\Temp\\)tmp[a-z0-9_]{8}(?![a-z0-9_])"), r"\1<tmp>"),
)


_ADDRESSES: PatternTable = (
    (("0x",), re.compile(r"\bat 0x[0-9a-fA-F]{4,16}\b"), "at 0x…"),
    (
        ("0x",),
        re.compile(r"(<[A-Za-z_][\w.]*(?: [^<>\n]{0,200})?[ =:(])0x[0-9a-fA-F]{4,16}(?=[^<>\n]{0,200}>)"),
        r"\g<1>0x…",
    ),
)
_UUID = re.compile(r"(?<![0-9a-fA-F-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F-])")
_IDS: PatternTable = (
    (("id",), re.compile(r"\bid(=|: ?|\()\d{13,15}\b"), r"id\1…"),
    (("-",), _UUID, "<uuid>"),
    (("MODEL_", "model_id"), re.compile(r"\b(IPY_MODEL_|model_id=['\"]?|\"model_id\": ?\")[0-9a-f]{32}\b"), r"\1…"),
    (
        ("sk-", "altair-viz-", "vega-embed-"),
        re.compile(r"\b((?:sk-(?:container-id|estimator-id)|altair-viz|vega-embed)-)[0-9a-f]+\b"),
        r"\1…",
    ),
    (("<table", "<style"), re.compile(r"(?<=[\"'#\s])T_[0-9a-f]{5}(?=[\"'_\s])"), "T_…"),
    (
        ("<",),
        re.compile(r"\b(id|for|data-root-id|data-target|aria-labelledby)=(['\"])(?:[\w-]*[-_])?[0-9a-f]{16,40}\2"),
        r"\1=\2…\2",
    ),
    (
        ("<",),
        re.compile(r"\b((?:mpl|plotly|fig_el|bokeh|df|container)[-_]{1,3}(?:[a-z]{1,20}[-_]){0,4})[0-9a-f]{8,40}\b"),
        r"\1…",
    ),
    (("<script",), re.compile(r"\b([A-Za-z_]\w{0,40}?)[0-9a-f]{32}\b"), r"\1…"),
    (("bokeh", "Bokeh"), re.compile(r"(['\"]p)\d{4,6}(?=['\"])"), r"\1…"),
)


_PROMPTS: PatternTable = (
    (("In", "Out"), re.compile(r"\b(Cell In|Input In|In|Out) ?\[\d+\]"), r"\1 [n]"),
    (("[n], ",), re.compile(r"(\[n\], (?:in )?)<(?:cell line: \d+|module)>(?:\(\))?"), r"\1<cell>"),
)


_FIGURES: PatternTable = ((("<Figure",), re.compile(r"<Figure size [\d.e+]+x[\d.e+]+ with \d+ Axes>"), "<Figure>"),)
_PROCESS: PatternTable = (
    (("pid", "PID", "rocess"), re.compile(r"\b(pid|PID|process|Process)([ =:#]{1,2})\d{2,8}\b"), r"\1\2…"),
    (
        ("Worker-", "Thread", "Process-"),
        re.compile(r"\b([A-Z]?[a-z]{0,10}PoolWorker-|Thread-|ThreadPoolExecutor-\d{1,6}_|Process-)\d+\b"),
        r"\1…",
    ),
    (
        ("Thread(",),
        re.compile(r"(Thread\([^()\n]{0,80}(?:\([^()\n]{0,80}\))?[^()\n]{0,80}, started(?: daemon)? )\d+"),
        r"\1…",
    ),
)


# -- time -----------------------------------------------------------------------------------------

_NUMBER = r"(?<![\d.,])\d{1,12}(?:[.,]\d{1,12}){0,4}(?:e[+-]?\d{1,3})?"
_UNIT = r"(?:ns|[uµμ]s|ms|s|sec(?:onds?)?|min(?:utes?)?|h|hours?|d|days?)"
_LOOP = "<duration> per loop"
_LENGTH = rf"{_NUMBER} ?{_UNIT}(?:,? {_NUMBER} ?{_UNIT}){{0,4}}"
_NAMED = (
    r"Wall time|Compiler|Parser|[Ee]lapsed(?: time)?|[Tt]ook|Total time|(?:[Ff]inished|[Dd]one|[Cc]ompleted|[Rr]an) in"
)
_CLOCK: PatternTable = (
    (
        ("per loop (",),
        re.compile(rf"{_LENGTH} ± {_LENGTH} per loop \(mean ± std\. dev\. of \d+ runs?, [\d,]{{1,20}} loops? each\)"),
        _LOOP,
    ),
    ((" per loop",), re.compile(rf"(?<![\d,])[\d,]{{1,20}} loops?, best of \d+: {_LENGTH} per loop"), _LOOP),
    (("The slowest run",), re.compile(r"The slowest run took [\d.]+ times longer than the fastest\.[^\n]*\n?"), ""),
    (("CPU times",), re.compile(rf"\bCPU times: (?:(?:user|sys|total):? {_LENGTH}(?:, )?)+"), "CPU times: <duration>"),
    (
        ("time", "Compiler", "Parser", "lapsed", "ook", " in "),
        re.compile(rf"\b({_NAMED})(: | )(?:{_LENGTH})(?![\w.])"),
        r"\1\2<duration>",
    ),
)


def trailing_spaces(text: str) -> str:
    """Remove spaces at the ends of lines, and empty lines at the end."""
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n")


class Now:
    """Masks dates and times of the run itself, to the minute; other dates are data."""

    slack = 60.0

    def __call__(self, text: str) -> str:
        """Return `text` unchanged: the time of the run is not known."""
        return text

    def at(self, span: TimeSpan, text: str) -> str:
        """Return `text` with the times that lie in `span` spelled `<now>`, and its days `<today>`."""
        low, high = span[0] - self.slack, span[1] + self.slack

        def masked(found: re.Match[str]) -> str:
            return "<now>" if _moments(found, low, high) else found[0]

        if any(str(int(at))[:4] in text for at in (low, high)):
            text = _EPOCH.sub(lambda found: "<now>" if low <= _seconds(found[0]) <= high else found[0], text)
        if any(str(gmtime(at + day)[0]) in text for at in (low, high) for day in (-86400, 86400)):
            for pattern in (_STAMP, _REPR, _CTIME):
                text = pattern.sub(masked, text)
            for day in _days(low, high):
                text = day.sub("<today>", text)
        if ":" not in text:
            return text
        return _TIME_OF_DAY.sub(lambda found: "<now>" if _on_clock(found, low, high) else found[0], text)


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_STAMP = re.compile(
    r"(?<![\d.])(?P<Y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)[T ](?P<H>\d\d):(?P<M>\d\d)(?::(?P<S>\d\d)(?:[.,]\d{1,9})?)?"
    r"(?: ?(?:Z|UTC|GMT|(?P<zone>[+-]\d\d:?\d\d)))?(?!\d)"
)
_REPR = re.compile(
    r"(?<=\bdatetime\()(?P<Y>\d{4}), (?P<m>\d{1,2}), (?P<d>\d{1,2}), (?P<H>\d{1,2}), (?P<M>\d{1,2})"
    r"(?:, (?P<S>\d{1,2})(?:, \d{1,6})?)?"
)
_CTIME = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? "
    r"(?:(?P<month>[A-Z][a-z]{2}) {1,2}(?P<d>\d{1,2})|(?P<d2>\d{1,2}) (?P<month2>[A-Z][a-z]{2}) (?P<Y2>\d{4}))"
    r" (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?: [A-Z]{3,4}| (?P<zone>[+-]\d{4}))?(?: (?P<Y>\d{4}))?"
)
_EPOCH = re.compile(r"(?<![\w.])\d{10}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?!\w)")
_TIME_OF_DAY = re.compile(r"(?<![\d:.])(\d\d):(\d\d):(\d\d)(?:[.,]\d{1,6})?(?![\d:])")


def _moments(found: re.Match[str], low: float, high: float) -> bool:
    """Return whether a time, local or UTC or of the written zone, is between `low` and `high`."""
    parts = found.groupdict()
    month = parts.get("month") or parts.get("month2")
    try:
        at = datetime(  # noqa: DTZ001 - the zone is not known
            int(parts.get("Y") or parts.get("Y2") or 0),
            _MONTHS.index(month) + 1 if month else int(parts["m"]),
            int(parts.get("d") or parts.get("d2") or 0),
            int(parts["H"]),
            int(parts["M"]),
            int(parts["S"] or 0),
        )
        if zone := parts.get("zone"):
            hours, minutes = int(zone[1:3]), int(zone[-2:])
            at -= timedelta(hours=hours, minutes=minutes) * (1 if zone[0] == "+" else -1)
        return any(low - 1 <= at.replace(tzinfo=zone).timestamp() <= high for zone in (UTC, None))
    except (ValueError, OverflowError, OSError):  # 30 February, the year 0
        return False


def _seconds(digits: str) -> float:
    whole = digits.partition(".")[0]
    return float(digits) / 10.0 ** (len(whole) - 10)  # seconds, or their thousandths, millionths, billionths


def _days(low: float, high: float) -> Iterator[re.Pattern[str]]:
    """Yield patterns for the spellings of the days in the span."""
    days = {localtime(at)[:3] for at in (low, high)} | {gmtime(at)[:3] for at in (low, high)}
    for year, month, day in days:
        spelled = "|".join(
            (
                f"{year}-{month:02}-{day:02}",
                f"{month:02}/{day:02}/{year}",
                f"{day:02}/{month:02}/{year}",
                rf"{day:02}\.{month:02}\.{year}",
                rf"(?<=\bdate\(){year}, {month}, {day}(?=\))",
                f"{_MONTHS[month - 1]} {day:02},? {year}",
                f"{day:02} {_MONTHS[month - 1]} {year}",
            )
        )
        yield re.compile(rf"(?<!\d)(?:{spelled})(?!\d)")


def _on_clock(found: re.Match[str], low: float, high: float) -> bool:
    shown = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    offsets = {0, localtime(low).tm_gmtoff}
    return any((shown - low - offset) % 86400 <= high - low for offset in offsets)


now = Now()

RULES: dict[str, NormalisationRule] = {
    "ansi": strip_ansi,
    "overwritten": overwritten,
    "progress": progress,
    "path": partial(_mask, table=_PATHS),
    "address": partial(_mask, table=_ADDRESSES),
    "object id": partial(_mask, table=_IDS),
    "prompt": partial(_mask, table=_PROMPTS),
    "figure size": partial(_mask, table=_FIGURES),
    "clock": partial(_mask, table=_CLOCK),
    "now": now,
    "process": partial(_mask, table=_PROCESS),
    "trailing spaces": trailing_spaces,
}
"""The rules by name, in the order in which they are applied."""


def normalise(text: str, rules: Iterable[str] | None = None, *, span: TimeSpan | None = None) -> str:
    """Return `text` after the rules of these names (all, where None), in the order of `RULES`.

    `span` is the time of the run. Unknown names are ignored; a rule that raises changes nothing.
    """
    wanted = None if rules is None else set(rules)
    for name, rule in list(RULES.items()):
        if wanted is not None and name not in wanted:
            continue
        try:
            text = str(rule.at(span, text) if isinstance(rule, Now) and span is not None else rule(text))
        except Exception:  # a rule of the user's must not break the comparison
            continue
    return text
