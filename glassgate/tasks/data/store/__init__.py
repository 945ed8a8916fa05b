"""Examples in Arrow format, in memory or in the cache folder."""
