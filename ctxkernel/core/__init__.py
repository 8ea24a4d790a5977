"""The domain: timeline, nodes, ticks. Standard library only; no Jupyter, no I/O, no clock, no threads."""
