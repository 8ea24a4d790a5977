"""Public fakes and factories for tests of ctxkernel and of what is built on it."""

from ctxkernel.testing.answers import (
    OVERFLOW,
    Answer,
    Cut,
    End,
    Garbage,
    HttpError,
    Stall,
    StreamError,
    answer,
    call,
    error,
    say,
    think,
)
from ctxkernel.testing.server import MessagesServer, Received, Sent
from ctxkernel.testing.turns import FakeSource, FakeTracker, Turns, graph_with
from ctxkernel.testing.workers import AtOnce, HeldJobs

__all__ = [
    "OVERFLOW",
    "Answer",
    "AtOnce",
    "Cut",
    "End",
    "FakeSource",
    "FakeTracker",
    "Garbage",
    "HeldJobs",
    "HttpError",
    "MessagesServer",
    "Received",
    "Sent",
    "Stall",
    "StreamError",
    "Turns",
    "answer",
    "call",
    "error",
    "graph_with",
    "say",
    "think",
]
