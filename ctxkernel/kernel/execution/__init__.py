"""While a cell runs: captured output, interrupts, background workers, files that it reads and writes."""
