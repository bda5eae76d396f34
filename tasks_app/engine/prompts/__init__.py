"""What the agent of the next run is told: the prompt, requests of reviewers, decided tool calls, answers.

The words themselves are in `prompting/` and `prompts/`; here their values are read from the rows.
"""
