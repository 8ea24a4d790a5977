"""Asks and summaries: the part of the kernel that sends requests to models. Others may use the names below."""

from ctxkernel.kernel.asking.answer_display import DECIDED, NOTE
from ctxkernel.kernel.asking.models import Models

__all__ = ["DECIDED", "NOTE", "Models"]
