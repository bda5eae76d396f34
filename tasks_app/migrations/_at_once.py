"""Making many tables in one step of a migration."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class MakeTables(Operation):
    """Make the tables of all new models as the last of these operations leaves them.

    Django builds the classes of all related models again after each operation, here some thousands of them,
    which takes most of the time of a first start; this builds them once. Fields, indexes and constraints that
    are added to the new models come with their tables. Of models that exist before, it takes operations that
    leave the database as it is: other choices.
    """

    reversible = False

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        state.__dict__.pop("apps", None)  # the classes; without them no operation builds them again
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        for operation in self.operations:
            if isinstance(operation, CreateModel):
                operation.database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        return "Make all tables"
