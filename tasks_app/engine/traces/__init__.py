"""Spans of ended tasks, steps, runs and waits, sent to the endpoint for traces (O3)."""
