"""MCP servers of a session: started for it alone, their tools beside its own."""
