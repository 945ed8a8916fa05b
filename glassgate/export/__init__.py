"""Layers and models in the form of other runtimes: ONNX, C, and the JSON of audio plug-ins."""
