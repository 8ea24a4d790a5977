"""Sources for files, folders, patterns and URIs."""
