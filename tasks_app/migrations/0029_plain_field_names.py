"""Give the fields of notifications, tokens and credentials plain names."""

from django.db import migrations

_NAMES = {
    "preferences": {"wishes": "subscriptions", "reach": "project_selection"},
    "target": {
        "sealed_address": "encrypted_url",
        "sealed_secret": "encrypted_secret",
        "occasions": "event_types",
    },
    "notice": {"occasion": "event_type"},
    "delivery": {"occasion": "event_type", "said": "error"},
    "publishcredential": {"sealed_secret": "encrypted_secret"},
    "apitoken": {"told_at": "use_audited_at", "last_used_address": "last_used_ip_address"},
}


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0027_viewed_files")]

    operations = [
        migrations.RenameField(model, old, new)
        for model, names in _NAMES.items()
        for old, new in names.items()
    ]
