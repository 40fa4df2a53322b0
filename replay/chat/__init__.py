"""`acp-agent chat`: a terminal client for any ACP agent, for debugging by hand.

    options   the command line
    contract  what the link needs of the others
    link      the agent's process and the lines that pass
    protocol  what the client says and reads
    services  files, terminals and questions that the agent asks the client for
    outputs   what commands in terminals write, while they run
    keyboard  lines that are typed or piped
    screen    what is shown: a transcript, or JSON lines
    talk      the conversation: sessions, prompts, commands, cancelling
"""
