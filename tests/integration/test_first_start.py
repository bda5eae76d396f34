"""The first admin of a new installation (R5, W1)."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.core.errors import BadInput
from tasks_app.management.first_start import ensure_admin
from tasks_app.models import User

pytestmark = pytest.mark.django_db


def given(settings: Any, password: str | None) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(
        update={"admin_user": "herder", "admin_password": password}
    )


@pytest.mark.parametrize("password", ["x", "password1234", "12345678", "herder12"])
def test_a_weak_password_is_refused(settings: Any, password: str) -> None:
    given(settings, password)
    with pytest.raises(BadInput, match=r"^CATHERDER_ADMIN_PASSWORD: "):
        ensure_admin()
    assert not User.objects.exists()


def test_a_good_one_is_taken_and_one_is_made_up_without(settings: Any) -> None:
    given(settings, "a long enough password")
    admin = ensure_admin()
    assert admin and admin.password is None
    assert User.objects.get(username="herder").check_password("a long enough password")
    given(settings, "x")
    assert ensure_admin() is None, "who is there already is left alone"
    User.objects.all().delete()
    given(settings, None)
    admin = ensure_admin()
    assert admin and admin.password
    assert User.objects.get(username="herder").check_password(admin.password)
