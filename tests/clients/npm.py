"""The clients from npm, installed once into the user's cache, for whoever runs these tests.

What is installed is named by the versions in `package-lock.json`; a directory is put in its place when it is whole, so
that what is there can be used. Several test processes may ask at once: one installs, the others wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json", ".npmrc")
OLDEST_NODE = 20
LIMIT = 100.0
"""Seconds an installation may take: less than a test may."""


class Npm(NamedTuple):
    """The clients from npm. `directory` has them in its `node_modules`; `node` runs them."""

    node: str
    directory: Path

    def command(self, package: str, *arguments: str) -> list[str]:
        """A package's own command."""
        return [self.node, str(self.directory / "node_modules" / ".bin" / package), *arguments]


def installed() -> Npm:
    """The clients, installed if they are not. Skips the test where they cannot be had; fails it in CI."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        unavailable("node and npm are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        unavailable(f"node {version} is older than {OLDEST_NODE}")
    place = _cache() / f"clients-{_digest()}"
    if not place.is_dir():
        with _only_one(place.with_suffix(".lock")):
            if not place.is_dir():
                _install(npm, place)
    return Npm(node, place)


def unavailable(reason: str) -> NoReturn:
    """Give up on a test for want of a client: a failure in CI, where every client is to be had."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"clients from npm: {reason}")
    pytest.skip(f"clients from npm: {reason}")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(base, "acp-replay-tests")
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _digest() -> str:
    return hashlib.sha256(b"\0".join((HERE / name).read_bytes() for name in FILES)).hexdigest()[:16]


@contextlib.contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(npm: str, place: Path) -> None:
    """`npm install` keeps to the lock file. `npm ci` refuses it: a package names variants of itself that npm lacks."""
    unfinished = place.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name in FILES:
        shutil.copy(HERE / name, unfinished / name)
    try:
        done = subprocess.run([npm, "install", "--loglevel=error"], cwd=unfinished, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        unavailable(f"npm install took more than {LIMIT:g} s")
    if done.returncode != 0:
        unavailable(f"npm install failed: {done.stderr.strip()[-600:]}")
    unfinished.rename(place)
