"""The certificate authorities that a worker host trusts for its portal: one list for requests and git.

By default requests has the list of the package certifi, and git that of the system or of GIT_SSL_CAINFO. A
host whose requests pass and whose git is refused would look sound, take tasks and postpone each of them.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

#: The variables that name the list. The first one that is set counts.
_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
#: Where systems have their list whose folder has no names that OpenSSL finds (Red Hat, SUSE).
_SYSTEM_FILES = (
    Path("/etc/pki/tls/cert.pem"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/ssl/ca-bundle.pem"),
)
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
#: OpenSSL's codes for a certificate whose authority is not in the list (X509_V_ERR_…).
_UNKNOWN_AUTHORITY = {2, 18, 19, 20, 21}


@dataclass(frozen=True)
class Authorities:
    """A file with certificates of authorities, or a folder as OpenSSL reads it. `named_by` is a variable."""

    path: Path
    named_by: str = ""

    @property
    def variables_of_git(self) -> tuple[tuple[str, str], ...]:
        """The environment variables, name and value, with which git trusts them."""
        return (("GIT_SSL_CAPATH" if self.path.is_dir() else "GIT_SSL_CAINFO", str(self.path)),)

    def tls_context(self) -> ssl.SSLContext:
        """Return a context for clients of the standard library. Raises OSError for an unusable file."""
        if self.path.is_dir():
            return ssl.create_default_context(capath=str(self.path))
        return ssl.create_default_context(cafile=str(self.path))

    def problem(self) -> str:
        """Return why they cannot be read, as a sentence without full stop, or ""."""
        name = self.named_by or "The list of certificate authorities"
        try:
            self.tls_context()
        except ssl.SSLError:
            return f"{name}: the file {self.path} has no certificate in the PEM format"
        except OSError as error:
            return f"{name}: the file {self.path} cannot be read ({error.strerror})"
        return ""


def of_portal() -> Authorities:
    """Return the authorities that may sign the portal's certificate."""
    for name in _VARIABLES:
        if value := os.environ.get(name):
            return Authorities(Path(value), name)
    system = ssl.get_default_verify_paths()
    folder = None
    if system.capath:
        # OpenSSL finds certificates in a folder by names that are hashes.
        in_folder = Path(system.capath)
        if any(_HASHED.fullmatch(file.name) for file in in_folder.iterdir()):
            folder = in_folder
    if folder and os.environ.get("SSL_CERT_DIR"):
        return Authorities(folder, "SSL_CERT_DIR")
    if system.cafile:
        return Authorities(Path(system.cafile))
    return Authorities(folder or _list_elsewhere())


def _list_elsewhere() -> Path:
    """Return the system's list if Python's OpenSSL was built for another system, or else that of requests."""
    # Every process imports this module, and few are on a worker host.
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    return next((file for file in _SYSTEM_FILES if file.is_file()), Path(DEFAULT_CA_BUNDLE_PATH))


def reason_of_failure(url: str, error: Exception, trusted: Authorities) -> str:
    """Return why a call of `url` with requests failed, as a sentence without full stop."""
    if url.startswith("https:") and (problem := trusted.problem()):
        return problem
    found = _ssl_error(error)
    if isinstance(found, ssl.SSLCertVerificationError):
        refused = found.verify_message.rstrip(".")
        if found.verify_code not in _UNKNOWN_AUTHORITY:
            return f"The certificate of {url} is not valid: {refused}"
        hint = f"name the authority's certificate in {trusted.named_by or _VARIABLES[0]}"
        return f"The certificate of {url} is not trusted: {refused}; {hint}"
    reason = type(error).__name__
    if found is not None and found.reason:
        reason += f": {found.reason.replace('_', ' ').lower()}"
    return f"The portal at {url} cannot be reached ({reason})"


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the error of the TLS library. requests and urllib3 have it as a cause or as an argument."""
    while error is not None and not isinstance(error, ssl.SSLError):
        inner = (error.__cause__, *error.args)
        error = next((one for one in inner if isinstance(one, BaseException)), None)
    return error
