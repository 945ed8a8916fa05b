"""Experiments on claims of textbooks about LSTMs: long-term memory, two directions, and fused matrix products."""
