"""The last check of a request, at every attempt, independent of the history and the store.

Rule 1: the check reads the request's JSON as the client will write it, with extra fields, serialised and parsed again,
        so that a rule sees the same as the server. The betas are those of the request's own header.
Rule 2: an invalid or unreadable request never leaves the process (law 5).
Rule 3: no header is kept, shown or raised; text that looks like a credential in a body's ids is masked.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import anthropic
from anthropic import APIRequest

from ctxkernel.agent.failures import bounded
from ctxkernel.core.errors import CtxError
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.rules import RuleReport, Violation, check
from ctxkernel.projection.secrets import mask

BETAS = "anthropic-beta"
"""The header that names the betas, separated by commas."""
_SHOWN = 3
"""Most violations in the error's text; the report has all."""


class RequestRefused(CtxError, ValueError):
    """A request that was not sent, since the model's API would refuse it; `report` has the violations."""

    def __init__(self, model: str, report: RuleReport) -> None:
        self.model = model
        self.report = report
        found = [bounded(f"{v.path or 'the body'}: {v.message} ({v.fix})") for v in report.violations[:_SHOWN]]
        more = len(report.violations) - len(found)
        rest = f"; and {more} more" if more > 0 else ""
        super().__init__(f"not sent to {bounded(model) or 'the model'}: {'; '.join(found)}{rest}")


class RequestCheck(anthropic.Middleware):
    """Checks every Messages request of a client before it is sent: `Anthropic(middleware=[…, RequestCheck()])`.

    It must be the last of the list, since a later one could change the request. `betas` are those of the client's own
    default headers: a middleware sees only the request's. It works with the synchronous and the asynchronous client, at
    every attempt. Raises RequestRefused, which the client does not retry. `count_tokens` and batches are not checked.
    """

    def __init__(self, *, betas: Iterable[str] = ()) -> None:
        self.betas = frozenset(betas)

    def handle(self, request: APIRequest, call_next: Callable[[APIRequest], Any]) -> Any:
        """Check a request, then continue."""
        self.inspect(request)
        return call_next(request)

    async def handle_async(self, request: APIRequest, call_next: Callable[[APIRequest], Awaitable[Any]]) -> Any:
        """Check a request, then continue."""
        self.inspect(request)
        return await call_next(request)

    def inspect(self, request: APIRequest) -> RuleReport | None:
        """Return the report on a Messages request, None for any other. Raises RequestRefused for a violation."""
        if request.method.upper() != "POST" or not urlsplit(request.url).path.rstrip("/").endswith("/v1/messages"):
            return None
        model, report = self._report(request)
        if not report.ok:
            raise RequestRefused(model, report)
        return report

    def _report(self, request: APIRequest) -> tuple[str, RuleReport]:
        try:
            body: Any = _body(request)
        except Exception as fault:  # an unreadable body cannot be checked
            message = f"the body cannot be read: {type(fault).__name__}"
            return "", RuleReport(False, (Violation("json_values", "", message, "send plain JSON values"),))
        named = cast("Any", body).get("model") if isinstance(body, Mapping) else None
        model = mask(named) if isinstance(named, str) else ""
        report = check(cast("Any", body), capabilities_for(model, betas=self.betas | _betas(request.headers)))
        found = (Violation(v.rule, mask(v.path), mask(v.message), mask(v.fix)) for v in report.violations)
        return model, RuleReport(report.ok, tuple(found))


def _body(request: APIRequest) -> object:
    """Return the JSON that the client will send, parsed from text. Raises any error of the serialisation."""
    options = request.options
    if options.content is not None:
        if not isinstance(options.content, str | bytes | bytearray):
            raise TypeError("a stream can be read only once")
        return json.loads(options.content)
    data: object = options.json_data
    extra = options.extra_json
    if extra is not None:
        data = {**cast("Mapping[str, object]", data or {}), **extra}
    if isinstance(data, Mapping):
        given = cast("Mapping[str, object]", data)
        data = {key: value for key, value in given.items() if not isinstance(value, anthropic.Omit)}
    # Lone surrogates and NaN are kept: they are violations of their own, and sending them would fail.
    return json.loads(json.dumps(data, default=_plain))


def _plain(value: object) -> object:
    """Return the JSON value for a type of the client. Raises TypeError for an iterator: reading would consume it."""
    if hasattr(value, "model_dump"):
        left_out = getattr(value, "__api_exclude__", None)
        return cast("Any", value).model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=left_out)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    if isinstance(value, set | frozenset | tuple):
        return list(cast("Iterable[object]", value))
    if hasattr(value, "isoformat"):
        return cast("Any", value).isoformat()
    raise TypeError(type(value).__name__)


def _betas(headers: Mapping[str, object]) -> frozenset[str]:
    """Return the betas in a request's headers."""
    named = [value for name, value in headers.items() if name.lower() == BETAS and isinstance(value, str)]
    return frozenset(beta.strip() for value in named for beta in value.split(",") if beta.strip())
