"""`doctor`: check everything that an installation needs, and say what to do.

A check is a function that yields findings. It changes nothing and has timeouts; exceptions become findings. A
finding that can safely be repaired has a `fix`.
"""
