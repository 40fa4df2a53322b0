"""Settings: flags, environment and one TOML file become one frozen `Settings` (flags beat environment beats file).

`SETTINGS` is the only list of them: parsing, `--help` and the typo check all read it. A setting's config key
is its name; the variable and the flag are derived from it (`replay_dir`, `ACP_REPLAY_DIR`, `--replay-dir`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from acp_agent.errors import SettingsError

ToolEffects = Literal["recorded", "live"]
DriftPolicy = Literal["warn", "fail", "ignore"]
SessionsPolicy = Literal["once", "repeat"]
Pace: TypeAlias = Literal["burst", "recorded"] | int
"""Both words as they are, or milliseconds before each chunk."""
PermissionMode = Literal["read-only", "ask", "accept-edits", "full-access"]
IdScheme = Literal["random", "sequential"]
LogLevel = Literal["error", "warning", "info", "debug"]


class JsonlStore(Struct, frozen=True, tag="jsonl"):
    """Sessions are log files below `directory` (absolute)."""

    directory: Path


class SqliteStore(Struct, frozen=True, tag="sqlite"):
    """Sessions are rows of the database `file` (absolute)."""

    file: Path


class ModelChoice(Struct, frozen=True):
    """A model. `model` is everything after the first slash and may hold more of them; for the provider `scripted`
    it is a file's path (absolute).
    """

    provider: str
    model: str


class Settings(Struct, frozen=True, kw_only=True):
    """What the agent was started with. Every path is absolute; nothing was looked at, so none need exist."""

    store: JsonlStore | SqliteStore
    replay_dir: Path | None = None
    replay_tools: ToolEffects = "recorded"
    replay_drift: DriftPolicy = "warn"
    replay_sessions: SessionsPolicy = "once"
    replay_pace: Pace = "burst"
    replay_receipt: Path | None = None
    model: ModelChoice | None = None
    permission_mode: PermissionMode = "ask"
    subagent_max_depth: int = 3
    ids: IdScheme = "random"
    log_level: LogLevel = "warning"


class Base(Struct, frozen=True):
    """What a relative path starts from, and what `~` stands for."""

    directory: Path
    home: Path


class Rejected(ValueError):
    """A parser's no; the caller knows the setting and where the value came from."""


# ---------------------------------------------------------------- parsers: text -> value, or Rejected


def _path(text: str, base: Base) -> Path:
    if not text or "\0" in text:
        raise Rejected
    if text == "~" or text.startswith("~/"):
        return base.home / text[2:]
    return base.directory / text


def _count(text: str, _base: Base) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Rejected
    return int(text)


def _pace(text: str, base: Base) -> str | int:
    return text if text in ("burst", "recorded") else _count(text, base)


def _store(text: str, base: Base) -> JsonlStore | SqliteStore:
    kind, _, where = text.partition(":")
    if kind == "jsonl":
        return JsonlStore(_path(where, base))
    if kind == "sqlite":
        return SqliteStore(_path(where, base))
    raise Rejected


SCRIPTED = "scripted"
"""The provider whose model is a file."""

LIVE = ("openai", "anthropic")
"""Providers of live models. One can be logged in to; what its models are asked is answered in a later version."""


def _model(text: str, base: Base) -> ModelChoice:
    provider, _, model = text.partition("/")
    if not provider or not model or text != text.strip():
        raise Rejected
    return ModelChoice(provider, str(_path(model, base)) if provider == SCRIPTED else model)


# ---------------------------------------------------------------- the table


class Setting(Struct, frozen=True):
    """One setting. `allowed`, `default` and `meaning` are what `--help` and error messages say.

    `field` is the attribute of `Settings` it fills, where that is not its name.
    """

    name: str
    allowed: str
    default: str
    meaning: str
    parse: Callable[[str, Base], Any]
    field: str = ""

    @property
    def variable(self) -> str:
        return "ACP_" + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def attribute(self) -> str:
        return self.field or self.name


def _words(name: str, words: tuple[str, ...], meaning: str, default: str = "") -> Setting:
    """A setting that is one of `words`; without a `default`, the first."""
    def parse(text: str, _base: Base) -> str:
        if text not in words:
            raise Rejected
        return text

    return Setting(name, ", ".join(words[:-1]) + " or " + words[-1], default or words[0], meaning, parse)


NOTHING = "none"
"""How `default` says that there is none."""

CONFIG = Setting("config", "FILE", "$XDG_CONFIG_HOME/acp-agent/config.toml",
                 "the TOML file that may hold any setting below, under its lower-case name", _path)

SETTINGS: tuple[Setting, ...] = (
    Setting("replay_dir", "DIR", NOTHING, "replay the session logs in this directory; no key, no network", _path),
    _words("replay_tools", ("recorded", "live"), "tool results come from the recording, or tools run"),
    _words("replay_drift", ("warn", "fail", "ignore"),
           "what to do about requests unlike the recorded ones (in a later version)"),
    _words("replay_sessions", ("once", "repeat"), "repeat: every new session gets the whole recording"),
    Setting("replay_pace", "burst, recorded or a whole number of milliseconds per chunk", "burst",
            "how fast recorded chunks are served", _pace),
    Setting("replay_receipt", "FILE", NOTHING, "at exit, write what the replay used and left over", _path),
    Setting("session_store", "jsonl:DIR or sqlite:FILE", "jsonl:$XDG_STATE_HOME/acp-agent/sessions",
            "where session logs are kept", _store, field="store"),
    Setting("model", "PROVIDER/MODEL", NOTHING,
            "scripted/FILE: a model script answers (live models in a later version)", _model),
    _words("permission_mode", ("read-only", "ask", "accept-edits", "full-access"),
           "the mode new sessions start in", default="ask"),
    Setting("subagent_max_depth", "a whole number from 0 up", "3", "how deep subagents may nest", _count),
    _words("ids", ("random", "sequential"), "sequential: session-1, session-2, ... so that scripts can name them"),
    _words("log_level", ("error", "warning", "info", "debug"), "how much is written to stderr", default="warning"),
)

_EVERY = (CONFIG, *SETTINGS)


# ---------------------------------------------------------------- reading


def read_settings(
    flags: Mapping[str, str], environ: Mapping[str, str], *, home: Path, cwd: Path,
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> Settings:
    """The settings in force.

    `flags` maps flags as typed (`--replay-dir`) to their values, `environ` is the process environment. Relative
    paths start at `cwd`; those in the config file at the file's own directory. An empty variable counts as unset.
    `read` returns a file's bytes.

    Raises `SettingsError` naming the flag, variable or key, the value and what is allowed: for a bad value, for
    an unknown flag or key, and for an `ACP_` variable that is one typo away from one of ours.
    """
    refuse_near_misses(environ)
    base = Base(cwd, home)
    texts = _from_file(flags, environ, base, read)
    texts |= {s.name: (environ[s.variable], s.variable, base) for s in SETTINGS if environ.get(s.variable)}
    texts |= {setting_for_flag(flag).name: (value, flag, base) for flag, value in flags.items()}
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        if setting.name in texts:
            values[setting.attribute] = _parse(setting, *texts[setting.name])
        elif setting.default != NOTHING:
            values[setting.attribute] = setting.parse(_expand(setting.default, environ, base), base)
    return Settings(**values)


def refuse_unavailable(settings: Settings) -> None:
    """Raises `SettingsError` for a model of a provider that nobody knows, also where a recording answers in its place.
    """
    choice = settings.model
    if choice is not None and choice.provider not in (SCRIPTED, *LIVE):
        model = f"{choice.provider}/{choice.model}"
        raise SettingsError(
            f"ACP_MODEL: no provider is named {choice.provider!r} ({model}); known: {SCRIPTED}, and in a later "
            f"version {' and '.join(LIVE)}", name="ACP_MODEL", value=model, allowed=f"{SCRIPTED}/FILE",
        )


def credentials_file(environ: Mapping[str, str], home: Path) -> Path:
    """Where `acp-agent login` keeps keys."""
    return Path(_expand("$XDG_CONFIG_HOME/acp-agent/credentials.json", environ, Base(home, home)))


def setting_for_flag(flag: str) -> Setting:
    """The setting a flag sets. Raises `SettingsError` for an unknown flag, naming a similar one."""
    for setting in _EVERY:
        if setting.flag == flag:
            return setting
    near = _nearest(flag.lstrip("-"), _EVERY, lambda setting: setting.name)
    advice = f"did you mean {near.flag}?" if near else "see acp-agent --help"
    raise SettingsError(f"unknown flag {flag}; {advice}", name=flag)


def refuse_near_misses(environ: Mapping[str, str]) -> None:
    """Raises `SettingsError` for a variable that is one typo, or only case or dashes, away from one of ours.

    Only names that begin with ACP are looked at: other programs have an MCP_CONFIG. Empty variables are unset.
    """
    ours = {setting.variable for setting in _EVERY}
    for name, value in environ.items():
        if name[:3].upper() != "ACP" or name in ours or not value:
            continue
        near = _nearest(name, _EVERY, lambda setting: setting.variable)
        if near:
            raise SettingsError(f"unknown variable {name}; did you mean {near.variable}?", name=name)


def _parse(setting: Setting, text: str, source: str, base: Base) -> Any:
    try:
        return setting.parse(text, base)
    except Rejected:
        raise SettingsError(f"{source}: {text!r} is not allowed; allowed: {setting.allowed}",
                            name=source, value=text, allowed=setting.allowed) from None


def _expand(default: str, environ: Mapping[str, str], base: Base) -> str:
    """A default with its XDG directory filled in; a relative one is ignored, as that standard says."""
    for variable, fallback in (("XDG_STATE_HOME", ".local/state"), ("XDG_CONFIG_HOME", ".config")):
        directory = environ.get(variable, "")
        if not directory.startswith("/"):
            directory = str(base.home / fallback)
        default = default.replace(f"${variable}", directory)
    return default


# ---------------------------------------------------------------- the config file


def _from_file(
    flags: Mapping[str, str], environ: Mapping[str, str], base: Base, read: Callable[[Path], bytes],
) -> dict[str, tuple[str, str, Base]]:
    """Setting name -> (text, where it stands, base for paths), from the config file there is, if any."""
    source = CONFIG.flag if CONFIG.flag in flags else CONFIG.variable if environ.get(CONFIG.variable) else None
    if source is None:
        file = _path(_expand(CONFIG.default, environ, base), base)
    else:
        file = _parse(CONFIG, flags[source] if source in flags else environ[source], source, base)
    try:
        content = read(file)
    except OSError as error:
        if source is None and isinstance(error, FileNotFoundError | NotADirectoryError):
            return {}
        raise SettingsError(f"{source or 'config file'}: cannot read {file}: {error.strerror or error}",
                            name=source or str(file), value=str(file)) from None
    own = Base(file.parent, base.home)
    return {name: (text, f"{name} in {file}", own) for name, text in _toml(content, file).items()}


def _toml(content: bytes, file: Path) -> dict[str, str]:
    """A config file's keys and values as text."""
    import tomllib  # only when there is a file

    try:
        table = tomllib.loads(content.decode())
    except ValueError as error:  # bad UTF-8 too
        raise SettingsError(f"{file} is not valid TOML: {error}", name=str(file)) from None
    known = {setting.name: setting for setting in SETTINGS}
    for key in table:
        if key not in known:
            near = _nearest(key, SETTINGS, lambda setting: setting.name)
            advice = f"did you mean {near.name}?" if near else f"known keys: {', '.join(sorted(known))}"
            raise SettingsError(f"unknown key {key!r} in {file}; {advice}", name=key)
    texts = {}
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise SettingsError(
                f"{key} in {file}: {value!r} is not allowed; allowed: {known[key].allowed}, as a string or number",
                name=key, value=str(value), allowed=known[key].allowed)
        texts[key] = str(value)
    return texts


# ---------------------------------------------------------------- typos


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _nearest(typed: str, settings: Iterable[Setting], spelling: Callable[[Setting], str]) -> Setting | None:
    """The setting whose spelling is at most one edit away from what was typed, ignoring case and dashes."""
    plain = _plain(typed)
    return next((s for s in settings if within_one_edit(plain, _plain(spelling(s)))), None)


def within_one_edit(one: str, other: str) -> bool:
    """Whether a single insertion, deletion, substitution or neighbour swap, or none, makes them equal."""
    if one == other:
        return True
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    left, right = one[start:], other[start:]
    return (
        left[1:] == right[1:] or left[1:] == right or left == right[1:]
        or (left[:2] == right[1::-1] and left[2:] == right[2:])
    )
