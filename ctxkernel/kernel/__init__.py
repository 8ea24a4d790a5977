"""The Jupyter side. From top to bottom: commands, asks, turns, returns, displays, execution. `runtime` makes all."""
