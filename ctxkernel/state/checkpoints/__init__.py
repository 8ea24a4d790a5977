"""Takes, stores and restores checkpoints."""
