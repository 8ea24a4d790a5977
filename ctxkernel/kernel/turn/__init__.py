"""The turn of one cell: its steps, what guards them, its source and its time limit."""
