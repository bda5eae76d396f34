"""The questions before the work, and the plan that people may approve."""
