"""The parts that all sources share: rendering, positions, reading files."""
