"""The form for a new project."""

from __future__ import annotations

from django import forms

from tasks_app.models import Project
from tasks_app.models.project import NAME


class AddProjectForm(forms.Form):
    """A name and a source. The service checks whether there is a repository at the source."""

    name = forms.CharField(
        max_length=60,
        validators=[NAME],
        widget=forms.TextInput(attrs={"placeholder": "billing", "autocomplete": "off"}),
        error_messages={"required": "Enter a name."},
    )
    source = forms.CharField(
        max_length=500,
        widget=forms.TextInput(
            attrs={
                "placeholder": "/srv/git/billing or git@example.org:team/billing.git",
                "autocomplete": "off",
                "spellcheck": "false",
            }
        ),
        error_messages={"required": "Enter a folder, or an https or ssh URL."},
    )

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if Project.objects.filter(name=name).exists():
            raise forms.ValidationError("There is already a project with this name.")
        return name
