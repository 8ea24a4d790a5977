"""Outlines: the structure of source code, documents, JSON, tables and logs."""
