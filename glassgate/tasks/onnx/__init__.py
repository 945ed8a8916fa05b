"""Trained runs as ONNX models. The module `models` writes them. Each task has a module with the task's name."""
