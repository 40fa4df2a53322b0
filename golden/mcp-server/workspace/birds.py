"""A small MCP server over stdio: it counts birds, and offers to ring them once it has counted some."""

import json
import sys

COUNT = {
    "name": "count", "description": "Count the birds of a kind.",
    "inputSchema": {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]},
}
RING = {"name": "ring", "description": "Ring a bird.", "inputSchema": {"type": "object", "properties": {}}}
BIRDS = {"heron": 3, "swift": 41}

tools = [COUNT]


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(name, arguments):
    if name == "ring":
        return {"content": [{"type": "text", "text": "It flew away."}], "isError": True}
    if RING not in tools:
        tools.append(RING)
        send(method="notifications/tools/list_changed")
    kind = arguments["kind"]
    return {"content": [{"type": "text", "text": f"{BIRDS.get(kind, 0)} of {kind}"}]}


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message:
        continue
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "birds", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": tools}
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments", {}))
    else:
        send(id=message["id"], error={"code": -32601, "message": f"there is no {method}"})
        continue
    send(id=message["id"], result=result)
