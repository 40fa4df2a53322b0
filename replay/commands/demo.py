"""`acp-agent demo`: replays the recording that comes with the package and shows what happens, as it happens."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from replay.agent_process import AgentProcess, Answer
from replay.artefacts import WireLine
from replay.commands.options import agent_command, parser
from replay.demo import PROMPT, RECORDING, WORKSPACE
from replay.failures import RunFailed
from replay.transcript import Transcript

SUMMARY = "Replay a small recorded session through the real agent, over stdio as an editor would, and show it."
TEACHING = """\
A model was asked to fix a misspelled greeting. It looks, edits, has a subagent review the change, and runs it. Every
answer of the model comes from the recording; the tools really run, in a temporary directory. No key is needed, and
no connection opened.

Then try:
  acp-agent chat               talk to the agent by hand
  acp-agent replay --help      replay your own sessions and scenarios
  acp-agent --help             everything else
"""


def main(words: Sequence[str]) -> int:
    """Run the command; its exit status: 0 when the recorded turn came to its end."""
    from rich.console import Console

    options = parser("demo", SUMMARY, TEACHING)
    options.parse_args(words)
    console = Console(highlight=False)
    transcript = Transcript(console)

    def show(line: WireLine) -> None:
        transcript.show(line.line, line.sender)

    console.print("[bold]acp-agent[/] replays a recorded session over stdio: no key, no network.\n", soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="acp-demo-") as folder:
        agent = AgentProcess(agent_command(options, None), Path(folder) / "run", recording=RECORDING, seed=WORKSPACE,
                             on_line=show)
        try:
            answer = _play(agent)
        except RunFailed as failure:
            console.print(str(failure), style="red", markup=False, soft_wrap=True)
            return 1
    logs = ", ".join(sorted(log.path.name for log in agent.artefacts.logs))
    console.print(f"\nstored and replayable as it stands: {logs}", style="dim", soft_wrap=True)
    return 0 if answer.stop_reason == "end_turn" else 1


def _play(agent: AgentProcess) -> Answer:
    with agent:
        agent.initialize()
        return agent.new_session().prompt(PROMPT)
