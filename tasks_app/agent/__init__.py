"""Running an agent: the port, Claude Code behind it, a fake one, the gate, the API key proxy, transcripts.

Knows neither the database nor Django. What is to be stored goes through the port's recorder.
"""
