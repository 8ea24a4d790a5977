"""Sources for tables: frames, arrays, CSV and Parquet."""
