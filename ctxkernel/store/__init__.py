"""The session on disk: an append-only SQLite log beside the notebook."""
