"""Installations for the crash tests are those of the integration tests."""

from tests.integration.conftest import installation, installation_template, runner

__all__ = ["installation", "installation_template", "runner"]
