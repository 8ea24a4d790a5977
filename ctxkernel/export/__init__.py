"""A session as one HTML file that opens without a network, a kernel or Python."""

from ctxkernel.export.page import make_page, write_page

__all__ = ["make_page", "write_page"]
