"""A session as one HTML file that opens without a network, a kernel or Python."""

from ctxkernel.export.page import write_page

__all__ = ["write_page"]
