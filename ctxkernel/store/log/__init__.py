"""The SQLite file of a session: written by one kernel, read by anyone."""
