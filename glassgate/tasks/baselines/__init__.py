"""Baselines: simple models, trained in seconds, with which a training compares its network.

| module | contents |
|---|---|
| `baseline` | the base class, and limits of time and memory |
| `features` | TF-IDF of texts, and the values of series |
| `labels` | classifiers and regressions on these features |
| `ngrams` | n-gram models |

Each task lists its baselines in `Definition.baselines`. The module `training.baselines` trains and scores them.
"""
