"""Usage: what work costs, how long it takes and how long people wait, limits of cost, metrics."""
