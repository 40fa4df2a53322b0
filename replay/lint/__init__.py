"""`acp-agent lint`: tries the protocol's conformance statements on any ACP agent, as its client.

`statements` is what an agent has to keep, `checks_*` how each is tried, `passive` what is seen of every exchange,
`probe` one agent process to try it on, `runner` the whole run, `report` what is printed.
"""
