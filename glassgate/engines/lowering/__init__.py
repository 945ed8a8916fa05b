"""A whole pass of one direction as a typed program, without vectors, caches or addresses, for any backend."""
