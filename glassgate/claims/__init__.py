"""Experiments that test claims of textbooks about LSTMs: long-term memory, bidirectional layers, fused products."""
