"""`python -m acp_agent` is the `acp-agent` command."""

import sys

from acp_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
