"""A portal under fire: `make soak`."""
