"""What the chat client says to an agent, and what it reads of the answers. Reading is lenient: any agent may come."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from acp_agent.acp.handshake import PROTOCOL_VERSION, Implementation, Wire

# ---------------------------------------------------------------- said


class Marker(Wire, frozen=True):
    """`{}`: supported."""


class Files(Wire, frozen=True):
    read_text_file: bool = True
    write_text_file: bool = True


class Elicitation(Wire, frozen=True):
    form: Marker = Marker()


class SessionNews(Wire, frozen=True):
    """Updates that only a client that shows them may get."""

    notices: Marker = Marker()


class Capabilities(Wire, frozen=True):
    """What this client serves. Forms need somebody to fill them in."""

    fs: Files = Files()
    terminal: bool = True
    session: SessionNews = SessionNews()
    elicitation: Elicitation | UnsetType = UNSET


class Initialize(Wire, frozen=True):
    client_capabilities: Capabilities
    client_info: Implementation
    protocol_version: int = PROTOCOL_VERSION


class Authenticate(Wire, frozen=True):
    method_id: str


class NewSession(Wire, frozen=True):
    cwd: str
    mcp_servers: tuple[()] = ()


class Text(Wire, frozen=True, tag_field="type", tag="text"):
    text: str


class Prompt(Wire, frozen=True):
    session_id: str
    prompt: tuple[Text, ...]


class Cancel(Wire, frozen=True):
    session_id: str


class SetMode(Wire, frozen=True):
    session_id: str
    mode_id: str


class Chosen(Wire, frozen=True, tag_field="outcome", tag="selected"):
    option_id: str


class Cancelled(Wire, frozen=True, tag_field="outcome", tag="cancelled"):
    pass


class PermissionAnswer(Wire, frozen=True):
    outcome: Chosen | Cancelled


class FormAnswer(Wire, frozen=True):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | UnsetType = UNSET


class FileText(Wire, frozen=True):
    content: str


class NewTerminal(Wire, frozen=True):
    terminal_id: str


# ---------------------------------------------------------------- read


class AuthMethod(Wire, frozen=True):
    id: str
    name: str = ""
    type: str = "agent"


class AgentInfo(Wire, frozen=True):
    name: str = ""
    version: str = ""


class Initialized(Wire, frozen=True):
    protocol_version: int
    agent_info: AgentInfo | None = None
    auth_methods: list[AuthMethod] | None = None


class ModeChoice(Wire, frozen=True):
    id: str
    name: str = ""
    description: str | None = None


class Modes(Wire, frozen=True):
    current_mode_id: str
    available_modes: tuple[ModeChoice, ...] = ()


class Session(Wire, frozen=True):
    session_id: str
    modes: Modes | None = None


class TurnEnd(Wire, frozen=True):
    stop_reason: str


class Done(Wire, frozen=True):
    """A result that says nothing."""


class Read(Wire, frozen=True):
    path: str
    line: Annotated[int, Meta(ge=1)] | None = None
    limit: Annotated[int, Meta(ge=0)] | None = None


class Write(Wire, frozen=True):
    path: str
    content: str


class TerminalName(Wire, frozen=True):
    terminal_id: str


class RequestId(Struct, frozen=True, rename="camel"):
    """Names a request that is no longer wanted."""

    request_id: int | str | None


class NamedValue(Struct, frozen=True):
    """An option of a choice in a form."""

    const: str
    title: str = ""


class Choices(Struct, frozen=True, rename="camel"):
    """What an item of a list in a form may be."""

    enum: list[str] | None = None
    any_of: list[NamedValue] | None = None


class Field(Struct, frozen=True, rename="camel"):
    """A property of a form."""

    type: str = "string"
    title: str = ""
    description: str = ""
    default: Any = UNSET
    enum: list[str] | None = None
    one_of: list[NamedValue] | None = None
    items: Choices | None = None


class Schema(Struct, frozen=True):
    properties: dict[str, Field] = {}
    required: list[str] | None = None


class Form(Wire, frozen=True):
    """The params of `elicitation/create`."""

    message: str
    mode: str
    requested_schema: Schema = Schema()
