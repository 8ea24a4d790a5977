"""A session as a file for others, and back: one HTML page, or a notebook."""

from ctxkernel.export.imports import Imported, import_notebook
from ctxkernel.export.notebook import BranchNotebook
from ctxkernel.export.page import make_page, replace_text, write_page

__all__ = ["BranchNotebook", "Imported", "import_notebook", "make_page", "replace_text", "write_page"]
