"""Content-addressed data of checkpoints, in files beside the cache."""
