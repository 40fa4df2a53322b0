"""A small recording of our own, replayed through the real server over stdio. Made by `tests/make_demo.py`."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDING = HERE / "recording"
WORKSPACE = HERE / "workspace"
PROMPT = "The greeting in greet.py is misspelled. Fix it, have it reviewed, and show me that it works."
