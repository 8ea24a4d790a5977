"""What a cell changed, and how to get back."""
