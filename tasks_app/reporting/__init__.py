"""Reading the rows for people and programs: search, usage, exports, models for the API and `--json`.

Nothing here changes a row.
"""
