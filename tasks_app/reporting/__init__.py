"""Reading what is there for people and programs: search, usage, exports, facts for the API and `--json`.

Nothing here changes a row.
"""
