"""The rules of a Messages request: every known reason for which the API refuses a request.

Rule 1: each rule is one small function (`history/clauses.py`); `RULES` lists them all.
Rule 2: pure: a function of the body and of the model's capabilities, which are data. No I/O, no clock.
Rule 3: linear in the size of the body, and never raises: a rule that fails is itself a violation, because a body
        that could not be checked must not be sent (law 5).

No rule forbids these two, because the API accepts them: a prefix that is too short to be cached, and a breakpoint more
than 20 blocks after the last one. A body does not show whether a thinking block, or anything before it, was changed;
the keeper of the history must know that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ctxkernel.core.dataclasses import asdict, dataclass
from ctxkernel.core.timeline_events import Json
from ctxkernel.history import clauses
from ctxkernel.history.capabilities import Capabilities
from ctxkernel.history.clauses import Rule
from ctxkernel.history.request import read


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason why the API would refuse a request."""

    rule: str
    """Name of the rule's function."""
    path: str
    """The place in the body, for example `messages[0].content[3].text`; empty for the whole body."""
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class RuleReport:
    """The outcome of a check."""

    ok: bool
    violations: tuple[Violation, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return `{ok, violations: [{rule, path, message, fix}]}`."""
        return {"ok": self.ok, "violations": list(map(asdict, self.violations))}


RULES: tuple[Rule, ...] = (
    clauses.shape,
    clauses.json_values,
    clauses.surrogates,
    clauses.size,
    clauses.images,
    clauses.gated_fields,
    clauses.sampling,
    clauses.first_role,
    clauses.alternation,
    clauses.prefill,
    clauses.trailing_space,
    clauses.system_place,
    clauses.blank_text,
    clauses.unanswered_calls,
    clauses.results_first,
    clauses.orphan_results,
    clauses.single_results,
    clauses.unique_calls,
    clauses.call_ids,
    clauses.tool_names,
    clauses.error_results,
    clauses.forced_choice,
    clauses.thinking_signed,
    clauses.thinking_last,
    clauses.thinking_budget,
    clauses.thinking_first,
    clauses.thinking_type,
    clauses.cache_count,
    clauses.cache_ttl,
    clauses.cache_target,
    clauses.context_edits,
)


def check(body: object, capabilities: Capabilities, *, rules: Sequence[Rule] = RULES) -> RuleReport:
    """Return the reasons for which the API would refuse `body`. Never raises."""
    request = read(body)
    found: list[Violation] = []
    for rule in rules:
        name = getattr(rule, "__name__", "rule")
        try:
            found += [Violation(name, *fault) for fault in rule(request, capabilities)]
        except Exception as fault:  # do not send a body that cannot be checked
            message = f"the rule could not be checked: {type(fault).__name__}"
            found.append(Violation(name, "", message, "send plain JSON values"))
    return RuleReport(not found, tuple(found))
