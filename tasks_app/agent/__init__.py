"""Running an agent: the port, Claude Code behind it, a fake one, the gate, the API key proxy, transcripts.

The package knows neither the database nor Django. It stores everything through the port's recorder.
"""
