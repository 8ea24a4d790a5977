"""The turn of one cell: the tables of its steps, and its record.

Other packages may use `turns` (open, shut, gesture), `reruns` and `affected_reruns` (cells that run again after a
return) and `kept_cells` (cells that take an earlier result).
"""
