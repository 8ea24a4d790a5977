"""Sources for any Python object, and for objects with a picture."""
