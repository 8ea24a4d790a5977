"""`%ctx store`: the second place of the session."""

from __future__ import annotations

from collections.abc import Sequence

from ctxkernel.core.errors import BadCommand, StoreError
from ctxkernel.core.text import format_size, plural
from ctxkernel.kernel.commands.context import CommandContext, split_flags


def store(ctx: CommandContext, args: Sequence[str]) -> str:
    """Show the second place of the session; push to it, or pull what is missing here."""
    flags, words = split_flags(args)
    if not ctx.mirror.on:
        raise BadCommand(
            "this session has no second place: %ctx config store s3://bucket/folder sets one, "
            "`store` in your own ctxkernel.toml one for all sessions"
        )
    if words in ([], ["status"]):
        return ctx.mirror.status()
    if words == ["push"]:
        ctx.mirror.push(force="--force" in flags)
        if ctx.mirror.fault:
            raise BadCommand(f"%ctx store push: {ctx.mirror.fault}")
        return ctx.mirror.status()
    if words == ["pull"]:
        return _pull(ctx)
    raise BadCommand(f"%ctx store {' '.join(words)}: push, pull, or nothing to see what is there")


def _pull(ctx: CommandContext) -> str:
    back = ctx.checkpoints.returning
    if back is None:
        raise BadCommand("checkpoints are off in this kernel; %ctx status says why")
    try:
        done = ctx.mirror.pull(back.chunks)
    except StoreError as fault:
        raise BadCommand(f"%ctx store pull: {fault}") from None
    lines = [f"{plural(done.chunks, 'chunks')} brought, {format_size(done.received)} from {ctx.settings.store}"]
    if done.chunks and ctx.health.has_skipped:
        lines.append("states that had no data when the session was resumed are there after a restart and %ctx resume")
    return "\n".join([*lines, *(f"not brought: {fault}" for fault in done.faults[:20])])
