"""Publishing of a project: its settings, access tokens and the webhook of its forge.

A call of a webhook only says that something happened; the portal then reads from the forge, as without
webhooks. A forged, repeated or lost call only changes the time of the next look.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urljoin, urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import ssh_key_fingerprint
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.core.text import storable_text
from tasks_app.encryption import CannotDecrypt, Purpose, decrypt, encrypt
from tasks_app.forges.port import Forge, ForgeAddress, ForgeKind, connect, forge_address
from tasks_app.forges.webhooks import SECRET_PREFIX, AffectedPullRequests, affected_pull_requests, is_signed
from tasks_app.git import AUTHOR
from tasks_app.git.publishing import Credential, HttpsToken, Remote, SshKey
from tasks_app.git.source import is_url, normalise_source
from tasks_app.history.audit import record
from tasks_app.models import Action, CredentialKind, Project, PublishCredential, PullRequest
from tasks_app.models.publication import SHORTEST_GAP, SHORTEST_PAUSE
from tasks_app.permissions import Principal, require_maintainer, require_site_admin
from tasks_app.services.projects.settings import save_settings

#: Completes “Its maintainers …”.
MANAGE_PUBLISHING = "say how its results are published"
_LONGEST_SECRET = 20_000
#: With which user name GitHub takes the token of an app.
_APP_USER = "x-access-token"


@dataclass(frozen=True)
class NewCredential:
    """Input for a credential: a token with its user name, or a private key with the server's host keys.

    With a key, `api_token` is for pull requests. For a GitHub app, `username` is its id.
    """

    kind: str
    secret: str = field(repr=False)
    username: str = ""
    known_hosts: str = ""
    api_token: str = field(default="", repr=False)


def target_of(project: Project) -> str:
    """Return the path or URL of the repository that results are published to."""
    return project.publish_url or project.source


def credential_kind_for(url: str) -> CredentialKind | None:
    """Return the kind of credential that a repository takes; None for a folder, which takes none."""
    if not is_url(url):
        return None
    if urlsplit(url).scheme == "https":
        return CredentialKind.TOKEN
    return CredentialKind.SSH_KEY


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
    if stored := stored_credential(project):
        return Remote(target_of(project), _decrypted(stored, project))
    return Remote(target_of(project), None)


def _decrypted(stored: PublishCredential, project: Project) -> Credential:
    secret = decrypt(stored.encrypted_secret, Purpose.PUBLISHING)
    if stored.kind == CredentialKind.TOKEN:
        return HttpsToken(stored.username, secret)
    if stored.kind == CredentialKind.GITHUB_APP:
        return HttpsToken(_APP_USER, _app_token(stored, secret, project, to_push=True))
    return SshKey(secret, stored.known_hosts)


def forge_address_of(project: Project) -> ForgeAddress | None:
    """Return where pull requests of the project's results are opened; None if that is not known."""
    own = forge_address(target_of(project), kind=project.forge, api_url=project.forge_api_url)
    upstream = project.pull_request_repository
    if own is None or upstream in ("", own.repository):
        return own
    return replace(own, repository=upstream, fork=own.repository)


def pull_requests_url(project: Project) -> str:
    """Return the URL of the repository that pull requests are opened in."""
    target, address = target_of(project), forge_address_of(project)
    if address is None or not address.fork:
        return target
    before, _, after = target.rpartition(address.fork)
    return f"{before}{address.repository}{after}"


def pull_request_hindrance(project: Project) -> str:
    """Return why no pull requests can be opened for the project, or ""."""
    if forge_address_of(project) is None:
        return (
            f"{target_of(project)} is at no forge that the portal knows. The page Publishing of the project "
            "says which one it is: GitHub, GitLab or Forgejo."
        )
    stored = stored_credential(project)
    if stored is None:
        return "Pull requests need a credential. Store one on the page Publishing of the project."
    if stored.kind == CredentialKind.SSH_KEY and not stored.encrypted_api_token:
        return "Pull requests need an API token besides the SSH key. Store both on the page Publishing."
    return ""


def forge_of(project: Project) -> Forge:
    """Return the forge of the repository that results are published to. Only for the worker.

    Raises BadInput if there is none or its token is missing, CannotDecrypt, or ForgeError.
    """
    stored, address = stored_credential(project), forge_address_of(project)
    fault = pull_request_hindrance(project) or credential_fault(project)
    if fault or stored is None or address is None:
        raise BadInput(fault)
    encrypted = stored.encrypted_api_token or stored.encrypted_secret
    token = decrypt(encrypted, Purpose.PUBLISHING)
    if stored.kind == CredentialKind.GITHUB_APP:
        token = _app_token(stored, token, project, to_push=False)
    return connect(address, token, listed=settings.ENVIRONMENT.webhook_allow)


def _app_token(stored: PublishCredential, private_key: str, project: Project, *, to_push: bool) -> str:
    """Exchange the app's key for a token that is valid for an hour. Raises BadInput or ForgeError.

    It is for the repository that is pushed to, or for the one that pull requests go to.
    """
    from tasks_app.forges.github import AppKey, installation_token  # takes a second

    address = forge_address_of(project)
    if address is None or address.kind != ForgeKind.GITHUB:
        raise BadInput("The stored credential is of a GitHub app, and the repository is not at GitHub.")
    key = AppKey(stored.username, private_key)
    listed = settings.ENVIRONMENT.webhook_allow
    repository = address.repository
    if to_push and address.fork:
        repository = address.fork
    return installation_token(address.api_url, repository, key, listed=listed)


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
    url: str | None = None,
    protected_branches: str | None = None,
    author: str | None = None,
    required_approvals: int | None = None,
    forge: str | None = None,
    forge_api_url: str | None = None,
    pull_request_repository: str | None = None,
    by: Principal,
) -> None:
    """Change where and how results are published; None leaves a setting as it is. An empty `url`: the source.

    Raises NotAllowed for all but maintainers, and for another `url` or `forge_api_url` for all but site
    admins: the first may be any folder on the portal's machine, and the second gets the token. Raises
    BadInput for a value that is not usable.
    """
    require_maintainer(by, project, MANAGE_PUBLISHING)
    values: dict[str, str | int] = {}
    if url is not None:
        values["publish_url"] = normalise_source(url) if url.strip() else ""
        if values["publish_url"] != project.publish_url:
            require_site_admin(by, "say where a project's results are published")
    if protected_branches is not None:
        values["protected_branches"] = "\n".join(protected_branches.split())
    if author is not None:
        values["publish_author"] = author.strip()
    plain = {
        "required_approvals": required_approvals,
        "forge": forge,
        "pull_request_repository": pull_request_repository and pull_request_repository.strip().strip("/"),
    }
    values |= {name: value for name, value in plain.items() if value is not None}
    if forge_api_url is not None:
        api_url = forge_api_url.strip().rstrip("/")
        parts = urlsplit(api_url)
        is_plain = parts.scheme in ("https", "http") and parts.hostname and not parts.username
        if api_url and (not is_plain or parts.query):
            said = "Enter the URL of the API, such as https://git.example.org/api/v4."
            raise BadInput(said, where="forge_api_url")
        values["forge_api_url"] = api_url
        if values["forge_api_url"] != project.forge_api_url:
            require_site_admin(by, "say where the API of a project's forge is")
    pairs: dict[str, list[Any]] = {name: [getattr(project, name), value] for name, value in values.items()}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    save_settings(project, values, by=by, changed=changed, where="publishing")


def store_credential(project: Project, new: NewCredential, *, by: Principal) -> PublishCredential:
    """Store the credential for the repository that results are published to, in place of an earlier one.

    Raises NotAllowed for all but maintainers, and BadInput if it does not fit the repository's URL. No
    message repeats the secret.
    """
    require_maintainer(by, project, MANAGE_PUBLISHING)
    url = target_of(project)
    check = {CredentialKind.TOKEN: _checked_token, CredentialKind.GITHUB_APP: _checked_app}
    values = check.get(CredentialKind(new.kind), _checked_key)(new, url)
    for name in ("encrypted_secret", "encrypted_api_token"):
        if values[name]:
            values[name] = encrypt(values[name], Purpose.PUBLISHING)
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
    _require_token(token, where="secret")
    if not username or len(username) > 200 or not username.isprintable():
        raise BadInput("Enter the user name that belongs to the token.", where="username")
    return {
        "kind": CredentialKind.TOKEN, "username": username, "encrypted_secret": token, "known_hosts": "",
        "encrypted_api_token": "", "shown": f"user {username}",
    }  # fmt: skip


def _require_token(token: str, *, where: str) -> None:
    if not token or not token.isascii() or not token.isprintable() or len(token) > _LONGEST_SECRET:
        raise BadInput("Enter the token, in ASCII characters on one line.", where=where)


def _checked_app(new: NewCredential, url: str) -> dict[str, str]:
    if credential_kind_for(url) is not CredentialKind.TOKEN:
        raise BadInput(f"An app is for an https URL, and results are published to {url}.", where="kind")
    app_id = new.username.strip()
    if not app_id.isascii() or (not app_id.isalnum() and not app_id.replace(".", "").isalnum()):
        raise BadInput("Enter the id of the app, as its settings show it.", where="username")
    key = _private_key(new)
    try:
        loaded = serialization.load_pem_private_key(key.encode(), password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        loaded = None
    if not isinstance(
        loaded, rsa.RSAPrivateKey
    ):  # GitHub gives an app no other: what signs for it reads none
        raise BadInput(
            "The key of a GitHub app is an RSA private key without a passphrase. Enter the file that GitHub "
            "gave you: it begins with “-----BEGIN RSA PRIVATE KEY-----”.",
            where="secret",
        )
    return {
        "kind": CredentialKind.GITHUB_APP, "username": app_id[:200], "encrypted_secret": key,
        "known_hosts": "", "encrypted_api_token": "", "shown": f"app {app_id}, key {_fingerprint(key)}"[:200],
    }  # fmt: skip


def _private_key(new: NewCredential) -> str:
    return new.secret.replace("\r\n", "\n").strip() + "\n"


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
    key, api_token = _private_key(new), new.api_token.strip()
    if api_token:
        _require_token(api_token, where="api_token")
    return {
        "kind": CredentialKind.SSH_KEY, "username": "", "encrypted_secret": key,
        "encrypted_api_token": api_token, "known_hosts": f"{known_hosts}\n",
        "shown": f"key {_fingerprint(key)}",
    }  # fmt: skip


def _fingerprint(key: str) -> str:
    """Return the key's fingerprint as ssh shows it. Raises BadInput if it is not a usable private key."""
    load: Any = serialization.load_pem_private_key
    if "BEGIN OPENSSH PRIVATE KEY" in key:
        load = serialization.load_ssh_private_key
    try:
        public: Any = load(key.encode(), password=None).public_key()
    except TypeError:
        raise BadInput("The key has a passphrase. Enter a key without one.", where="secret") from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadInput("This is not a private key that ssh can use.", where="secret") from None
    digest = ssh_key_fingerprint(public, SHA256())
    return f"SHA256:{b64encode(digest).decode().rstrip('=')}"


def webhook_url(project: Project) -> str:
    """Return what is entered at the forge; without the installation's URL, its path."""
    return urljoin(str(settings.ENVIRONMENT.url or ""), reverse("forge_webhook", args=[project.pk]))


def create_webhook_secret(project: Project, *, by: Principal) -> str:
    """Make the secret of the webhook, in place of an earlier one, and return it; it is shown only once.

    Raises NotAllowed for all but maintainers.
    """
    require_maintainer(by, project, MANAGE_PUBLISHING)
    secret = f"{SECRET_PREFIX}{b64encode(secrets.token_bytes(32)).decode()}"
    _save_secret(project, encrypt(secret, Purpose.FORGE_WEBHOOKS), by=by, change="created")
    return secret


def remove_webhook_secret(project: Project, *, by: Principal) -> None:
    """Remove the secret, so that no call is accepted. Raises NotAllowed for all but maintainers."""
    require_maintainer(by, project, MANAGE_PUBLISHING)
    if project.encrypted_webhook_secret:
        _save_secret(project, "", by=by, change="removed")


def _save_secret(project: Project, encrypted: str, *, by: Principal, change: str) -> None:
    project.encrypted_webhook_secret, project.webhook_called_at = encrypted, None
    with transaction.atomic():
        project.save(update_fields=["encrypted_webhook_secret", "webhook_called_at"])
        record(Action.SETTINGS_CHANGED, by=by.user, project=project, webhook_secret=change)


def called_project(project_id: int, body: bytes, headers: Mapping[str, str]) -> Project | None:
    """Return the project if the call is signed with its secret.

    An unknown project, one without a secret and a wrong signature are alike.
    """
    project = Project.objects.filter(pk=project_id).exclude(encrypted_webhook_secret="").first()
    if project is None:
        return None
    address = forge_address_of(project)
    try:
        secret = decrypt(project.encrypted_webhook_secret, Purpose.FORGE_WEBHOOKS)
    except CannotDecrypt:
        return None
    if address is None or not is_signed(address.kind, secret, body, headers):
        return None
    return project


def receive_call(project: Project, body: bytes) -> None:
    """Let the pull requests be looked at that a signed call is about."""
    Project.objects.filter(pk=project.pk).update(webhook_called_at=timezone.now())
    _look_soon(project, affected_pull_requests(body))


def _look_soon(project: Project, affected: AffectedPullRequests) -> None:
    """Bring the next looks forward. After a fault they stay as they are: a rate limit may hold.

    The next look at a pull request that is looked at now is when this look ends, or after SHORTEST_PAUSE if
    it takes longer: what it reads may be older than the call.
    """
    rows = PullRequest.objects.watched().filter(
        Q(number__in=affected.numbers) | Q(head_commit__in=affected.commits),
        project=project, url=pull_requests_url(project), fault="",
    )  # fmt: skip
    now = timezone.now()
    for row in rows:
        at = now
        if row.looked_at:
            gap = SHORTEST_PAUSE if row.is_looked_at_now else SHORTEST_GAP
            at = max(now, row.looked_at + timedelta(seconds=gap))
        PullRequest.objects.filter(pk=row.pk, next_look_at__gt=at).update(next_look_at=at)
