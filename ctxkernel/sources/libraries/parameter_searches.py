"""The search for parameters of scikit-learn: its `cv_results_`, best candidate first; and a search that holds one.

0: each candidate with its scores; 1: scores and times as columns, the parameters that were tried; 2: the best and the
worst. Arrays are read, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, class_of
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import bounded, more_lines
from ctxkernel.sources.libraries.models import EstimatorSource
from ctxkernel.sources.objects.adapters import AdaptedSource, Adapter, Fact
from ctxkernel.sources.objects.facts import is_array
from ctxkernel.sources.objects.fields import FieldFacts, key_name
from ctxkernel.sources.tables.columns import cells

_SHOWN = 500
_VALUES = 20


def is_results(target: Any) -> bool:
    """Return whether it is a `cv_results_`: a dict with the candidates' parameters and the time to fit each."""
    if class_of(target) is not dict or class_of(target.get("params")) is not list or "mean_fit_time" not in target:
        return False
    count = len(target["params"])
    return all(class_of(key) is str and (key == "params" or _length(one) == count) for key, one in target.items())


def _length(column: Any) -> int:
    return len(column) if is_array(column) and column.ndim == 1 else -1


def _scorers(results: dict[str, Any]) -> list[str]:
    """Return what each score is called: `score`, or the names of several metrics."""
    return [key.removeprefix("mean_test_") for key in results if key.startswith("mean_test_")]


def _order(results: dict[str, Any]) -> list[int]:
    scorers = _scorers(results)
    ranks = results.get(f"rank_test_{scorers[0]}") if scorers else None
    count = len(results["params"])
    return sorted(range(count), key=lambda at: int(ranks[at])) if ranks is not None else list(range(count))


def _candidate(results: dict[str, Any], at: int) -> str:
    scores: list[str] = []
    for name in _scorers(results):
        mean, std = results[f"mean_test_{name}"], results.get(f"std_test_{name}")
        spread = f" ± {float(std[at]):.10g}" if std is not None else ""
        scores.append(f"{name} {cells(mean[at : at + 1])[0]}{spread}")
    parameters = results["params"][at]
    said = ", ".join(f"{key_name(key)}={brief(value, 60)}" for key, value in parameters.items())
    seconds = float(results["mean_fit_time"][at])
    return f"{one_line(said, 200) or 'defaults'} · {', '.join([*scores, f'fit {seconds:.3g} s'])}"


def candidates(results: dict[str, Any]) -> Iterator[str]:
    """Yield a line a candidate, best first."""
    scorers = _scorers(results)
    for at in _order(results)[:_SHOWN]:
        rank = f"rank {int(results[f'rank_test_{scorers[0]}'][at])}" if scorers else f"candidate {at}"
        yield f"{rank}: {_candidate(results, at)}"
    yield from more_lines(len(results["params"]) - _SHOWN, "candidates")


def _tried(results: dict[str, Any]) -> list[str]:
    found: dict[str, dict[str, None]] = {}
    for parameters in results["params"]:
        for key, value in parameters.items():
            found.setdefault(key_name(key), {})[brief(value, 40)] = None
    lines: list[str] = []
    for name, values in found.items():
        shown = ", ".join(list(values)[:_VALUES])
        lines.append(f"{name}: {plural(len(values), 'values')} ({shown}{', …' if len(values) > _VALUES else ''})")
    return lines


def _columns(results: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, column in results.items():
        if key != "params" and not key.startswith("param_"):
            facts = FieldFacts()
            facts.take_many(column.tolist())
            lines.append(f"{key}: {', '.join(facts.facts(len(column)))}")
    return lines


def _failed(results: dict[str, Any]) -> str | None:
    scorers = _scorers(results)
    if not scorers:
        return None
    scores = results[f"mean_test_{scorers[0]}"]
    count = sum(1 for one in scores.tolist() if one != one)
    return plural(count, "candidates") + " without a score (NaN)" if count else None


def _ends(results: dict[str, Any]) -> list[str]:
    order = _order(results)
    lines = [f"best: {_candidate(results, order[0])}"]
    return [*lines, f"worst: {_candidate(results, order[-1])}"] if len(order) > 1 else lines


class SearchResultsSource(AdaptedSource):
    """A view of a `cv_results_`."""

    kind = "search results"
    adapter = Adapter(
        head=lambda results: f"{plural(len(results['params']), 'candidates')} · by {', '.join(_scorers(results))}",
        facts=(
            Fact("scores", _ends, brief=True),
            Fact("failed", _failed, brief=True),
            Fact("tried", _tried, brief=True),
            Fact("columns", _columns),
        ),
        value=candidates,
    )


class SearchSource(EstimatorSource):
    """A view of a search: what it found first, then what any estimator shows."""

    kind = "estimator"

    def _results(self) -> dict[str, Any] | None:
        found = attributes(self.target).get("cv_results_")
        return found if is_results(found) else None

    def headline(self) -> str:
        """Return label, class, whether it was fitted, and the candidates."""
        found = self._results()
        tried = f" · {plural(len(found['params']), 'candidates')}" if found is not None else ""
        return f"{super().headline()}{tried}"

    def value(self) -> list[str]:
        """Return the candidates, best first, then parameters and what was learnt."""
        return self._with(super().value(), _SHOWN)

    def structure(self) -> list[str]:
        """Return the best candidates, then every parameter."""
        return self._with(super().structure(), 5)

    def summary(self) -> list[str]:
        """Return the best and the worst candidate, and what an estimator says in short."""
        found = self._results()
        ends = (
            []
            if found is None
            else [f"- {line}" for line in [*_ends(found), *(f"tried {one}" for one in _tried(found))]]
        )
        return [*ends, *super().summary()]

    def _with(self, lines: list[str], most: int) -> list[str]:
        found = self._results()
        if found is None:
            return lines
        shown = list(candidates(found))
        kept = [line for line in lines if not line.startswith("cv_results_:")]
        return [*bounded(shown, most, "candidates"), *kept]


def open_estimator(target: Any, label: str) -> EstimatorSource:
    """Return the source of an estimator; of a search its own."""
    return (SearchSource if "cv_results_" in attributes(target) else EstimatorSource)(target, label)
