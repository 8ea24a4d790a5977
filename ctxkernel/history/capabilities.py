"""The features that each model accepts in a Messages request. Dated data only.

Rule 1: a row states what was documented or observed on `AS_OF`; unknown features count as refused.
Rule 2: a model without a row gets the cautious row, which refuses everything that some model refuses.
Sources: the platform documentation (migration guides, thinking, prompt caching, mid-conversation system messages) and
the types of the anthropic SDK 2.12; if two disagree, the stricter one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.settings import AUTO, Settings

AS_OF = "2026-11-21"
PATCH = 28
"""Pixels a side of the square that counts as one token of an image."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features that one model accepts. The defaults are the cautious row."""

    model: str = ""
    """The model's name without date or vendor prefix; empty for the cautious row."""
    as_of: str = AS_OF
    tools: bool = False
    """Whether it calls tools well; small local models are better at writing scripts."""
    prefill: bool = False
    """Whether the conversation may end with an assistant message."""
    thinking: frozenset[str] = frozenset()
    """Accepted values of `thinking.type`; the field may always be omitted."""
    disabled_up_to_high: bool = False
    """Whether thinking may be disabled only at an effort of low, medium or high."""
    bound_thinking: bool = True
    """Whether a thinking block is bound to everything before it, so that no earlier block may be edited."""
    forced_tool_choice: bool = False
    """Whether `tool_choice` of type `any` or `tool` is accepted."""
    mid_system: bool = False
    """Whether `role: system` is accepted within the messages."""
    turn_notes: str = ""
    """The beta for system messages that apply to one turn, or empty."""
    sampling: bool = False
    """Whether `temperature`, `top_p` and `top_k` are accepted."""
    merges_roles: bool = False
    """Whether two messages of one role in a row are merged instead of refused."""
    context_window: int = 0
    """Tokens of its context; 0: not known."""
    sees: bool = False
    """Whether it takes images; most small local models do not."""
    max_images: int = 100
    image_edge: int = 1568
    """Pixels of the longer side that it resolves; the API scales a larger image down."""
    image_tokens: int = 1568
    """Most tokens of one image; the API scales a larger one down."""
    min_cache_tokens: int = 4096
    """Minimal length of a cached prefix; a shorter one is silently not cached."""
    betas: frozenset[str] = frozenset()
    """The betas in the request's header; they allow gated fields."""


CAUTIOUS = Capabilities()
_WINDOW = 200_000
"""Tokens of the context of all Claude models; some take more on request."""
_BUDGET = 32_000
"""Tokens of a projection for a model whose context is not known."""

_CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
_ADAPTIVE = frozenset({"adaptive"})
_ADAPTIVE_OR_OFF = frozenset({"adaptive", "disabled"})
_MANUAL = frozenset({"enabled", "disabled"})
_BOTH = frozenset({"adaptive", "enabled", "disabled"})


def _old(model: str, **more: object) -> Capabilities:
    """Return the row of an older model: thinking is not bound, and a tool choice may be forced."""
    base = Capabilities(model, tools=True, bound_thinking=False, forced_tool_choice=True, merges_roles=True, sees=True)
    return replace(base, context_window=_WINDOW, **more)  # type: ignore[arg-type]


def _new(model: str, **more: object) -> Capabilities:
    """Return the row of a model with bound thinking and system messages in the conversation, but no forced tool."""
    base = Capabilities(model, tools=True, thinking=_ADAPTIVE, mid_system=True, turn_notes=_CLEAR_AT, merges_roles=True)
    return replace(base, sees=True, max_images=600, context_window=_WINDOW, **more)  # type: ignore[arg-type]


# For Opus from 4.7 on; no page states it for other models.
_FINE = {"image_edge": 2576, "image_tokens": 4784}

# Newest first. `min_cache_tokens` is the cautious 4096 if no page states the number.
MODELS: tuple[Capabilities, ...] = (
    _new("claude-fable-5-2"),
    _new("claude-mythos-5-2"),
    _new("claude-fable-5-1"),
    _new("claude-mythos-5-1"),
    _new("claude-opus-5-5", **_FINE),
    _new("claude-sonnet-5-5", thinking=frozenset({"adaptive", "between_tools"})),
    # The only model of this generation that accepts a forced tool choice.
    _new("claude-haiku-5-5", thinking=_ADAPTIVE_OR_OFF, disabled_up_to_high=True, forced_tool_choice=True),
    _old("claude-fable-5", thinking=_ADAPTIVE, mid_system=True, max_images=600, min_cache_tokens=512),
    _old("claude-mythos-5", thinking=_ADAPTIVE, mid_system=True, max_images=600, min_cache_tokens=512),
    _old(
        "claude-opus-5",
        thinking=_ADAPTIVE_OR_OFF,
        disabled_up_to_high=True,
        mid_system=True,
        max_images=600,
        min_cache_tokens=512,
        **_FINE,
    ),
    # Sources disagree on system messages within the conversation of Sonnet 5; the cautious answer is no.
    _old("claude-sonnet-5", thinking=_ADAPTIVE_OR_OFF, max_images=600, min_cache_tokens=1024),
    _old("claude-opus-4-8", thinking=_ADAPTIVE_OR_OFF, mid_system=True, max_images=600, min_cache_tokens=1024, **_FINE),
    _old("claude-opus-4-7", thinking=_ADAPTIVE_OR_OFF, max_images=600, min_cache_tokens=2048, **_FINE),
    _old("claude-mythos-preview", thinking=frozenset({"adaptive", "enabled"})),
    _old("claude-opus-4-6", thinking=_BOTH, sampling=True),
    _old("claude-sonnet-4-6", thinking=_BOTH, sampling=True, min_cache_tokens=1024),
    _old("claude-opus-4-5", thinking=_MANUAL, sampling=True, prefill=True),
    _old("claude-sonnet-4-5", thinking=_MANUAL, sampling=True, prefill=True, min_cache_tokens=1024),
    _old("claude-haiku-4-5", thinking=_MANUAL, sampling=True, prefill=True),
)

# `us.anthropic.claude-opus-4-5-20251101-v1:0`, `claude-opus-4-5@20251101` and `claude-opus-4-5-latest` are
# claude-opus-4-5; `claude-opus-5-5` is not claude-opus-5.
_SUFFIX = re.compile(r"(?:[-@](?:\d{8}|latest))?(?:-v\d+)?(?::\d+)?")


def capabilities_for(model: str, *, betas: Iterable[str] = ()) -> Capabilities:
    """Return the row of `model`, or the cautious row, with the request's betas."""
    name = model.rsplit("/", 1)[-1]
    name = name[name.find("claude-") :] if "claude-" in name else name
    for row in MODELS:
        if name.startswith(row.model) and _SUFFIX.fullmatch(name, len(row.model)):
            return replace(row, betas=frozenset(betas))
    return replace(CAUTIOUS, betas=frozenset(betas))


def image_tokens(width: int, height: int) -> int:
    """Return the tokens of an image of this size, ≥ 1, as documented: one for each patch, also for a part of one."""
    return max(1, -(-width // PATCH)) * max(1, -(-height // PATCH))


def budget_of(settings: Settings) -> int:
    """Return the tokens that a projection may take: the setting, or what suits the model."""
    if settings.projection_tokens != AUTO:
        return settings.projection_tokens
    return capabilities_for(settings.model).context_window // 2 or _BUDGET
