"""Code that several experiments share: environment, timing, statistics, data folder and command line."""
