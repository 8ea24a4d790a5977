"""All tasks of the benchmark, in the order in which they are played."""

from __future__ import annotations

from ctxkernel.model_bench.code_tasks import CODE_TASKS
from ctxkernel.model_bench.data_tasks import DATA_TASKS
from ctxkernel.model_bench.reading_tasks import READING_TASKS
from ctxkernel.model_bench.task import Task

TASKS: dict[str, Task] = {task.name: task for task in (*CODE_TASKS, *DATA_TASKS, *READING_TASKS)}
