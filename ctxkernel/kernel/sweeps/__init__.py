"""Sweeps in a kernel: its plan, the branches that come back, and, in a worker's kernel, the cells of a task.

Others may use `sweeper` (what `%ctx sweep` does), `task_runs` (what a worker's kernel does) and `messages` (what a
sweep is asked to do).
"""
