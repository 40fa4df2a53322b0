"""A well-behaved MCP server, made with the SDK: on stdio, or with `--http FILE` on a free port that FILE then names.

With `--secret NAME=VALUE` the HTTP server turns away who does not send that header.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

server = MCPServer("friendly", version="1.0", log_level="CRITICAL")


def png() -> bytes:
    """One pixel."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = chunk(b"IDAT", zlib.compress(b"\0\1\2\3"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixel + chunk(b"IEND", b"")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello {name}!"


@server.tool(structured_output=False)
def mixed() -> CallToolResult:
    """One of everything."""
    return CallToolResult(content=[
        TextContent(type="text", text="First."),
        Image(data=png(), format="png").to_image_content(),
        Image(data=b"nothing", format="png").to_image_content(),
        AudioContent(type="audio", data=base64.b64encode(b"sound").decode(), mime_type="audio/wav"),
        ResourceLink(type="resource_link", uri="file:///a.txt", name="a.txt"),
        ResourceLink(type="resource_link", uri="file:///c.txt", name="c.txt", title="C", description="The third.",
                     mime_type="text/plain", size=3),
        EmbeddedResource(type="resource",
                         resource=TextResourceContents(uri="file:///b.txt", text="inside", mime_type="text/plain")),
    ])


@server.tool(structured_output=False)
def held() -> CallToolResult:
    """Resources that are sent as bytes."""
    contents = [(b"caf\xc3\xa9", "text/plain"), (b"{}", "application/json"), (b"bare", None), (b"\x00", None),
                (b"words", "application/pdf"), (b"<svg/>", "image/svg+xml"), (png(), None), (png(), "image/png")]
    held = [BlobResourceContents(uri=f"file:///{at}", blob=base64.b64encode(data).decode(), mime_type=kind)
            for at, (data, kind) in enumerate(contents)]
    held.append(BlobResourceContents(uri="file:///odd", blob="é", mime_type="text/plain"))
    return CallToolResult(content=[EmbeddedResource(type="resource", resource=one) for one in held])


@server.tool(structured_output=False)
def structured() -> CallToolResult:
    """Data and no text."""
    return CallToolResult(content=[], structured_content={"answer": 42})


@server.tool()
def fail() -> str:
    """Never works."""
    raise ToolError("no luck today")


@server.tool()
def huge(size: int) -> str:
    """Very much text."""
    return "x" * size


@server.tool()
def environment() -> str:
    """The names of all environment variables."""
    return " ".join(sorted(os.environ))


@server.tool()
def where() -> str:
    """The working directory."""
    return str(Path.cwd())


@server.tool()
def trace(context: Context[Any, Any]) -> str:
    """The trace that the call says it is a part of."""
    meta: Any = dict(context.request_context.meta or {})
    return json.dumps({key: meta[key] for key in ("traceparent", "tracestate", "baggage") if key in meta})


@server.tool()
async def slow(context: Context[Any, Any]) -> str:
    """Tells that it is half done, and lasts until it is cancelled; then it makes the file `told`."""
    try:
        await context.report_progress(1, 2, "Digging")
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        Path("told").touch()
        raise
    return "never"


@server.tool()
async def grow(context: Context[Any, Any]) -> str:
    """Adds the tool `late` and tells of it, in the ways of both protocols."""
    server.add_tool(greet, name="late", description="Came later.")
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "grown"


@server.tool()
def stop(status: int) -> str:
    """Ends the server at once."""
    os.write(2, b"goodbye, cruel world\n")
    os._exit(status)


def require(app: Any, name: str, value: str) -> Any:
    """An ASGI application that turns away who does not send this header."""
    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(name.lower().encode()) != value.encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await app(scope, receive, send)

    return guarded


async def serve_http(port_file: Path, secret: str | None) -> None:
    """On a port of the system's choice."""
    import socket

    import uvicorn

    app = server.streamable_http_app()
    guarded = app if secret is None else require(app, *secret.split("=", 1))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    temporary = port_file.with_suffix(".new")
    temporary.write_text(str(listener.getsockname()[1]))
    temporary.rename(port_file)
    await uvicorn.Server(uvicorn.Config(guarded, log_level="critical")).serve([listener])


if __name__ == "__main__":
    if "--http" in sys.argv:
        secret = sys.argv[sys.argv.index("--secret") + 1] if "--secret" in sys.argv else None
        asyncio.run(serve_http(Path(sys.argv[sys.argv.index("--http") + 1]), secret))
    else:
        server.run("stdio")
