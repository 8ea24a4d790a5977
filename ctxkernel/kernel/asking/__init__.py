"""Asks and summaries: everything of the kernel that sends something to a model."""

from ctxkernel.kernel.asking.answer_display import DECIDED, NOTE
from ctxkernel.kernel.asking.models import Models

__all__ = ["DECIDED", "NOTE", "Models"]
