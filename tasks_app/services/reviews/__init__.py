"""Reviews of results: threads, approvals, requests for changes that go back to the agent, viewed files."""
