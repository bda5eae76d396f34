"""What comes before the work: the questions before it, and the plan that people may approve."""
