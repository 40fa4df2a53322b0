"""Scenario directories for tests of the plugin and of the commands, and what they say about files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.unit.replay_kit.driven import SDK_AGENT, START, op

OWN = f"{sys.executable} -m acp_agent"
SDK = " ".join(SDK_AGENT)
HELLO = 'call\n  say "Hello " "there."\n'
READS = 'call\n  tool look read {"file_path": "a.txt"}\ncall\n  say "It says " "beans."\n'


def scenario(directory: Path, *prompts: str | dict[str, Any], script: str | None = None, **members: Any) -> Path:
    """Write a scenario: prompts, and other steps between them; `script` is its model's."""
    directory.mkdir(parents=True, exist_ok=True)
    rest = [op("prompt", text=prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
    (directory / "input.json").write_text(json.dumps({"steps": [*START, *rest], **members}, indent=1))
    if script is not None:
        (directory / "model.script").write_text(script)
    return directory


def seeded(directory: Path, **files: str) -> Path:
    """Put files into a scenario's workspace; `a_txt` is `a.txt`."""
    (directory / "workspace").mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / "workspace" / name.replace("_", ".")).write_text(text)
    return directory


def stamps(root: Path) -> Mapping[str, tuple[int, int]]:
    """When each file below a directory was written last, and which file it is: a file that was replaced by an equal
    one has another number.
    """
    files = {str(path.relative_to(root)): path.stat() for path in root.rglob("*") if path.is_file()}
    return {name: (stat.st_mtime_ns, stat.st_ino) for name, stat in files.items()}


def names(directory: Path) -> list[str]:
    """The names in a directory."""
    return sorted(path.name for path in directory.iterdir())
