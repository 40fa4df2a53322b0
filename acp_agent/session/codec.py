"""Session log format 0 on disk: header line, complete records, packed rows (format reference 1.1-1.6).

Everything that reads or writes logs goes through these names; each module behind them is one part of the format.
"""

from __future__ import annotations

from acp_agent.session.header import decode_header, encode_header
from acp_agent.session.packing import Packer, encode_event, pack
from acp_agent.session.reading import Reader
from acp_agent.session.records import MAX_SAFE, Record, encode_line, to_event, to_record
from acp_agent.session.rows import MIN_RUN, PACKED_TYPES

__all__ = [
    "MAX_SAFE", "MIN_RUN", "PACKED_TYPES", "Packer", "Reader", "Record", "decode_header", "encode_event",
    "encode_header", "encode_line", "pack", "split_lines", "to_event", "to_record",
]  # fmt: skip


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Complete lines (cut at byte 0x0A only) and what stands after the last newline."""
    *lines, rest = data.split(b"\n")
    return lines, rest
