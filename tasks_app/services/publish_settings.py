"""Where a project's results are published, with which credential, and to which branches never."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import ssh_key_fingerprint
from django.core.exceptions import ValidationError
from django.db import transaction

from tasks_app.core.errors import BadInput
from tasks_app.core.storable import storable_text
from tasks_app.git import AUTHOR
from tasks_app.git.publishing import Credential, HttpsToken, Remote, SshKey
from tasks_app.git.source import is_url, normalise_source
from tasks_app.history.audit import record
from tasks_app.models import Action, CredentialKind, Project, PublishCredential
from tasks_app.permissions import Principal, require_maintainer, require_site_admin
from tasks_app.services.encryption import Purpose, decrypt, encrypt

#: Completes “Its maintainers …”.
MANAGE_PUBLISHING = "say how its results are published"
_LONGEST_SECRET = 20_000


@dataclass(frozen=True)
class NewCredential:
    """Input for a credential: a token with its user name, or a private key with the server's host keys."""

    kind: str
    secret: str = field(repr=False)
    username: str = ""
    known_hosts: str = ""


def target_of(project: Project) -> str:
    """Return the path or URL of the repository that results are published to."""
    return project.publish_url or project.source


def credential_kind_for(url: str) -> CredentialKind | None:
    """Return the kind of credential that a repository takes; None for a folder, which takes none."""
    if not is_url(url):
        return None
    return CredentialKind.TOKEN if urlsplit(url).scheme == "https" else CredentialKind.SSH_KEY


def stored_credential(project: Project) -> PublishCredential | None:
    """Return the row of the project's credential, with which nothing can be decrypted by mistake."""
    return PublishCredential.objects.filter(project=project).first()


def credential_fault(project: Project) -> str:
    """Return why the stored credential is not used, or ""."""
    stored = stored_credential(project)
    if stored is None or stored.url == target_of(project):
        return ""
    return (
        f"The stored credential is for {stored.url} and results are published to {target_of(project)}. "
        "Store a credential for that repository, or remove this one."
    )


def remote_of(project: Project) -> Remote:
    """Return where results are published, with the decrypted credential. Only for the worker.

    Raises CannotDecrypt, or BadInput if the credential was stored for another repository.
    """
    if fault := credential_fault(project):
        raise BadInput(fault)
    stored = stored_credential(project)
    return Remote(target_of(project), _decrypted(stored) if stored else None)


def _decrypted(stored: PublishCredential) -> Credential:
    secret = decrypt(stored.encrypted_secret, Purpose.PUBLISHING)
    if stored.kind == CredentialKind.TOKEN:
        return HttpsToken(stored.username, secret)
    return SshKey(secret, stored.known_hosts)


def author_of(project: Project) -> tuple[str, str]:
    """Return name and address of the author of squashed commits."""
    if not project.publish_author:
        return AUTHOR
    name, _, address = project.publish_author.rpartition(" <")
    return name, address.removesuffix(">")


def protecting_pattern(project: Project, branch: str) -> str:
    """Return the pattern, or the branch that tasks start from, that protects `branch`; "" if none does."""
    patterns = (project.branch, *project.protected_branches.split())
    return next((pattern for pattern in patterns if fnmatchcase(branch, pattern)), "")


def change_publishing(
    project: Project,
    *,
    url: str,
    protected_branches: str,
    author: str,
    required_approvals: int | None = None,
    by: Principal,
) -> None:
    """Change where and how results are published; `url` may be "" for the source.

    Without a number, the `required_approvals` stay as they are.

    Raises NotAllowed for all but maintainers, and for another `url` for all but site admins: it may be any
    folder on the portal's machine. Raises BadInput for a value that is not usable.
    """
    require_maintainer(by, project, MANAGE_PUBLISHING)
    url = normalise_source(url) if url.strip() else ""
    if url != project.publish_url:
        require_site_admin(by, "say where a project's results are published")
    values: dict[str, str | int] = {
        "publish_url": url,
        "protected_branches": "\n".join(protected_branches.split()),
        "publish_author": author.strip(),
    }
    if required_approvals is not None:
        values["required_approvals"] = required_approvals
    _save(project, values, by=by)


def _save(project: Project, values: dict[str, str | int], *, by: Principal) -> None:
    changed: dict[str, Any] = {
        name: [getattr(project, name), value]
        for name, value in values.items()
        if value != getattr(project, name)
    }
    for name, value in values.items():
        setattr(project, name, value)
    try:
        project.full_clean(exclude={one.name for one in project._meta.fields} - set(changed))
    except ValidationError as error:
        raise BadInput("; ".join(error.messages), where="publishing") from None
    if changed:
        with transaction.atomic():
            project.save(update_fields=list(values))
            record(Action.SETTINGS_CHANGED, by=by.user, project=project, changed=changed)


def store_credential(project: Project, new: NewCredential, *, by: Principal) -> PublishCredential:
    """Store the credential for the repository that results are published to, in place of an earlier one.

    Raises NotAllowed for all but maintainers, and BadInput if it does not fit the repository's URL. No
    message repeats the secret.
    """
    require_maintainer(by, project, MANAGE_PUBLISHING)
    url = target_of(project)
    values = _checked_token(new, url) if new.kind == CredentialKind.TOKEN else _checked_key(new, url)
    values["encrypted_secret"] = encrypt(values["encrypted_secret"], Purpose.PUBLISHING)
    with transaction.atomic():
        stored, _ = PublishCredential.objects.update_or_create(
            project=project, defaults={**values, "url": url, "stored_by": by.user}
        )
        record(Action.CREDENTIAL_STORED, by=by.user, project=project, **_audit_details(stored))
    return stored


def remove_credential(project: Project, *, by: Principal) -> None:
    """Remove the credential, if there is one. Raises NotAllowed for all but maintainers."""
    require_maintainer(by, project, MANAGE_PUBLISHING)
    with transaction.atomic():
        if stored := PublishCredential.objects.select_for_update().filter(project=project).first():
            record(Action.CREDENTIAL_REMOVED, by=by.user, project=project, **_audit_details(stored))
            stored.delete()


def _audit_details(stored: PublishCredential) -> dict[str, Any]:
    return {"kind": stored.kind, "url": stored.url, "shown": stored.shown}


def _checked_token(new: NewCredential, url: str) -> dict[str, str]:
    if credential_kind_for(url) is not CredentialKind.TOKEN:
        raise BadInput(f"A token is for an https URL, and results are published to {url}.", where="kind")
    token, username = new.secret.strip(), new.username.strip()
    if not token or not token.isascii() or not token.isprintable() or len(token) > _LONGEST_SECRET:
        raise BadInput("Enter the token, in ASCII characters on one line.", where="secret")
    if not username or len(username) > 200 or not username.isprintable():
        raise BadInput("Enter the user name that belongs to the token.", where="username")
    return {
        "kind": CredentialKind.TOKEN, "username": username, "encrypted_secret": token, "known_hosts": "",
        "shown": f"user {username}",
    }  # fmt: skip


def _checked_key(new: NewCredential, url: str) -> dict[str, str]:
    if credential_kind_for(url) is not CredentialKind.SSH_KEY:
        raise BadInput(f"A key is for an ssh URL, and results are published to {url}.", where="kind")
    known_hosts = new.known_hosts.replace("\r\n", "\n").strip()
    if not known_hosts or storable_text(known_hosts) != known_hosts or len(known_hosts) > _LONGEST_SECRET:
        raise BadInput(
            "Enter the host keys of the server, as `ssh-keyscan HOST` prints them, after you have compared "
            "them with those that its operator publishes.",
            where="known_hosts",
        )
    key = new.secret.replace("\r\n", "\n").strip() + "\n"
    return {
        "kind": CredentialKind.SSH_KEY, "username": "", "encrypted_secret": key,
        "known_hosts": f"{known_hosts}\n", "shown": f"key {_fingerprint(key)}",
    }  # fmt: skip


def _fingerprint(key: str) -> str:
    """Return the key's fingerprint as ssh shows it. Raises BadInput if it is not a usable private key."""
    own_format = "BEGIN OPENSSH PRIVATE KEY" in key
    load = serialization.load_ssh_private_key if own_format else serialization.load_pem_private_key
    try:
        public: Any = load(key.encode(), password=None).public_key()
    except TypeError:
        raise BadInput("The key has a passphrase. Enter a key without one.", where="secret") from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadInput("This is not a private key that ssh can use.", where="secret") from None
    digest = ssh_key_fingerprint(public, SHA256())
    return f"SHA256:{b64encode(digest).decode().rstrip('=')}"
