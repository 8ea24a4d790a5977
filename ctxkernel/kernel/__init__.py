"""The Jupyter side: kernel, extension, output capture, magics, displays, panel."""
