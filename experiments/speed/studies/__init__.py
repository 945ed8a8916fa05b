"""Measurements of single features for pages, each by `python -m benchmarks STUDY`.

A study is a module with two functions: `add_options` adds its options to a parser, and `run` measures and prints.
"""
