"""Asks: the turns of a model in this kernel."""
