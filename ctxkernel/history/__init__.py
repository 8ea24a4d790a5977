"""The events that a model may be shown, and the rules of a request. Pure; imports nothing above `core`."""
