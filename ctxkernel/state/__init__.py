"""Detection, storage and restoration of the state after each cell."""
