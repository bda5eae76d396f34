"""The operations, one module for each noun: read what came, let an action do it, say what holds.

`app.py` imports each, however short, and nothing else does.
"""
