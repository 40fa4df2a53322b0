"""The pytest plugin: `pytest --acp-agent COMMAND` plays every scenario it finds, one test each.

A directory with an `input.json` is a scenario. Without `--acp-agent` nothing is collected and nothing imported; the
fixtures are there in either case. Documented in docs/pytest-plugin.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from replay.agent_process import AgentProcess
    from replay.artefacts import Artefacts
    from replay.judge import Verdict

INPUT = "input.json"
COMMAND = pytest.StashKey[tuple[str, ...]]()
WRITTEN = pytest.StashKey[set[Path]]()
"""The trees whose goldens were written: their pins are settled at the end."""

GOLDEN = "acp-golden"
"""The property of a report that names a file which was written; xdist brings it to the process that tells."""

_OUTPUT_KEY = "acp_written"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("acp-replay", "snapshot tests of ACP agents")
    group.addoption("--acp-agent", metavar="COMMAND", help="play the scenarios (directories with an input.json) among "
                    "the paths with the agent that this command starts")
    group.addoption("--acp-update", action="store_true", help="make the goldens say what the runs did; not under CI")
    group.addoption("--acp-transport", choices=("pipe", "pty"), default="pipe",
                    help="how to talk with the agent: over pipes (default) or a raw pseudo-terminal")
    group.addoption("--acp-timeout", type=float, default=30.0, metavar="SECONDS",
                    help="the longest single wait for the agent (default 30)")


def pytest_configure(config: pytest.Config) -> None:
    """Check the options. Raises `pytest.UsageError`."""
    line = config.getoption("--acp-agent")
    if config.getoption("--acp-update"):
        _check_update(line)
    if line is not None:
        config.stash[COMMAND] = _command(line)
        config.stash[WRITTEN] = set()


def _check_update(line: str | None) -> None:
    from replay.judge import in_ci

    if line is None:
        raise pytest.UsageError("--acp-update needs --acp-agent COMMAND: the goldens are written from its runs")
    if in_ci():
        raise pytest.UsageError("--acp-update is refused because CI is set: goldens are only compared there; "
                                "update them where you can look at the changes")


def _command(line: str) -> tuple[str, ...]:
    import shlex

    from replay.failures import CannotStart
    from replay.transports import resolve

    try:
        return tuple(resolve(shlex.split(line), os.environ))
    except (CannotStart, ValueError) as error:
        raise pytest.UsageError(f"--acp-agent: {error}") from None


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which agent is tested."""
    return [f"acp agent: {config.getoption('--acp-agent')}"] if COMMAND in config.stash else []


# ---------------------------------------------------------------- scenarios as tests


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A scenario's workspace is data, whatever is called test in it."""
    if COMMAND in config.stash and collection_path.name == "workspace" and _is_scenario(collection_path.parent):
        return True
    return None


def _is_scenario(directory: Path) -> bool:
    return (directory / INPUT).is_file()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """An `input.json` is a scenario."""
    if file_path.name != INPUT or COMMAND not in parent.config.stash:
        return None
    return ScenarioFile.from_parent(parent, path=file_path)


class ScenarioFile(pytest.File):
    """The `input.json` of a scenario; one test."""

    def collect(self) -> Iterator[pytest.Item]:
        """Read the script, so that a broken one is found before anything runs."""
        from replay.failures import ScenarioError
        from replay.scenario import load_scenario

        try:
            scenario = load_scenario(self.path)
        except ScenarioError as error:
            raise self.CollectError(str(error)) from None
        yield ScenarioItem.from_parent(self, name=scenario.name)


class ScenarioItem(pytest.Item):
    """Plays one scenario in a directory of its own."""

    def runtest(self) -> None:
        """Play and judge. Raises `ScenarioFailed`."""
        import shutil

        from replay.judge import judge

        config = self.config
        command = config.stash[COMMAND]
        directory = self.path.parent
        update: bool = config.getoption("--acp-update")
        root = _temporary(config, self.name)
        verdict = judge(
            directory, command, root=root, update=update, transport=config.getoption("--acp-transport"),
            timeout=config.getoption("--acp-timeout"))
        if update and verdict.run is not None:
            config.stash[WRITTEN].add(directory.parent)
        self._tell(verdict)
        if not verdict.passed:
            raise ScenarioFailed(verdict, root, update)
        shutil.rmtree(root, ignore_errors=True)

    def _tell(self, verdict: Verdict) -> None:
        root = self.config.rootpath
        written = (path.relative_to(root) if path.is_relative_to(root) else path for path in verdict.changed)
        self.user_properties += [(GOLDEN, str(path)) for path in written]
        self.user_properties += [(GOLDEN, f"note: {note}") for note in verdict.notes]
        if verdict.artefacts is not None and verdict.artefacts.stderr.strip():
            self.add_report_section("call", "agent stderr", verdict.artefacts.stderr)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None,
    ) -> str | Any:
        """The differences as they are; a traceback says nothing about an agent."""
        if isinstance(excinfo.value, ScenarioFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the scenario stands."""
        return self.path, None, f"scenario: {self.name}"


class ScenarioFailed(Exception):
    """A scenario that did not do what its golden says. `root` is where it ran."""

    def __init__(self, verdict: Verdict, root: Path, update: bool) -> None:
        advice = ""
        if not update and (verdict.bare or verdict.differences):
            advice = f"\n\nif this is what it should do: pytest --acp-agent ... --acp-update {verdict.directory}"
        super().__init__(f"{verdict.report()}\n\nthe run's files: {root}{advice}")


def _temporary(config: pytest.Config, name: str) -> Path:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]  # items have no fixtures
    return factory.mktemp(f"acp-{name}", numbered=True) / "run"


# ---------------------------------------------------------------- after a run that wrote


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Settle the pins of what was written; a worker of xdist leaves that to the process that started it."""
    written = session.config.stash.get(WRITTEN, set())
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT_KEY] = sorted(map(str, written))
    elif written:
        from replay.pins import settle

        for tree in sorted(written):
            settle(tree)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended: take over what it wrote."""
    output = getattr(node, "workeroutput", {})
    node.config.stash.setdefault(WRITTEN, set()).update(map(Path, output.get(_OUTPUT_KEY, ())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the files that were written."""
    if not config.getoption("--acp-update"):
        return
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    lines = [str(value) for report in reports for name, value in report.user_properties if name == GOLDEN]
    terminalreporter.section("goldens", "-")
    for line in lines or ["as they were"]:
        terminalreporter.write_line(line)


# ---------------------------------------------------------------- fixtures


class StartAgent(Protocol):
    """Makes an `AgentProcess` in a directory of its own; takes that class's options."""

    def __call__(self, **options: Any) -> AgentProcess: ...


class PlayScenario(Protocol):
    """Plays a script: a scenario's directory, or the members of an `input.json` without one."""

    def __call__(
        self, scenario: Path | str | Sequence[dict[str, Any]], *, recording: Path | None = None, **members: Any,
    ) -> Artefacts: ...


@pytest.fixture(scope="session")
def acp_agent_command(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The command that starts the agent under test: that of `--acp-agent`. Override it to name another."""
    command = request.config.stash.get(COMMAND, None)
    if command is None:
        pytest.skip("needs --acp-agent COMMAND, or a fixture acp_agent_command of your own")
    return command


@pytest.fixture
def acp_agent_process(
    acp_agent_command: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest,
) -> StartAgent:
    """Starts the agent under test: `with acp_agent_process() as agent`; each call is one run, with
    `replay.agent_process.AgentProcess`'s options.
    """
    roots = _numbered(tmp_path, "agent")

    def start(**options: Any) -> AgentProcess:
        from replay.agent_process import AgentProcess

        return AgentProcess(acp_agent_command, next(roots), **_defaults(request.config) | options)

    return start


@pytest.fixture
def acp_scenario_player(
    acp_agent_command: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest,
) -> PlayScenario:
    """Plays a scenario with the agent under test, `acp_scenario_player(directory)` or
    `acp_scenario_player([{"op": "initialize"}, ...], permissionAnswers=[...])`; gives the run's `Artefacts`.
    """
    roots = _numbered(tmp_path, "scenario")

    def play_scenario(
        scenario: Path | str | Sequence[dict[str, Any]], *, recording: Path | None = None, **members: Any,
    ) -> Artefacts:
        import msgspec

        from replay.driver import play
        from replay.scenario import load_scenario, read_scenario

        if isinstance(scenario, Path | str):
            script = load_scenario(Path(scenario))
        else:
            data = msgspec.json.encode({"steps": list(scenario), **members})
            script = read_scenario(data, tmp_path / INPUT)
        return play(script, acp_agent_command, root=next(roots), recording=recording, **_defaults(request.config))

    return play_scenario


def _defaults(config: pytest.Config) -> dict[str, Any]:
    return {"transport": config.getoption("--acp-transport"), "timeout": config.getoption("--acp-timeout")}


def _numbered(directory: Path, name: str) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        yield directory / f"{name}-{number}"

