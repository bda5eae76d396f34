"""The JSON Schema of `cat-herder.yaml`, for editors."""

from __future__ import annotations

from tasks_app.config.pipeline import ProjectFile
from tasks_app.core.types import JsonObject

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> JsonObject:
    """Return the schema of the file as people write it; every key has a description."""
    schema: JsonObject = ProjectFile.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": DIALECT, **schema, "title": "cat-herder.yaml"}
