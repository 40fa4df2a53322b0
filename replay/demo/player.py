"""The client's side of the demo: starts the agent as an editor would, prompts it, and reads what comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Frame = dict[str, Any]


class Player:
    """One agent process replaying one directory. Used as a context manager."""

    def __init__(self, recording: Path, workspace: Path, store: Path, home: Path) -> None:
        self._workspace = workspace
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ACP_")}
        self._env = {
            **kept, "HOME": str(home), "ACP_REPLAY_DIR": str(recording), "ACP_REPLAY_TOOLS": "live",
            "ACP_SESSION_STORE": f"jsonl:{store}", "ACP_PERMISSION_MODE": "full-access",
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._next = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "acp_agent"], cwd=self._workspace, env=self._env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.read()
        process.wait()
        process.stdout.close()

    def play(self, prompt: str) -> Iterator[Frame]:
        """Every frame the agent sends, from `initialize` to the answer of the one prompt."""
        yield from self._call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        session = ""
        for frame in self._call("session/new", {"cwd": str(self._workspace), "mcpServers": []}):
            session = frame.get("result", {}).get("sessionId", session)
            yield frame
        content = [{"type": "text", "text": prompt}]
        yield from self._call("session/prompt", {"sessionId": session, "prompt": content})

    def _call(self, method: str, params: Frame) -> Iterator[Frame]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        self._next += 1
        request = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            frame: Frame = json.loads(line)
            yield frame
            if "method" not in frame and frame.get("id") == self._next:
                return
        raise RuntimeError(f"the agent ended before it answered {method}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the player is not started; use it as a context manager")
        return self._process
