"""`cat-herder.yaml`, task files and their validation, and what `init_project` writes.

Reads text and returns values or faults with file and line. Knows nothing of the database.
"""
