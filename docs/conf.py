"""The documentation as a site: `python docs/build.py`.

The source folder is the repository's own, so that a page is one file with one set of links, on the site and in a
repository browser. What is made from the code stands in `reference_pages.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from ctxkernel import __version__  # noqa: E402

project = "ctxkernel"
author = "the contributors of ctxkernel"
copyright = f"{author}. MIT licence"  # noqa: A001
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.githubpages", "sphinx_copybutton", "reference_pages"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "notebooks/*.ipynb", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = [".*", "build", "ctxkernel", "tests", "benchmarks", "kernelspec", "test-results", "**/.*"]

# A notebook is shown with the outputs of its last execution (reference_pages.py); the build executes none.
nb_execution_mode = "off"
nb_merge_streams = True
# No directive of a text that a model wrote is carried out.
nb_render_markdown_format = "commonmark"
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "application/vnd.ctxkernel.ask+json", None),
]
myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 5
# A cell of `%%ask` is no Python, and is shown all the same.
suppress_warnings = ["misc.highlighting_failure", "mystnb.unknown_mime_type"]
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = f"ctxkernel {__version__}"
html_logo = "../kernelspec/logo-svg.svg"
html_favicon = "../kernelspec/logo-svg.svg"
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
