"""A session as a file for others, and back: one HTML page, or a notebook."""

from ctxkernel.export.imports import Imported, import_notebook
from ctxkernel.export.notebook import BranchNotebook, notebook_text, write_notebook
from ctxkernel.export.page import ENDINGS, make_page, write_page

__all__ = [
    "ENDINGS",
    "BranchNotebook",
    "Imported",
    "import_notebook",
    "make_page",
    "notebook_text",
    "write_notebook",
    "write_page",
]
