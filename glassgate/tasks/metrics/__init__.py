"""Metrics that torchmetrics lacks, the confusion matrix, and the format of scores."""
