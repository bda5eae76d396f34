"""`/mcp`: a server of the Model Context Protocol, for the coding agents that people work in (A1)."""
