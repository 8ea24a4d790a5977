"""Renderings that an agent asks for: of a variable, a handle, a file or the output of a statement.

Rule 1: nothing changes: the rendering is that of a handle that no timeline has.
Rule 2: private names and secrets are left out, and files outside of the notebook's folder: a cell may open these, and
        a cell needs the user's approval.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ctxkernel.core.errors import BadTarget, CtxError
from ctxkernel.core.nodes import Graph, NodeBase, ViewHandle
from ctxkernel.core.ports import Rendered
from ctxkernel.core.text import suggest
from ctxkernel.kernel.display.output_source import PLACE
from ctxkernel.kernel.services import KernelServices

MOST_TOKENS = 8_000


def render_for_agent(session: KernelServices, target: str, lod: int, tokens: int, pos: str) -> dict[str, Any]:
    """Return `text` and `tokens` of a rendering, and `image` as [media type, base64] or None; or why it is `refused`.

    `target`: the name of a variable or of a handle, a path below the notebook's folder, or a statement (`s12`).
    """
    try:
        found = _rendering(session, target, lod, min(tokens, MOST_TOKENS), pos)
    except CtxError as refused:
        return {"refused": session.masker(str(refused))}
    picture = found.picture
    image = [picture.media_type, picture.data] if picture is not None else None
    return {"text": session.masker(found.text), "tokens": found.tokens, "image": image}


def _rendering(session: KernelServices, target: str, lod: int, tokens: int, pos: str) -> Rendered:
    if target in session.configuration.private:
        raise BadTarget(f"{target} is private: its owner keeps it out of what models see")
    value = _value(session, target)
    if isinstance(value, NodeBase):
        return value.render(lod=lod, tokens=tokens)
    of = session.loop.graph
    graph = Graph(settings=session.settings, open_source=of.open_source, count_tokens=of.count_tokens, trim=of.trim)
    graph.open("s0")
    return ViewHandle(graph, value, pos=pos, tokens=tokens, lod=lod).rendered


def _value(session: KernelServices, target: str) -> Any:
    namespace: dict[str, Any] = session.shell.user_ns
    if target in namespace:
        return namespace[target]
    if PLACE.fullmatch(target):
        return target
    folder = Path(session.configuration.folder).resolve()
    path = (folder / Path(target).expanduser()).resolve()
    if path.exists():
        if path != folder and folder not in path.parents:
            raise BadTarget(f"{target} is outside of the notebook's folder: read it in a cell")
        return str(path)
    names = [name for name in namespace if not name.startswith("_")]
    raise BadTarget(
        f"there is no variable and no file {target!r}{suggest(target, names)}: give the name of a variable or of a "
        "handle, a path below the notebook's folder, or a statement (s12)"
    )
