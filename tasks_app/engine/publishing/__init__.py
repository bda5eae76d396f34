"""Carrying out publications: pushing results, and opening and watching pull requests."""
