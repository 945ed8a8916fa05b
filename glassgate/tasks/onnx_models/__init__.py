"""Trained runs as ONNX models; one module per task, with the name of the task."""
