"""Asks and summaries: the part of the kernel that sends requests to models. Others may use the names below."""

from ctxkernel.kernel.asking.model_services import Models

__all__ = ["Models"]
