"""What speaks to a model."""
