"""Examples as Arrow, in memory or in the cache folder."""
