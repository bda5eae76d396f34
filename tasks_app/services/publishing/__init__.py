"""Publishing results: branches, pull requests, what pipelines publish, merges, webhooks of forges.

Rows are written here; `engine/publishing/` carries it out.
"""
