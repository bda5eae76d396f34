"""`doctor`: looks at everything that an installation needs and says what to do.

A check is a function that yields findings. It changes nothing, has a bound for what may hang, and may raise
whatever it likes: the runner turns that into a finding. What can safely be mended carries its mend.
"""
