"""What everything else may use: errors, types, phases and their allowed moves, storable text,
settings.

Nothing here knows Django or another package of the portal.
"""
