"""Detects the changes that a cell made to variables."""
