"""Runs of a step: which is next, recording what the agent says, storing how it ended, judging the result."""
