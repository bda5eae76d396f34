"""Files of a result that a user has viewed. A mark is personal, and ends when the file's content changes."""

from __future__ import annotations

import hashlib

from tasks_app.models import Task, User, ViewedFile


def viewed_keys(task: Task, user: User) -> frozenset[str]:
    """Return the keys of the contents that the user has viewed; see `viewed_key`."""
    return frozenset(ViewedFile.objects.filter(task=task, user=user).values_list("key", flat=True))


def viewed_key(path: str, blob: str) -> str:
    return hashlib.sha256(f"{blob}\0{path}".encode(errors="surrogatepass")).hexdigest()


def mark_viewed(task: Task, user: User, *, path: str, blob: str, viewed: bool) -> None:
    """Mark the content as viewed, or no longer. Doing it twice changes nothing."""
    key = viewed_key(path, blob)
    if viewed:
        ViewedFile.objects.get_or_create(task=task, user=user, key=key, defaults={"path": path, "blob": blob})
    else:
        ViewedFile.objects.filter(task=task, user=user, key=key).delete()
