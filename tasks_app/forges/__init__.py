"""Forges (GitHub, GitLab, Forgejo): one port with an adapter for each, and a fake for tests."""
