"""The panel's data of a projection: its sizes for each turn; its blocks, bytes and images on request.

Rule 1: a turn has sizes only, so its message does not grow with the projection.
Rule 2: a projection is frozen, so any thread may answer these requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit, urlunsplit

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.timeline_events import plain
from ctxkernel.projection.displayed_images import images_in
from ctxkernel.projection.value import Projection

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import projection as messages
    from ctxkernel.kernel.messages.wire import Picture

API_VERSION = "2023-06-01"
_PROVIDER = "https://api.anthropic.com"
_PARTS: Mapping[str, str] = {
    "system": "system",
    "handles": "handles",
    "view": "handles",
    "picture": "handles",
    "shown": "handles",
    "variables": "variables",
    "group": "groups",
    "note": "groups",
    "deltas": "deltas",
    "status": "deltas",
    "empty": "deltas",
}
"""Kind of a block of the tail → the part that its tokens count for. All pieces of the run are history."""


def projection_sizes(projection: Projection) -> messages.Projection:
    """Return the sizes, costs and checks of a projection."""
    parts: messages.Parts = {"system": 0, "history": 0, "handles": 0, "variables": 0, "groups": 0, "deltas": 0}
    parts["system"] = projection.system.tokens
    tail = sum([piece.tokens for piece in projection.tail])
    parts["history"] = projection.tokens - parts["system"] - tail
    for piece in projection.tail:
        parts[_PARTS.get(piece.kind, "deltas")] += piece.tokens
    history = projection.run.pieces[: projection.count]
    cached = 0
    if projection.cached >= 0:
        cached = projection.system.tokens + sum([piece.tokens for piece in history[: projection.cached]])
    count, tokens = projection.image_tokens
    images = projection.image_cost
    roles = [piece.role for piece in (*history, *projection.tail)]
    return {
        "model": projection.model,
        "messages": sum(before != role for before, role in zip(["", *roles], roles, strict=False)),
        "blocks": 1 + len(roles),
        "left_out": len(projection.run.left_out) + len(projection.tail_left_out),
        "report": {"ok": projection.report.ok, "count": len(projection.report.violations)},
        "cost": cast("messages.Cost", projection.cost.to_json()),
        "images": {"count": count, "tokens": tokens, "usd": images.usd, "told": images.told()},
        "parts": parts,
        "cached": cached,
        "broke": projection.broke,
        "tokens": projection.tokens,
        "budget": projection.budget,
        "receipt": projection.receipt,
    }


def projection_blocks(projection: Projection) -> messages.ProjectionBlocks:
    """Return the blocks of a projection with their texts, its violations, and what it leaves out."""
    pieces = (projection.system, *projection.run.pieces[: projection.count], *projection.tail)
    blocks = [
        {
            "id": block.id,
            "kind": block.kind,
            "role": block.role,
            "origin": block.origin,
            "tokens": block.tokens,
            "cached": block.cached,
            "why": block.why,
            "text": block.text,
            "images": [_digest(data) for _, data in images_in(piece.text)] if piece.raw else [],
        }
        for block, piece in zip(projection.blocks, pieces, strict=True)
    ]
    violations = [
        {
            **plain(found.violation),
            "block": found.block.id if found.block is not None else None,
            "origin": found.block.origin if found.block is not None else None,
        }
        for found in projection.violations
    ]
    return {
        "receipt": projection.receipt,
        "blocks": cast("list[messages.Block]", blocks),
        "betas": list(projection.betas),
        "violations": cast("list[messages.Violation]", violations),
        "left_out": [{"id": one.id, "why": one.why} for one in projection.left_out],
    }


def request_body(projection: Projection, base_url: str | None) -> messages.RequestBody:
    """Return a request as it would be sent to `base_url`, or to the provider if that is None, without the key."""
    headers = {"content-type": "application/json", "anthropic-version": API_VERSION}
    if projection.betas:
        headers["anthropic-beta"] = ",".join(projection.betas)
    address = urlsplit(base_url or _PROVIDER)
    host = address.netloc.rpartition("@")[2]  # without a user's name and password
    url = urlunsplit((address.scheme, host, f"{address.path.rstrip('/')}/v1/messages", "", ""))
    body = projection.request_bytes.decode("utf-8", "surrogatepass")
    return {"receipt": projection.receipt, "body": body, "url": url, "headers": headers}


def image_of_digest(projection: Projection, digest: object) -> Picture:
    """Return the image of a projection with this digest. Raises BadCommand."""
    for piece in (*projection.tail, *reversed(projection.run.pieces[: projection.count])):
        if piece.raw:
            for media_type, data in images_in(piece.text):
                if _digest(data) == digest:
                    return {"media_type": media_type, "data": data}
    raise BadCommand("this image is no longer in the newest projection")


def _digest(data: str) -> str:
    return hashlib.sha256(data.encode("ascii", "replace")).hexdigest()[:16]
