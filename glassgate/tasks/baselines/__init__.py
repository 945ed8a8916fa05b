"""Baselines: simple models, trained in seconds, with which a training compares its network.

Each task lists its baselines in `Definition.baselines`. The module `training.baselines` trains and scores them.
"""
