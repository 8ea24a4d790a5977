"""ctxkernel: a Jupyter kernel in which a person and a language model work on one replayable timeline."""

from ctxkernel._version import __version__

__all__ = ["__version__"]
