"""The magics `%ctx`, `%%ask`, `%view` and `%group`. Others may use the names below."""

from ctxkernel.kernel.commands.context import CommandContext
from ctxkernel.kernel.commands.magics import magic_at, register

__all__ = ["CommandContext", "magic_at", "register"]
