"""Every setting, typed, with its default and unit. Reading files and the environment is not done here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a session. Sizes in bytes, times in seconds, unless the name says otherwise."""

    stream_bytes: int = 64 * 1024
    """Bounded copy of stdout and of stderr that is kept for a statement; head and tail."""
    artifact_bytes: int = 1024 * 1024
    """Largest payload of a rich output that is kept whole; a larger one by size and hash."""
    artifacts_bytes: int = 8 * 1024 * 1024
    """Bound on all payloads of one statement."""
    file_scan_entries: int = 1000
    """Most directory entries that are looked at for files that a cell wrote."""
    file_hash_bytes: int = 32 * 1024 * 1024
    """Largest written file that is hashed."""
    repr_chars: int = 120
    """Cap of a variable's repr in a namespace diff."""
    end_phase_ms: int = 250
    """Bound on the work after a cell; then it goes on with less and says so."""
    view_tokens: int = 2000
    """Default budget of a view (seed 002 §9.1)."""
    group_tokens: int = 500
    """Default budget of a group's summary (seed 002 §9.1)."""
    projection_tokens: int = 32_000
    """Budget of the whole projection."""
    variable_rows: int = 40
    """Most rows of the variable table in a projection, newest first."""
    statement_tokens: int = 1200
    """Most tokens of one statement's outputs in the projected history."""
    ready_per_turn: int = 64
    """Most prepared payloads that one tick applies (seed 002 §6.2, non-starvation)."""
    model: str = "claude-sonnet-5-5"
    """Model that the projection is checked for; nothing is sent to it by these settings."""
    dialect: str = ""
    """How the model acts: `tools`, `script`, or empty for what suits the model."""
    enforce_history_invariants: bool = False
    """Mend the model's history after a return and before a request (seed 003 §5); what is sent is always checked."""
    auto_recover_from_crash: bool = True
    """Mend it when a session is loaded (seed 003 §5)."""
    warn_on_invariant_violations: bool = True
    """Say what was found broken in it (seed 003 §5)."""
    max_tokens: int = 8192
    """`max_tokens` of the request body."""
