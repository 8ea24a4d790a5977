"""Sources for objects of optional libraries, imported only where the library is in use."""
