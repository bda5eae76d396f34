"""What everything else may use: errors, types, phases and their allowed moves, text that can be stored.

Pure functions and values. Nothing here knows Django, the file system or another package of the portal.
"""
