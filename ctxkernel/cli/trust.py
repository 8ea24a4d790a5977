"""`ctxkernel trust`: show what the files beside a notebook could run, send or decide, and trust them.

Rule 1: What was found is shown before it is trusted. Nothing of it is executed or unpickled.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ctxkernel.agent import trust_review
from ctxkernel.agent.trust_review import Reviewed, files_beside, review
from ctxkernel.cli import Unusable
from ctxkernel.cli.output import safe_block, safe_line, say, show, show_json, terminal_table
from ctxkernel.core.errors import BadCommand
from ctxkernel.store.trust_registry import trust_registry


def trust(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel trust`; status 1 if something could not be trusted, or its trust not revoked."""
    path: Path | None = arguments.path
    if path is None:
        if not arguments.list:
            raise Unusable("give the notebook, session, recorded turns or settings to trust, or --list.")
        return _list_words(as_json=arguments.json)
    if not path.is_file():
        raise Unusable(f"{path}: there is no such file.")
    try:
        found = [review(kind, one) for kind, one in files_beside(path.absolute())]
    except BadCommand as fault:
        raise Unusable(f"{fault}.") from None
    if not arguments.json:
        show(safe_block("\n".join(one.text() for one in found)))
    act = trust_review.revoke if arguments.revoke else trust_review.give
    faults = [act(one) for one in found] if not arguments.list else []
    if arguments.json:
        done = [not fault for fault in faults] or [None] * len(found)
        show_json([{**_as_json(one), "done": ok} for one, ok in zip(found, done, strict=True)])
    if not arguments.list:
        say(safe_line(trust_review.verdict(found, faults, revoked=arguments.revoke)))
    return 1 if any(faults) else 0


def _as_json(found: Reviewed) -> dict[str, object]:
    return {
        "kind": found.kind,
        "path": str(found.path),
        "state": found.state,
        "subject": found.subject,
        "effects": list(found.effects),
    }


def _list_words(*, as_json: bool) -> int:
    registry = trust_registry()
    if as_json:
        show_json([{"kind": one.kind, "subject": one.subject, **one.value} for one in registry.words()])
    elif rows := trust_review.words_table():
        show(terminal_table(("what", "file", "since"), rows))
    else:
        show("You have trusted nothing by word. Sessions are signed in their files; `ctxkernel trust PATH --list`.")
    if registry.fault:
        say(f"nothing can be trusted: {registry.fault}")
    return 0
