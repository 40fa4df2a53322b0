"""Children of a session, in this process or another."""
