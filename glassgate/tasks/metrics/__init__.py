"""Metrics that torchmetrics lacks, and the confusion matrix."""
