"""How far the defaults stand from the best settings that a search finds: three data sets a task, tiny to large."""
