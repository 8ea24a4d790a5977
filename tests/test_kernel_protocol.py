"""Jupyter's own conformance tests for Python kernels, run against ours."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import jupyter_kernel_test


class TestConformance(jupyter_kernel_test.KernelTests):
    """All that jupyter_kernel_test asks of a Python kernel."""

    kernel_name = "ctxkernel"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = ({"text": "zi", "matches": {"zip"}},)
    complete_code_samples = ("1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n")
    incomplete_code_samples = ("print('''hello", "def f(x):\n  x*2")
    invalid_code_samples = ("import = 7q",)
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = (
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    )
    code_display_data = (
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
    )
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "search")
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    code_inspect_sample = "zip"

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        spec = Path(cls.folder.name, "kernels", "ctxkernel")
        spec.mkdir(parents=True)
        argv = [sys.executable, "-m", "ctxkernel.kernel", "-f", "{connection_file}"]
        made = {"argv": argv, "display_name": "ctxkernel", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(made))
        cls.saved = {name: os.environ.get(name) for name in ("JUPYTER_PATH", "CTXKERNEL_SESSION")}
        os.environ["JUPYTER_PATH"] = cls.folder.name
        os.environ["CTXKERNEL_SESSION"] = str(Path(cls.folder.name, "session.sqlite"))
        super().setUpClass()

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        for name, value in cls.saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        cls.folder.cleanup()
