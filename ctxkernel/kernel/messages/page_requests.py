"""The requests of the panel to the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict


class OpenRequest(TypedDict):
    """The data of the comm's opening."""

    protocol: int
    version: str


class SnapshotRequest(TypedDict):
    """Asks for a snapshot."""

    type: Literal["snapshot"]


class PlanRequest(TypedDict):
    """Asks for the effect of a return or a re-run."""

    type: Literal["plan"]
    id: str
    action: Literal["goto", "undo", "rerun"]
    target: str
    before: NotRequired[bool]
    upto: NotRequired[str]


class EventsRequest(TypedDict):
    """Asks for the events that the condensation `of` replaces."""

    type: Literal["events"]
    id: str
    of: str


class CompareRequest(TypedDict):
    """Asks for the differences of two projections; a `new` of null is the newest one."""

    type: Literal["compare"]
    id: str
    old: str
    new: str | None


class DifferenceRequest(TypedDict):
    """Asks for the differences of two states, by value: of all names, or of some.

    A place is an argument of `%ctx goto`; a `new` of null is HEAD.
    """

    type: Literal["difference"]
    id: str
    old: str
    new: str | None
    names: NotRequired[Sequence[str]]


class RowsRequest(TypedDict):
    """Asks for rows: `s1.1+20 s40.2` are twenty from `s1.1` on and one more; at most 200 in one answer."""

    type: Literal["rows"]
    id: str
    runs: str


class CellsRequest(TypedDict):
    """Asks for the notebook's cells as they were at the execution `at` (null: HEAD), or for one of them."""

    type: Literal["cells"]
    id: str
    at: str | None
    cell: NotRequired[str]


class MarksRequest(TypedDict):
    """Asks for the marks of some cells, at most 50, or of all."""

    type: Literal["marks"]
    id: str
    names: NotRequired[Sequence[str]]


class DetailsRequest(TypedDict):
    """Asks for the execution `of` in full."""

    type: Literal["details"]
    id: str
    of: str


class SearchRequest(TypedDict):
    """Asks for the executions to which all given fields apply; `name` may contain `*`."""

    type: Literal["search"]
    id: str
    text: NotRequired[str]
    name: NotRequired[str]
    author: NotRequired[str]
    status: NotRequired[str]
    verdict: NotRequired[str]
    branch: NotRequired[str]


class ProjectionRequest(TypedDict):
    """Asks for the blocks of the newest projection."""

    type: Literal["projection"]
    id: str


class BodyRequest(TypedDict):
    """Asks for the newest request as it would be sent."""

    type: Literal["request"]
    id: str


class ImageRequest(TypedDict):
    """Asks for the image of the newest projection with the digest `of`."""

    type: Literal["image"]
    id: str
    of: str


class WhatIfRequest(TypedDict):
    """Asks for the prices of `changes`: words of `%ctx whatif`, one change a line, each supposed alone."""

    type: Literal["whatif"]
    id: str
    changes: str


class CostRequest(TypedDict):
    """Asks for the cost of all requests of the session to models."""

    type: Literal["cost"]
    id: str


class SweepRequest(TypedDict):
    """Asks for the table of the sweep of the execution `of`, or of the newest sweep."""

    type: Literal["sweep"]
    id: str
    of: NotRequired[str]


class ExportRequest(TypedDict):
    """Asks for the session as a page. Ask on the control channel: servers limit the rate of the others."""

    type: Literal["export"]
    id: str


class HandleRequest(TypedDict):
    """Asks for the rendering of the handle with the id `of`."""

    type: Literal["handle"]
    id: str
    of: str


PanelRequest = (
    SnapshotRequest
    | PlanRequest
    | EventsRequest
    | CompareRequest
    | DifferenceRequest
    | CellsRequest
    | MarksRequest
    | RowsRequest
    | DetailsRequest
    | SearchRequest
    | ProjectionRequest
    | BodyRequest
    | ImageRequest
    | WhatIfRequest
    | CostRequest
    | SweepRequest
    | HandleRequest
    | ExportRequest
)
