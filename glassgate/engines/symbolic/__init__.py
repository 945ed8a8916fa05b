"""A cell's step as a graph of operations, and that graph's gradient as another one."""
