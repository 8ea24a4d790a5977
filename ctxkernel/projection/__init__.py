"""The projection: exactly what a model would be sent, frozen, with a reason for every block. Pure; no I/O."""
