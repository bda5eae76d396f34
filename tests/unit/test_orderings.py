"""The order that a model has by default costs no join: each `first()`, `last()` and related list pays it."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.db.models import Model

#: People read decisions by their project's name.
BY_PROJECT = {"Decision", "DecisionEvent"}
OURS = apps.get_app_config("tasks_app").get_models()
MODELS = [model for model in OURS if model.__name__ not in BY_PROJECT]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_default_order_reads_one_table(model: type[Model]) -> None:
    assert " JOIN " not in str(model._default_manager.all().query)
