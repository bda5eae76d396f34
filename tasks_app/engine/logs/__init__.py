"""Keeping logs small: events of ended runs as compressed blocks, and old logs removed."""
