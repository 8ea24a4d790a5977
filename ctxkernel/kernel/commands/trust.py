"""`%ctx trust`: show the files beside the notebook that could run, send or decide something, and trust them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctxkernel.agent import trust_review
from ctxkernel.agent.logged_asks import trust_log
from ctxkernel.agent.trust_review import Reviewed, files_beside, review
from ctxkernel.agent.turn_files import turn_files
from ctxkernel.core.errors import BadCommand
from ctxkernel.kernel.commands.context import CommandContext, split_flags
from ctxkernel.kernel.execution.authority import refuse_model
from ctxkernel.store import config
from ctxkernel.store.trust_registry import SESSION, SETTINGS, TURNS, TrustKind


def trust(ctx: CommandContext, args: Sequence[str]) -> str:
    """Show what there is beside the notebook, or at a path, and trust it; or revoke that, or only list it."""
    refuse_model("%ctx trust")
    flags, rest = split_flags(args)
    if len(rest) > 1 or len(flags) > 1:
        raise BadCommand("%ctx trust [PATH] [--revoke|--list]: one path at most, and one option")
    files = _named(rest[0]) if rest else _beside(ctx)
    found = [review(kind, path) for kind, path in files]
    lines = [one.text() for one in found]
    if "--list" in flags:
        return "\n".join(lines) or trust_review.verdict((), (), revoked=False)
    revoked = "--revoke" in flags
    faults = [_carry_out(ctx, one, revoked=revoked) for one in found]
    if any(one.kind == SETTINGS for one in found):
        ctx.configuration.read_again()
    return "\n".join([*lines, trust_review.verdict(found, faults, revoked=revoked)])


def _named(text: str) -> list[tuple[TrustKind, Path]]:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise BadCommand(f"%ctx trust {text}: there is no such file")
    return files_beside(path)


def _beside(ctx: CommandContext) -> list[tuple[TrustKind, Path]]:
    session, turns = ctx.store.path, ctx.models.connections.path
    made: list[tuple[TrustKind, Path]] = []
    if session is not None:
        made.append((SESSION, session))
    made.extend((TURNS, one) for one in ([turns] if turns is not None else turn_files(ctx.configuration.folder)))
    made.append((SETTINGS, ctx.configuration.folder / config.FILE))
    return [(kind, one) for kind, one in made if one.is_file()]


def _is_open(ctx: CommandContext, path: Path) -> bool:
    return ctx.store.path is not None and path.exists() and ctx.store.path.samefile(path)


def _carry_out(ctx: CommandContext, found: Reviewed, *, revoked: bool) -> str:
    if found.kind == SESSION and _is_open(ctx, found.path):
        return trust_log(ctx.store, revoke=revoked)
    return trust_review.revoke(found) if revoked else trust_review.give(found)
