"""Rehearsal: a scripted Messages API on loopback, so that the real agent program runs without a key."""
