"""Built-in data, for trying a task without files."""
