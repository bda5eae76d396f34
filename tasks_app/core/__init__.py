"""Errors, types, phases and their allowed moves, storable text and settings, for all other packages.

Nothing here imports Django or another package of the portal.
"""
