"""Pydantic models of everything that the portal returns as JSON.

The API returns them and `--json` prints them, so that a field has its name, type and meaning in one place.
`from_row` makes a model from rows. Models of what the API takes are in the modules of `tasks_app.api`.
Each noun has its module, however short.
"""
