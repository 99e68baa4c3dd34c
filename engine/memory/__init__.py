"""Rules of memory (chunks, prefixes, eviction) and the storage they govern."""
