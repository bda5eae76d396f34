"""What work may cost: budgets for a month, the soft limit of a task, what is left for a run."""
