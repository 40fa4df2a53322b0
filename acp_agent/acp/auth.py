"""Authentication: what a client is offered for a provider that needs a key, and whether one is known.

Without such a provider there is nothing to log in to, and no `Authentication`.
"""

from __future__ import annotations

from acp_agent.acp.capabilities import ClientCapabilities
from acp_agent.acp.handshake import Wire
from acp_agent.credentials import VARIABLES, Credentials, KeysDamaged
from acp_agent.errors import AgentError, AuthRequired, InvalidParams

ENVIRONMENT, TERMINAL = "environment", "terminal"
"""The ids of the methods."""


class EnvironmentMethod(Wire, frozen=True):
    """A method of `authenticate`; the protocol gives that kind no `type`."""

    id: str
    name: str
    description: str


class TerminalMethod(Wire, frozen=True, tag_field="type", tag="terminal"):
    """The client runs this agent's own command with `args` in a terminal, and starts it anew when that has ended well.
    """

    id: str
    name: str
    description: str
    args: tuple[str, ...]


class Authentication:
    """Whether a provider's key is known to this process."""

    def __init__(self, provider: str, credentials: Credentials) -> None:
        self._provider = provider
        self._credentials = credentials
        self._ignores_environment = False
        """After a logout, until `authenticate`: a variable cannot be taken away, only be left alone."""

    def methods(self, client: ClientCapabilities) -> list[EnvironmentMethod | TerminalMethod]:
        """What `initialize` offers this client."""
        variable, command = VARIABLES[self._provider], f"acp-agent login {self._provider}"
        methods: list[EnvironmentMethod | TerminalMethod] = [EnvironmentMethod(
            ENVIRONMENT, f"{self._provider}: key from the environment",
            f"Uses {variable} as set where the agent is started, or the key that `{command}` stored.",
        )]  # fmt: skip
        if client.terminal_auth:
            methods.append(TerminalMethod(
                TERMINAL, f"{self._provider}: enter a key", f"`{command}`: asks for the key and stores it.",
                ("login", self._provider),
            ))  # fmt: skip
        return methods

    def require(self) -> None:
        """Raises `AuthRequired` while no key is known, and `KeysDamaged` where no login could change that."""
        if not self._known():
            raise AuthRequired(f"a key for {self._provider} is needed: {self._advice()}, then authenticate")

    def authenticate(self, method: str) -> None:
        """Raises `InvalidParams` for a method that is not `authenticate`'s, `AuthRequired` where there is no key."""
        if method == TERMINAL:
            raise InvalidParams(f"methodId: {TERMINAL!r} is done by running the agent with `login` in a terminal; "
                                f"authenticate takes {ENVIRONMENT!r}")  # fmt: skip
        if method != ENVIRONMENT:
            raise InvalidParams(f"methodId: unknown authentication method {method!r}; expected {ENVIRONMENT!r}")
        if self._credentials.key(self._provider) is None:
            raise AuthRequired(f"there is no key for {self._provider}: {self._advice()}, then authenticate again")
        self._ignores_environment = False

    def log_out(self) -> None:
        """Forget the stored key, and leave the environment's alone until `authenticate`. Open sessions go on."""
        self._ignores_environment = True
        try:
            self._credentials.forget(self._provider)
        except KeysDamaged as damage:
            raise AgentError(f"the key of {self._provider} may still be in {self._credentials.file}, which "
                             f"{damage.what}: take it out by hand, or delete the file") from None  # fmt: skip
        except OSError as error:
            raise AgentError(f"the stored key of {self._provider} could not be taken out of {self._credentials.file}: "
                             f"{error.strerror}; delete it by hand") from None  # fmt: skip

    def _known(self) -> bool:
        find = self._credentials.stored if self._ignores_environment else self._credentials.key
        return find(self._provider) is not None

    def _advice(self) -> str:
        return f"set {VARIABLES[self._provider]} where the agent is started, or run `acp-agent login {self._provider}`"
