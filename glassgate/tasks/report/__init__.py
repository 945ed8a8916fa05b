"""The report: a run's answers, the parts that they depend on, and where the network looks."""
