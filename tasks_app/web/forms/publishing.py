"""The forms of where and how a project's results are published."""

from __future__ import annotations

from typing import Any

from django import forms

from tasks_app.forges.port import ForgeKind
from tasks_app.models import CredentialKind, Project
from tasks_app.services.publishing.settings import NewCredential

_PLAIN = {"autocomplete": "off", "spellcheck": "false", "class": "machine"}


class _WriteOnlyText(forms.Textarea):
    """Never shows what was entered, also not after an error."""

    def format_value(self, value: Any) -> str:
        return ""


class PublishingForm(forms.Form):
    """The repository, protected branches, author and required approvals. The service checks the values."""

    url = forms.CharField(required=False, max_length=500, widget=forms.TextInput(_PLAIN))
    protected_branches = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(_PLAIN | {"rows": "5"})
    )
    author = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput({"autocomplete": "off", "placeholder": "Name <address@example.org>"}),
    )

    forge = forms.ChoiceField(
        required=False,
        choices=[("", "Detect from the host"), *((kind.value, kind.label) for kind in ForgeKind)],
    )
    forge_api_url = forms.CharField(required=False, max_length=500, widget=forms.TextInput(_PLAIN))
    pull_request_repository = forms.CharField(
        required=False, max_length=200, widget=forms.TextInput(_PLAIN | {"placeholder": "owner/name"})
    )
    required_approvals = forms.IntegerField(min_value=0, max_value=20, initial=0)

    @staticmethod
    def initial_values(project: Project) -> dict[str, str | int]:
        return {
            "url": project.publish_url,
            "protected_branches": project.protected_branches,
            "author": project.publish_author,
            "forge": project.forge,
            "forge_api_url": project.forge_api_url,
            "pull_request_repository": project.pull_request_repository,
            "required_approvals": project.required_approvals,
        }


class TokenForm(forms.Form):
    """A token for an https URL."""

    username = forms.CharField(max_length=200, widget=forms.TextInput(_PLAIN))
    secret = forms.CharField(
        max_length=20_000, widget=forms.PasswordInput({"autocomplete": "new-password"}, render_value=False)
    )

    def credential(self) -> NewCredential:
        return NewCredential(CredentialKind.TOKEN, **self.cleaned_data)


class AppForm(forms.Form):
    """The private key of a GitHub app, for an https URL."""

    username = forms.CharField(max_length=200, widget=forms.TextInput(_PLAIN | {"inputmode": "numeric"}))
    secret = forms.CharField(max_length=20_000, widget=_WriteOnlyText(_PLAIN | {"rows": "5"}))

    def credential(self) -> NewCredential:
        return NewCredential(CredentialKind.GITHUB_APP, **self.cleaned_data)


class KeyForm(forms.Form):
    """A private key for an ssh URL, and a token for pull requests."""

    secret = forms.CharField(max_length=20_000, widget=_WriteOnlyText(_PLAIN | {"rows": "5"}))
    known_hosts = forms.CharField(max_length=20_000, widget=forms.Textarea(_PLAIN | {"rows": "3"}))
    api_token = forms.CharField(
        required=False,
        max_length=20_000,
        widget=forms.PasswordInput({"autocomplete": "new-password"}, render_value=False),
    )

    def credential(self) -> NewCredential:
        return NewCredential(CredentialKind.SSH_KEY, **self.cleaned_data)


CREDENTIAL_FORMS: dict[CredentialKind, type[TokenForm | AppForm | KeyForm]] = {
    CredentialKind.TOKEN: TokenForm,
    CredentialKind.GITHUB_APP: AppForm,
    CredentialKind.SSH_KEY: KeyForm,
}
