"""Code that several experiments share: the store, tables of pages, environment, timing, scores and command line."""
