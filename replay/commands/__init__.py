"""The subcommands of `acp-agent` that belong to the kit. Each module's `main(words)` gives the exit status."""
