"""History: what may be shown to a model, and what a request may be. Pure; imports nothing above `core`."""
