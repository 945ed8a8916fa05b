"""Trained runs as ONNX models. `models` writes them. Each task has a module with its name."""
