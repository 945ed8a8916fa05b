"""Measurements of claims about recurrent networks: long-term memory, two directions, and fused matrix products."""
