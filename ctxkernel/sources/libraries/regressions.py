"""Results of statsmodels as a source: 0 the table of coefficients, 1 the model, its fit and the table, 2 in short.

Rule 1: statsmodels computes much when it is asked first, and keeps it in the results. So a copy of their attributes
        with a cache of its own is asked, and the results stay as they are.
Rule 2: what would look at every observation is computed for up to `_CELLS` cells of data only; nothing is fitted anew.
Rule 3: computed numbers are shown with 6 digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, class_module, class_of, type_name
from ctxkernel.core.text import align, one_line, plural
from ctxkernel.sources.base.amounts import Line, NamedLine, more_lines
from ctxkernel.sources.objects.adapters import AdaptedSource, Adapter, Fact
from ctxkernel.sources.objects.fields import plain

_CELLS = 2_000_000
_TERMS = 300
_CRITERIA = (
    ("R²", "rsquared"),
    ("adjusted R²", "rsquared_adj"),
    ("F", "fvalue"),
    ("p of F", "f_pvalue"),
    ("log-likelihood", "llf"),
    ("AIC", "aic"),
    ("BIC", "bic"),
    ("deviance", "deviance"),
)


class _Results:
    """A copy of the results that may be asked, and the names of their terms."""

    def __init__(self, target: Any) -> None:
        held = attributes(target).get("_results", target)
        own = attributes(held)
        self.own, self.kind = own, class_of(held)
        self.model = own.get("model")
        self.params: list[float] = [float(one) for one in own["params"]]
        asked: Any = None
        if class_module(self.kind).startswith("statsmodels.") and _is_theirs(self.model):
            asked = _copy(self.kind, {**own, "_cache": {**(own.get("_cache") or {})}})
        self.asked: Any = asked
        names = own.get("param_names") or self.named("exog_names")
        plain = class_of(names) in (list, tuple) and len(names) == len(self.params)
        self.names = (
            [one_line(str(one), 60) for one in names] if plain else [f"x{at}" for at in range(len(self.params))]
        )
        self.light = int(getattr(attributes(self.model).get("exog"), "size", None) or 0) <= _CELLS

    def named(self, what: str) -> Any:
        """Return `exog_names` or `endog_names` of the model; None of a model of the user's."""
        return getattr(self.model, what, None) if self.asked is not None else None

    def said(self, name: str) -> Any:
        """Return an attribute, computed in the copy; None where there is none."""
        if name in self.own:
            return self.own[name]
        try:
            return getattr(self.asked, name) if self.asked is not None else None
        except Exception:  # of a model that has no such thing
            return None

    def columns(self) -> list[tuple[str, list[float]]]:
        """Return the columns of the table of coefficients."""
        found: list[tuple[str, list[float]]] = [("coef", self.params)]
        statistic = "t" if self.said("use_t") else "z"
        for title, name in (("std err", "bse"), (statistic, "tvalues"), (f"P>|{statistic}|", "pvalues")):
            column = self.said(name)
            if column is not None and len(column) == len(self.params):
                found.append((title, [float(one) for one in column]))
        try:
            ends = [[float(one) for one in row] for row in self.asked.conf_int()]
            found += [("[0.025", [row[0] for row in ends]), ("0.975]", [row[1] for row in ends])]
        except Exception:  # of results without a covariance
            return found
        return found


def _copy(kind: Any, own: dict[str, Any]) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(own)
    return made


def _is_theirs(model: Any) -> bool:
    return class_module(class_of(model)).startswith("statsmodels.")


def _head(found: _Results) -> str:
    name = found.named("endog_names")
    of = [f"of {one_line(name, 60)}"] if isinstance(name, str) else []
    model = attributes(found.model)
    rows = found.own.get("nobs", model.get("nobs", model.get("_nobs")))
    counted = [plural(int(rows), "observations")] if rows is not None else []
    return " · ".join([type_name(class_of(found.model)).rpartition(".")[2], *of, *counted])


def _table(found: _Results) -> Iterator[str]:
    columns = found.columns()
    rows = [["", *(title for title, _ in columns)]]
    for at, name in enumerate(found.names[:_TERMS]):
        rows.append([name, *(f"{column[at]:.6g}" for _, column in columns)])
    head, *lines = align(rows, right=range(1, len(columns) + 1), gap="  ")
    yield Line(head)
    for name, line in zip(found.names, lines, strict=False):
        yield NamedLine(line, name, "terms", what="terms")
    yield from more_lines(len(found.names) - _TERMS, "terms")


def _formula(found: _Results) -> str | None:
    formula = attributes(found.model).get("formula")
    return one_line(formula, 300) if isinstance(formula, str) else None


def _fit(found: _Results) -> str:
    names = (("df of the model", "df_model"), ("df of the residuals", "df_resid"), ("covariance", "cov_type"))
    parts = [f"{title} {brief(_plain(found.own[name]))}" for title, name in names if found.own.get(name) is not None]
    returned: Any = found.own.get("mle_retvals")
    converged = found.own.get("converged")
    if converged is None and class_of(returned) is dict:
        converged = returned.get("converged")
    if converged is not None:
        parts.append("converged" if converged else "NOT converged")
    return ", ".join(parts)


def _plain(value: Any) -> Any:
    value = plain(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _criteria(found: _Results) -> str | None:
    if not found.light:
        return f"not computed: more than {_CELLS:,} cells of data"
    parts: list[str] = []
    for title, name in _CRITERIA:
        value = found.said(name)
        if isinstance(value, float):
            parts.append(f"{title} {value:.6g}")
    return ", ".join(parts) or None


def _significant(found: _Results) -> str | None:
    values = found.said("pvalues")
    if values is None or len(values) != len(found.names):
        return None
    known = [(name, float(p)) for name, p in zip(found.names, values, strict=True) if float(p) < 0.05]
    shown = ", ".join(f"{name} ({p:.3g})" for name, p in sorted(known, key=lambda row: row[1])[:20])
    shown += ", …" * (len(known) > 20)
    return f"{len(known):,} of {len(found.names):,} terms{f': {shown}' if shown else ''}"


def _stamp(target: Any) -> str:
    """Return the parameters: results do not change, but for what they keep of their own."""
    return " ".join(
        f"{float(one):.17g}" for one in attributes(attributes(target).get("_results", target))["params"][:_TERMS]
    )


class RegressionSource(AdaptedSource):
    """A view of the results of a model of statsmodels."""

    kind = "results"
    adapter = Adapter(
        head=_head,
        facts=(
            Fact("formula", _formula, brief=True),
            Fact("fit", _fit, brief=True),
            Fact("criteria", _criteria, brief=True),
            Fact("coefficients", _table),
            Fact("p below 0.05", _significant, brief=True),
        ),
        value=_table,
        read=_Results,
        stamp=_stamp,
    )
