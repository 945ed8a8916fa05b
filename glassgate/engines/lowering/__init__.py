"""A cell's graphs as a small typed program that any backend can print: no lanes, caches or addresses here."""
