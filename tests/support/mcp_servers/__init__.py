"""MCP servers for tests, as a client names them in its requests."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support import processes

_HERE = Path(__file__).parent


def stdio(
    script: str, *arguments: str, name: str | None = None, env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The entry of one of these scripts, `friendly` or `rude`, on stdio."""
    variables = [{"name": variable, "value": value} for variable, value in (env or {}).items()]
    return {"name": name or script, "command": sys.executable, "args": [str(_HERE / f"{script}.py"), *arguments],
            "env": variables}


@contextlib.contextmanager
def friendly_http(directory: Path, secret: str | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The friendly server on a loopback port: its address and its process. `secret` is a header it demands, NAME=VALUE.
    """
    port = directory / "port"
    words = [sys.executable, str(_HERE / "friendly.py"), "--http", str(port)]
    with subprocess.Popen([*words, *([] if secret is None else ["--secret", secret])], cwd=directory) as process:
        try:
            while not port.exists():
                assert process.poll() is None, "the server ended"
                processes.pause()
            yield f"http://127.0.0.1:{port.read_text()}/mcp", process
        finally:
            process.kill()
