"""Our agent beside its peers, with the shared ACP benchmark driver.

usage: compare.py [options of acp_bench.py]

The driver is looked for in $ACP_BENCH_DIR, else in ../shared/bench beside the repository. Two of its counts are
replaced: it takes every session/update for a piece of text, but our agent also tells the session's title, which
is no part of the stream that is measured.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PIECE = b'"agent_message_chunk"'


def load_driver() -> Any:
    """The driver as a module."""
    folder = Path(os.environ.get("ACP_BENCH_DIR", HERE.parent.parent / "shared" / "bench"))
    spec = importlib.util.spec_from_file_location("acp_bench", folder / "acp_bench.py")
    if spec is None or spec.loader is None or not (folder / "acp_bench.py").exists():
        raise SystemExit(f"no acp_bench.py in {folder}; set ACP_BENCH_DIR")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse_pieces(drain: Any) -> tuple[dict[str, int], dict[Any, Any], int]:
    """Like the driver's own, but only pieces of text count as updates."""
    updates: dict[str, int] = {}
    replies: dict[Any, Any] = {}
    size = 0
    for line in b"".join(drain.chunks).split(b"\n"):
        if PIECE in line:
            session = json.loads(line)["params"]["sessionId"]
            updates[session] = updates.get(session, 0) + 1
            size += len(line) + 1
        elif b'"id"' in line and b'"method"' not in line:
            message = json.loads(line)
            replies[message["id"]] = message
    return updates, replies, size


def concurrent(bench: Any) -> Any:
    """K sessions prompted at once: total rate, wall time, and the slowest session's first piece of text."""

    def run(agent: Any, ctx: Any) -> dict[str, float]:
        count, each = ctx.opt("concurrent_sessions"), ctx.opt("concurrent_updates")
        sessions = [bench.new_session(agent, ctx.cwd)[1] for _ in range(count)]
        text = ctx.opt("concurrent_text").format(m=each, size=ctx.opt("stream_size"))
        deadline, start = bench.NS() + int(agent.timeout * 1e9), bench.NS()
        ids = [agent.start("session/prompt", bench.prompt_params(session, text)) for session in sessions]
        stamped: list[tuple[int, bytes]] = []
        left, tail = count, b""
        while left > 0:
            data = agent.read_chunk(deadline)
            stamped.append((bench.NS(), data))
            left -= (tail + data).count(b'"stopReason"')
            tail = data[-11:]
        first, pieces, replies = _sort(stamped)
        if any(replies.get(one) != "end_turn" for one in ids) or pieces != count * each:
            raise bench.AgentError(f"concurrent: {pieces} pieces of {count * each}, answers {replies}")
        seconds = (stamped[-1][0] - start) / 1e9
        return {"conc_s": pieces / seconds, "conc_wall_ms": seconds * 1e3,
                "conc_first_ms": (max(first.values()) - start) / 1e6}  # fmt: skip

    return run


def _sort(stamped: list[tuple[int, bytes]]) -> tuple[dict[str, int], int, dict[Any, str]]:
    first: dict[str, int] = {}
    replies: dict[Any, str] = {}
    pieces, rest = 0, b""
    for moment, data in stamped:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if PIECE in line:
                pieces += 1
                first.setdefault(line.split(b'"sessionId":"', 1)[1].split(b'"', 1)[0].decode(), moment)
            elif b'"stopReason"' in line:
                message = json.loads(line)
                replies[message["id"]] = message["result"]["stopReason"]
    return first, pieces, replies


def main() -> int:
    """Run the driver with our configuration and counts."""
    bench = load_driver()
    bench.Drain.parse = parse_pieces
    bench.RUNNERS["concurrent"] = concurrent(bench)
    plain = bench.expand
    bench.expand = lambda value, names: plain(value, {**names, "here": HERE})
    if not any(option in sys.argv for option in ("-c", "--config")):
        sys.argv[1:1] = ["-c", str(HERE / "agents.toml")]
    return int(bench.main() or 0)


if __name__ == "__main__":
    raise SystemExit(main())
