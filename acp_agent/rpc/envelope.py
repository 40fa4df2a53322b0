"""JSON-RPC 2.0 envelopes: what a line is, and how our own messages are written.

`classify` looks at a line's envelope only. `params`, `result` and the error stay raw JSON until somebody
who knows their type decodes them. Which bad input gets which error follows the ACP guides and, where those
are silent, JSON-RPC 2.0.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, json, to_builtins

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800

NO_ID: Final = b"null"
"""The id of an answer to something that has no usable id."""

RequestKey: TypeAlias = str | bytes | None
"""A request id as something to look up: text for a string, the digits for an integer, None for null."""


class Request(Struct, frozen=True, gc=False):
    """A call to be answered. `id` is the id's JSON text, to be echoed byte for byte.

    `params` is the raw JSON value: `{}` where it was absent or null, and not an object in a bad request.
    """

    id: bytes
    key: RequestKey
    method: str
    params: Raw


class Notification(Struct, frozen=True, gc=False):
    """A call that is never answered. `params` as in `Request`."""

    method: str
    params: Raw


class Response(Struct, frozen=True, gc=False):
    """An answer to one of our own requests. It is never answered itself.

    `id` is None when it is none of ours (we number with integers). Exactly one of `result` and `error` is set in a
    well-formed one; both are unset when it makes no sense, and `flaw` says why.
    """

    id: int | None
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    flaw: str = ""


class Malformed(Struct, frozen=True, gc=False):
    """A line that is no message; it is answered with this error. `id` is the id's JSON text.

    `spoilt` is an answer that came to nothing, for the case that we have a request open which the line names.
    """

    code: int
    message: str
    id: bytes = NO_ID
    spoilt: Response | None = None


class ErrorObject(Struct, frozen=True):
    """The `error` member of a response."""

    code: int
    message: str
    data: Any = UNSET


Message: TypeAlias = Request | Notification | Response | Malformed


class _Envelope(Struct, gc=False):
    # An empty Raw means that the member is absent.
    jsonrpc: Raw = Raw()
    id: Raw = Raw()
    method: Raw = Raw()
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


_decode_envelope = json.Decoder(_Envelope).decode
_decode_text = json.Decoder(str).decode
_EMPTY_OBJECT = Raw(b"{}")
_BRACE = ord("{")
_UTF8_STEP = 64 * 1024
_NOT_A_MESSAGE = "not a request, notification or response: it has no method, result or error"
_NUMBER_BYTES = frozenset(b"0123456789.eE+-")
_NUMBER_DIGITS = 18  # more than we ever count to

_TOO_DEEP = Malformed(PARSE_ERROR, "the line is nested too deeply to be read")


def classify(line: bytes) -> Message:
    """What one line (without its line end) is. Never raises."""
    if not _is_utf8(line):
        return Malformed(PARSE_ERROR, "the line is not UTF-8")
    try:
        envelope = _decode(line)
    except ValidationError:
        return _not_an_object(line)
    except DecodeError as error:
        return _not_json(error)
    except RecursionError:
        return _TOO_DEEP
    if envelope.method:
        return _call(envelope)
    if envelope.result or envelope.error:
        return _response(envelope)
    return Malformed(INVALID_REQUEST, _NOT_A_MESSAGE, spoilt=_empty_answer(bytes(envelope.id)))


def id_key(raw: bytes) -> RequestKey | UnsetType:
    """The key of a request id given as JSON text; UNSET when no request may have such an id.

    Integers keep their digits, which are unique except for -0, so that no size of number is a problem.
    """
    if raw == NO_ID:
        return None
    if raw.startswith(b'"'):
        return _decode_text(raw)
    if raw.removeprefix(b"-").isdigit():
        return b"0" if raw == b"-0" else raw
    return UNSET


def _decode(line: bytes) -> _Envelope:
    try:
        return _decode_envelope(line)
    except ValidationError:
        raise
    except DecodeError:
        repaired = _without_lone_surrogates(line)
        if repaired is None:
            raise
        return _decode_envelope(repaired)


def _without_lone_surrogates(line: bytes) -> bytes | None:
    r"""The line with escapes of unpaired surrogates turned into U+FFFD; None when it has no such escape.

    JavaScript writes half an emoji as `"\ud83d"`. That is JSON by its grammar, but msgspec refuses it, and
    a client whose prompt came to nothing for it would wait for ever.
    """
    if b"\\u" not in line:
        return None
    import re

    high, low, half = rb"\\ud[89ab][0-9a-f]{2}", rb"\\ud[c-f][0-9a-f]{2}", rb"(\\ud[89a-f][0-9a-f]{2})"
    escapes = re.compile(high + low + b"|" + half + rb"|\\.", re.IGNORECASE | re.DOTALL)
    repaired = escapes.sub(lambda match: rb"\ufffd" if match[1] else match[0], line)
    return None if repaired == line else repaired


def _is_utf8(line: bytes) -> bool:
    if line.isascii():
        return True
    view = memoryview(line)
    position = 0
    try:
        # In steps, because the text of a 64 MiB line can take four times as much memory.
        while position < len(view):
            final = position + _UTF8_STEP >= len(view)
            position += utf_8_decode(view[position:position + _UTF8_STEP], "strict", final)[1]
    except UnicodeDecodeError:
        return False
    return True


def _not_json(error: DecodeError) -> Malformed:
    return Malformed(PARSE_ERROR, f"the line is not JSON: {error}")


def _not_an_object(line: bytes) -> Malformed:
    try:
        json.decode(line, type=Raw)  # the envelope's decoder stopped at the first byte
    except DecodeError as error:
        return _not_json(error)
    except RecursionError:
        return _TOO_DEEP
    if line.lstrip().startswith(b"["):
        return Malformed(INVALID_REQUEST, "batches are not part of this protocol: send one message a line")
    return Malformed(INVALID_REQUEST, "a message must be a JSON object")


def _call(envelope: _Envelope) -> Message:
    method, raw_id = bytes(envelope.method), bytes(envelope.id)
    if not method.startswith(b'"'):
        return Malformed(INVALID_REQUEST, "method must be a string")
    key = id_key(raw_id) if raw_id else None
    if key is UNSET:
        return Malformed(INVALID_REQUEST, "id must be a string, an integer or null")
    if bytes(envelope.jsonrpc) != b'"2.0"':
        return Malformed(INVALID_REQUEST, 'jsonrpc must be "2.0"', raw_id or NO_ID)
    params = envelope.params
    if not params or _is_null(params):
        params = _EMPTY_OBJECT
    if raw_id:
        return Request(raw_id, key, _decode_text(method), params)
    return Notification(_decode_text(method), params)


def _response(envelope: _Envelope) -> Response:
    # An explicit null beside the other member is what some clients send for "not this one".
    result, error, raw_id = envelope.result, envelope.error, bytes(envelope.id)
    known = _meant(raw_id)
    if known is not None and not raw_id.isdigit():
        return Response(known, flaw=f"has the id {raw_id.decode()}, which is not the {known} that was sent")
    if result and (not error or _is_null(error)):
        return Response(known, result=result)
    if error and (not result or _is_null(result)):
        return Response(known, error=error)
    return Response(known, flaw="has both a result and an error")


def _empty_answer(raw_id: bytes) -> Response | None:
    """JavaScript leaves `"result": undefined` out, so a client's answer may come without one."""
    known = _meant(raw_id)
    return None if known is None else Response(known, flaw="has neither a result nor an error")


def _meant(raw_id: bytes) -> int | None:
    """Which request of ours an answer's id names, be it as text or as a fraction (`"0"` and `0.0` mean 0)."""
    text = raw_id[1:-1] if raw_id.startswith(b'"') else raw_id
    if len(text) > _NUMBER_DIGITS or not _NUMBER_BYTES.issuperset(text):
        return None
    if text.isdigit():
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() and value >= 0 else None


def _is_null(raw: Raw) -> bool:
    # The length first: bytes() copies, and a prompt's params can be very long.
    return len(raw) == 4 and bytes(raw) == b"null"


def is_object(raw: Raw) -> bool:
    """Whether a raw JSON value is an object."""
    return len(raw) > 0 and memoryview(raw)[0] == _BRACE


# ---------------------------------------------------------------- our own messages

_encode = json.Encoder().encode
_encode_leniently = json.Encoder(enc_hook=str).encode


class _OutgoingRequest(Struct, frozen=True, gc=False):
    id: int
    method: str
    params: Any
    jsonrpc: str = "2.0"


class _OutgoingNotification(Struct, frozen=True, gc=False):
    method: str
    params: Any
    jsonrpc: str = "2.0"


def to_json(value: Any) -> bytes:
    """JSON of a struct (or anything made of structs, lists, dicts, text, numbers and raw JSON), on one line.

    Unpaired surrogates (file names and tool output can hold them) become U+FFFD. Raw JSON inside may be
    spread over lines: a line feed between JSON tokens is only white space, so it becomes a space.
    Raises TypeError for anything that is not JSON.
    """
    return _on_one_line(value, _encode)


def _on_one_line(value: Any, encode: Callable[[Any], bytes]) -> bytes:
    try:
        encoded = encode(value)
    except UnicodeEncodeError:
        encoded = encode(_without_surrogates(to_builtins(value, enc_hook=_raw_to_builtins)))
    return encoded.replace(b"\n", b" ") if b"\n" in encoded else encoded


def encode_result(request_id: bytes, result: bytes) -> bytes:
    """The line that answers a request. `result` is JSON text from `to_json`."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (request_id, result)


def encode_error(request_id: bytes, code: int, message: str, data: Any = UNSET) -> bytes:
    """The line that answers a request with an error. Never raises.

    In `data` what is no JSON becomes text; data that cannot be written even so is left out.
    """
    try:
        error = _on_one_line(ErrorObject(code, message, data), _encode_leniently)
    except Exception:
        # An error must reach the client whatever its facts are: unusable dict keys, a cycle, a failing str().
        error = _on_one_line(ErrorObject(code, message), _encode)
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (request_id, error)


def encode_request(number: int, method: str, params: Struct) -> bytes:
    """The line of a request of our own."""
    return to_json(_OutgoingRequest(number, method, params)) + b"\n"


def encode_notification(method: str, params: Struct) -> bytes:
    """The line of a notification of our own."""
    return to_json(_OutgoingNotification(method, params)) + b"\n"


def _raw_to_builtins(value: Any) -> Any:
    return json.decode(value) if isinstance(value, Raw) else str(value)


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value
