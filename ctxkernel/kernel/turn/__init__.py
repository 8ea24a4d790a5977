"""The turn of one cell: the tables of its steps, and its record.

Others may use `turns` (open, shut, gesture) and `reruns` (statements that run again after a return).
"""
