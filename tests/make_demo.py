"""Makes the demo's recording: plays a scripted model through the real agent, and keeps the logs it stored.

usage: python -m tests.make_demo

What the model says is written here; everything else in the recording is what the agent did.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import replay.demo
from replay.agent_process import AgentProcess
from replay.project import project_log
from tests.wire.recordings import Log, call, step, text, thought, tool, write

AGENT = (sys.executable, "-m", "acp_agent")


def words(sentence: str) -> list[str]:
    """A sentence in the deltas a model might send it in."""
    first, *rest = sentence.split(" ")
    return [first, *(f" {word}" for word in rest)]


def scripted(directory: Path) -> None:
    """What the models of the demo say, as the barest recording that can be replayed."""
    review = "Read greet.py and say in one sentence whether the greeting is spelled correctly."
    fix, check = "Fix the greeting", "Have it reviewed"
    plan = [{"content": fix, "status": "in_progress"}, {"content": check, "status": "pending"}]
    done = [{"content": one, "status": "completed"} for one in (fix, check)]
    parent = Log("demo").turn(
        replay.demo.PROMPT,
        step(call(thought(*words("A small fix. I will look first, then edit, then have it checked.")),
                  tool("call-plan", "todo_write", todos=plan),
                  tool("call-read", "read", file_path="greet.py")), "", ""),
        step(call(tool("call-edit", "edit", file_path="greet.py", old_string="Helo", new_string="Hello")), ""),
        step(call(tool("call-review", "subagent", description="Review the greeting", prompt=review)), ""),
        step(call(tool("call-run", "bash", command="python3 -c 'import greet; print(greet.greet(\"world\"))'",
                       description="Try it"), tool("call-done", "todo_write", todos=done)), "", ""),
        call(text(*words("Fixed: the greeting was misspelled. A reviewer and a run agree on it."))),
    )  # fmt: skip
    child = parent.spawned("demo-reviewer", "call-review").turn(
        review,
        step(call(tool("call-look", "read", file_path="greet.py")), ""),
        call(text(*words("Yes, it says Hello, and that is spelled correctly."))),
    )
    write(directory, parent, child)


def main() -> int:
    """Run and keep; the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        scripted(root / "script")
        with AgentProcess(AGENT, root / "run", recording=root / "script", seed=replay.demo.WORKSPACE) as agent:
            agent.initialize()
            agent.new_session().prompt(replay.demo.PROMPT)
        logs = [log.path for log in agent.artefacts.logs]
        replay.demo.RECORDING.mkdir(exist_ok=True)
        for log in logs:
            (replay.demo.RECORDING / log.name).write_bytes(project_log(log))
        sys.stdout.write(f"{len(logs)} logs kept in {replay.demo.RECORDING.name}/\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
