"""Rules about the source tree itself: who may import what, what no file may hold, what start-up may cost."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AGENT = sorted((ROOT / "acp_agent").rglob("*.py"))
ENGINE = sorted((ROOT / "replay").rglob("*.py"))
BUDGET = ROOT / "tests" / "import_budget.txt"


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=named(path))


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, at whatever depth of code."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def importers(package: str, files: list[Path]) -> set[str]:
    return {named(path) for path in files
            if any(name == package or name.startswith(f"{package}.") for name in imports(path))}


def test_the_agent_knows_the_replay_engine_in_one_module_only() -> None:
    assert importers("replay", AGENT) <= {"acp_agent/app.py"}


def test_one_module_alone_talks_to_jsonrpcserver() -> None:
    assert importers("jsonrpcserver", AGENT + ENGINE) <= {"acp_agent/rpc/dispatch.py"}


def test_neither_package_knows_the_tests() -> None:
    assert importers("tests", AGENT + ENGINE) == set()
    assert importers("pytest", AGENT) == set()


def test_a_blocking_subprocess_is_never_imported_at_start() -> None:
    """Module level only: what a function imports costs nothing until it runs."""
    heavy = {"subprocess", "tempfile", "argparse", "jsonrpcserver", "jsonschema", "pexpect", "rich", "replay"}
    found = {(named(path), name) for path in AGENT for node in tree(path).body
             for name in top_level_names(node) if name.split(".")[0] in heavy}
    assert found - {("acp_agent/rpc/dispatch.py", "jsonrpcserver")} == set()


def top_level_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        return [node.module]
    return []


def test_nothing_prints_in_the_agent_but_the_command_line() -> None:
    found = {named(path) for path in AGENT for node in ast.walk(tree(path))
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"}
    assert found <= {"acp_agent/cli.py"}


def test_every_public_module_says_what_it_is() -> None:
    modules = [path for path in AGENT + ENGINE if not path.name.startswith("_") or path.name == "__init__.py"]
    assert [named(path) for path in modules if path.read_text(encoding="utf-8").strip()
            and not ast.get_docstring(tree(path))] == []


def test_every_public_class_and_function_of_the_contracts_is_documented() -> None:
    contracts = ("session/events.py", "providers/base.py", "tools/base.py", "stores/base.py", "settings.py")
    missing = []
    for contract in contracts:
        path = ROOT / "acp_agent" / contract
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                body = [part for part in node.body if not isinstance(part, ast.AnnAssign | ast.Assign)]
                if not ast.get_docstring(node) and (isinstance(node, ast.FunctionDef) or body):
                    missing.append(f"{contract}: {node.name}")
    assert missing == []


UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def test_nothing_is_left_for_later() -> None:
    assert [named(path) for path in AGENT + ENGINE if UNFINISHED.search(path.read_text(encoding="utf-8"))] == []


# ---------------------------------------------------------------- tracked files

# Spelt in pieces, so that this file does not hold what it looks for.
FOREIGN = re.compile("|".join((
    r"(?<![\w-])/(?:wo" r"rk|ro" r"ot)/", r"(?<![\w-])/ho" r"me/(?!(?:someone|agent|nobody|me|user)\b)\w+",
    r"/Us" r"ers/\w+",
    r"[A-Z]:\\\\Us" r"ers",
    r"\bpyp" r"i\.(?!org\b)[\w.]+", r"\blocal" r"host:\d+", r"\.pye" r"nv/",
    r"-----BEGIN [A-Z ]*PRIV" r"ATE KEY", r"\bs" r"k-[A-Za-z0-9]{20,}",
)))


@pytest.mark.parametrize("line", [
    "cd /wo" "rk/main", "python=/ro" "ot/x", '"/ho' 'me/jane/x"', "/Us" "ers/jane",
    "https://pyp" "i.internal/simple",
    "sk" "-" + "a" * 24,
])
def test_a_trace_of_a_machine_is_recognised(line: str) -> None:
    assert FOREIGN.search(line)


def tracked() -> list[Path]:
    """The files of the repository; in a plain copy of it, every file that is not obviously a product."""
    git = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                         capture_output=True, check=False)
    if git.returncode == 0 and git.stdout:
        return [ROOT / os.fsdecode(name) for name in git.stdout.split(b"\0") if name]
    products = {".venv", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not products & set(path.parts)]


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    found = []
    for path in tracked():
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            match = FOREIGN.search(line)
            if match:
                found.append(f"{named(path)}:{number}: {match[0]}")
    assert found == []


def test_no_line_of_source_is_longer_than_a_line_may_be() -> None:
    """Ruff checks Python; this looks at the rest that people read. Tables of a README may not be wrapped."""
    for path in [ROOT / "Makefile", ROOT / "Dockerfile", ROOT / "CHANGELOG.md", ROOT / "README.md"]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert len(line) <= 120 or line.startswith("|"), f"{named(path)}:{number}"


# ---------------------------------------------------------------- start-up


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter loads for a statement, beyond those it starts with."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    done = subprocess.run([sys.executable, "-I", "-X", "importtime", "-c",
                           f"import sys; sys.path.insert(0, {str(ROOT)!r}); {statement}"],
                          capture_output=True, text=True, check=False, env=environ, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    return set(lines[lines.index("site") + 1:])


def allowed() -> set[str]:
    """The budget: a module a line, `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in BUDGET.read_text(encoding="utf-8").splitlines())
    return {line for line in lines if line}


def test_starting_the_server_imports_only_what_the_budget_allows() -> None:
    """The event loop and the codec are the floor; whatever else comes in before `initialize` needs a reason."""
    floor = loaded_by("import asyncio, msgspec")
    loaded = {name for name in loaded_by("import acp_agent.cli, acp_agent.app") if name.split(".")[0] != "acp_agent"}
    new = sorted(loaded - floor - allowed())
    assert new == [], (
        f"importing acp_agent.app now loads {', '.join(new)}. What is imported before `initialize` is answered "
        f"delays every start: import it inside the function that needs it, or, with a reason, add it to "
        f"{named(BUDGET)}."
    )


@pytest.mark.parametrize("package", ["jsonrpcserver", "jsonschema", "pexpect", "rich", "argparse", "replay"])
def test_starting_the_server_never_imports(package: str) -> None:
    assert not {name for name in loaded_by("import acp_agent.app") if name.split(".")[0] == package}


def test_reading_settings_imports_next_to_nothing() -> None:
    loaded = {name.split(".")[0] for name in loaded_by("import acp_agent.settings, acp_agent.cli")}
    assert not loaded & {"asyncio", "anyio", "argparse", "json", "logging", "subprocess", "tomllib"}
