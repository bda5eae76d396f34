"""What the portal returns as JSON: one pydantic model for each thing.

The API returns these models and `--json` prints them, so a field has its name, type and meaning in one place.
`of` makes a model from rows. What the API takes stands in `tasks_app.api.schemas`.
"""
