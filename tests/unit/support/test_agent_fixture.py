"""The `agent` fixture judges what a test leaves: shown by tests that leave something, in a pytest of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

HEAD = """
from tests.support.laws import Entry

def test_it(agent):
    process = agent()
    process.initialize()
"""

BAD_LOG = """
    directory = agent.store / "--w--" / "s"
    directory.mkdir(parents=True)
    (directory / "session.jsonl").write_bytes(b"not a log\\n")
"""


def outcome(tmp_path: Path, body: str) -> tuple[str, str]:
    """How pytest sums up a test with this body, and all it said."""
    file = tmp_path / "test_inner.py"
    file.write_text(HEAD + body, encoding="utf-8")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull,
         "--rootdir", str(tmp_path), str(file)],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False)
    counts = re.findall(r"(\d+ (?:passed|failed|errors?))", done.stdout.splitlines()[-1])
    return ", ".join(counts), done.stdout + done.stderr


def test_a_test_that_leaves_nothing_passes(tmp_path: Path) -> None:
    assert outcome(tmp_path, "")[0] == "1 passed"


def test_an_unlawful_transcript_is_an_error_of_the_test(tmp_path: Path) -> None:
    summary, output = outcome(tmp_path, "    process.transcript.append(Entry('agent', None, b'hello\\n'))")
    assert summary == "1 passed, 1 error"
    assert "law 1: a stdout line is not a JSON object" in output


def test_an_unlawful_log_is_an_error_of_the_test_unless_it_says_why(tmp_path: Path) -> None:
    summary, output = outcome(tmp_path, BAD_LOG)
    assert summary == "1 passed, 1 error"
    assert "format: line 1 is not JSON" in output
    assert outcome(tmp_path, BAD_LOG + "    agent.unlawful_logs = 'made by the test'\n")[0] == "1 passed"


def test_a_test_that_failed_is_not_judged_again_and_its_agent_is_gone(tmp_path: Path) -> None:
    body = "    print('pid', process.pid)\n    process.transcript.append(Entry('agent', None, b'x'))\n"
    summary, output = outcome(tmp_path, body + "    raise KeyError")
    assert summary == "1 failed"
    pid = int(re.findall(r"^pid (\d+)$", output, re.MULTILINE)[0])
    assert not Path(f"/proc/{pid}").exists()
