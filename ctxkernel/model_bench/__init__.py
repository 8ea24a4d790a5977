"""A benchmark for models: small tasks, each with assertions on the state of the kernel, and the results of a run.

It runs nothing itself: `ctxkernel bench` (`cli/bench.py`) plays the tasks in kernels. Only `cli` may import it.
"""
