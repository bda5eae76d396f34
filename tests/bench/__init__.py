"""Measurements: `make bench`. Each is a median with its spread, over real processes on this machine."""
