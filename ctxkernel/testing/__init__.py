"""Public fakes and factories for tests of ctxkernel and of what is built on it."""

from ctxkernel.testing.turns import FakeSource, FakeTracker, Turns, graph_with

__all__ = ["FakeSource", "FakeTracker", "Turns", "graph_with"]
