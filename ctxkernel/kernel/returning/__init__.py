"""Checkpoints, returns, re-runs and resuming."""
