"""A whole pass of one direction as a typed program that any backend can emit; no vectors, caches or addresses."""
