"""Reading objects and the namespace without running their code."""
