"""Displays of the kernel.

Others may use `notices` (texts in a cell), `panel` with `panel_rows` and `inline_panel`, `handles` and `widgets`
(displays of handles), and `output_source` (views of outputs).
"""
