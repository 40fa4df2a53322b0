"""Makes the structure-only protocol schemas beside this file from the published ones.

usage: python tests/schema/strip.py DIRECTORY_WITH_SCHEMAS

Prose goes (`title`, `description`, `$comment`, `examples`, as keywords); every fact stays: types, enums, required
members, bounds, defaults and the `x-` keys. A property that happens to be called `title` is not a keyword.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILES = ("schema.json", "schema.unstable.json")
PROSE = frozenset({"title", "description", "$comment", "examples"})
NAME_MAPS = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
"""Keywords whose members are names chosen by the schema's author, each with a schema of its own."""
DATA = frozenset({"default", "const", "enum"})
"""Keywords that hold instances, not schemas."""


def stripped(schema: Any) -> Any:
    """A schema without its prose."""
    if isinstance(schema, list):
        return [stripped(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        if key in DATA:
            result[key] = value
        elif key in NAME_MAPS:
            result[key] = {name: stripped(member) for name, member in value.items()}
        elif key not in PROSE:
            result[key] = stripped(value)
    return result


def main(source: Path) -> None:
    here = Path(__file__).parent
    for name in FILES:
        schema = stripped(json.loads((source / name).read_text(encoding="utf-8")))
        (here / name).write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
