"""What a line is, and what our own lines look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, Struct

from acp_agent.rpc.envelope import (
    Malformed,
    Notification,
    Request,
    Response,
    classify,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    id_key,
    to_json,
)


def code_and_id(line: bytes) -> tuple[int, bytes]:
    message = classify(line)
    assert isinstance(message, Malformed), message
    return message.code, message.id


def request(line: bytes) -> Request:
    message = classify(line)
    assert isinstance(message, Request), message
    return message


def response(line: bytes) -> Response:
    message = classify(line)
    assert isinstance(message, Response), message
    return message


@pytest.mark.parametrize(
    "raw", ["0", "-1", "9007199254740991", '"1"', '"é"', r'"\u00e9"', "null", '""', "1" * 5000])
def test_a_request_keeps_its_id_byte_for_byte(raw: str) -> None:
    line = f'{{"jsonrpc":"2.0", "id" : {raw} ,"method":"m"}}'.encode()
    assert request(line).id == raw.encode()


@pytest.mark.parametrize("raw", ["1.5", "1.0", "1e3", "true", "false", "{}", "[]", "[1]"])
def test_an_id_no_request_may_have_is_an_invalid_request_without_id(raw: str) -> None:
    line = f'{{"jsonrpc":"2.0","id":{raw},"method":"m"}}'.encode()
    assert code_and_id(line) == (-32600, b"null")


def test_ids_are_looked_up_by_value_and_type() -> None:
    assert id_key(b'"a"') == id_key(rb'"\u0061"')
    assert id_key(b"1") != id_key(b'"1"')
    assert id_key(b"-0") == id_key(b"0")
    assert id_key(b"null") is None
    assert id_key(b"1.0") is UNSET


@pytest.mark.parametrize("params", ["", ',"params":null', ',"params":{}'])
def test_absent_and_null_params_are_an_empty_object(params: str) -> None:
    assert bytes(request(f'{{"jsonrpc":"2.0","id":1,"method":"m"{params}}}'.encode()).params) == b"{}"
    notification = classify(f'{{"jsonrpc":"2.0","method":"m"{params}}}'.encode())
    assert isinstance(notification, Notification)
    assert bytes(notification.params) == b"{}"


@pytest.mark.parametrize("params", ["[]", '"x"', "5", "true"])
def test_params_of_another_type_leave_the_request_answerable(params: str) -> None:
    message = request(f'{{"jsonrpc":"2.0","id":7,"method":"m","params":{params}}}'.encode())
    assert (message.id, bytes(message.params)) == (b"7", params.encode())


def test_unknown_envelope_members_are_ignored() -> None:
    assert request(b'{"jsonrpc":"2.0","id":1,"method":"m","extra":[1],"_meta":"x"}').method == "m"


@pytest.mark.parametrize("line", [
    b"{bad", b"nul", b"{", b'{"id":1', b"[1,", b"[1", b'{"a":NaN}', b'"open', b"\xff\xfe",
    b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xff"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"m"} trailing',
    rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\q"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"[" * 100_000,
])
def test_what_is_no_json_or_no_utf8_is_a_parse_error_without_id(line: bytes) -> None:
    assert code_and_id(line) == (-32700, b"null")


def test_utf8_is_checked_across_the_steps_of_a_long_line() -> None:
    def line(text: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"' + text + b'"}}'

    for shift in range(4):
        good = b"x" * shift + "🙂".encode() * 50_000
        assert len(request(line(good)).params) == len(good) + 8
        assert code_and_id(line(good + b"\xf0\x9f"))[0] == -32700


@pytest.mark.parametrize("line", [
    b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]',
    b"42", b'"x"', b"null", b"true", b"{}", b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":1,"params":{}}',
    b'{"jsonrpc":"2.0","id":1,"method":5}', b'{"jsonrpc":"2.0","method":null}',
    b'{"method":"m"}', b'{"jsonrpc":"1.0","method":"m"}',
])
def test_json_that_is_no_message_is_an_invalid_request_without_id(line: bytes) -> None:
    assert code_and_id(line) == (-32600, b"null")


@pytest.mark.parametrize("version", ["", '"jsonrpc":"1.0",', '"jsonrpc":2.0,', '"jsonrpc":null,'])
def test_a_wrong_version_is_an_invalid_request_with_the_id(version: str) -> None:
    assert code_and_id(f'{{{version}"id":"é","method":"m"}}'.encode()) == (-32600, '"é"'.encode())


@pytest.mark.parametrize("line", [
    b'{"jsonrpc":"2.0","id":3,"result":{}}', b'{"jsonrpc":"2.0","id":3,"result":null}',
    b'{"jsonrpc":"2.0","id":3,"result":{},"error":null}',
])
def test_a_result_is_a_response(line: bytes) -> None:
    message = response(line)
    assert message.id == 3
    assert message.result is not UNSET
    assert message.error is UNSET


def test_an_error_is_a_response_also_beside_a_null_result() -> None:
    message = response(b'{"jsonrpc":"2.0","id":3,"result":null,"error":{"code":1,"message":"m"}}')
    assert message.error is not UNSET
    assert message.result is UNSET


def test_a_response_with_both_members_holds_neither() -> None:
    both = response(b'{"jsonrpc":"2.0","id":3,"result":{},"error":{}}')
    assert both == Response(3, flaw="has both a result and an error")


NOBODY = ["null", "-3", "3.5", "1" * 30, "1e999", "{}", "[3]", "true", '"x"', '"3_0"', '" 3"', '"nan"', '""']
"""Ids that mean no request of ours."""


@pytest.mark.parametrize("raw", NOBODY)
def test_a_response_to_an_id_we_never_use_is_a_response_to_nobody(raw: str) -> None:
    assert response(f'{{"jsonrpc":"2.0","id":{raw},"result":{{}}}}'.encode()).id is None
    assert response(b'{"jsonrpc":"2.0","result":{}}').id is None


@pytest.mark.parametrize("raw", ['"3"', "3.0", "3e0", '"3.0"', "0.3E1"])
@pytest.mark.parametrize("member", ['"result":{}', '"error":{"code":1,"message":""}'])
def test_a_response_whose_id_has_another_form_than_ours_is_to_that_request_and_of_no_use(
    raw: str, member: str,
) -> None:
    odd = response(f'{{"jsonrpc":"2.0","id":{raw},{member}}}'.encode())
    assert odd == Response(3, flaw=f"has the id {raw}, which is not the 3 that was sent")
    zero = response(b'{"jsonrpc":"2.0","id":-0,"result":{}}')
    assert (zero.id, bool(zero.flaw)) == (0, True)


@pytest.mark.parametrize("raw", ["3", '"3"', "3.0"])
def test_an_id_alone_is_no_message_and_may_be_an_answer_that_came_to_nothing(raw: str) -> None:
    message = classify(f'{{"jsonrpc":"2.0","id":{raw}}}'.encode())
    assert isinstance(message, Malformed)
    assert message.id == b"null"
    assert message.spoilt == Response(3, flaw="has neither a result nor an error")


@pytest.mark.parametrize("raw", NOBODY)
def test_an_id_alone_that_we_never_use_is_no_answer(raw: str) -> None:
    message = classify(f'{{"jsonrpc":"2.0","id":{raw}}}'.encode())
    assert isinstance(message, Malformed)
    assert message.spoilt is None


def test_half_an_emoji_is_replaced_and_the_rest_of_the_line_kept() -> None:
    line = rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\ud83d \\ud83d \ud83d\ude00 \ude00 \n"}}'
    assert msgspec.json.decode(request(line).params) == {"a": "\ufffd \\ud83d 😀 \ufffd \n"}


@given(st.binary(max_size=60))
def test_classifying_never_raises(line: bytes) -> None:
    classify(line)


json_values = st.sampled_from([
    None, True, 0, -1, 2**80, 1.5, "", "é", "2.0", [], [None], {}, {"code": 1, "message": "m"},
])


@given(st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"]),
    json_values))
def test_an_object_with_a_result_or_error_and_no_method_is_never_answered(frame: dict[str, Any]) -> None:
    message = classify(msgspec.json.encode(frame))
    if "method" not in frame and ("result" in frame or "error" in frame):
        assert isinstance(message, Response)
    elif "method" in frame and "id" not in frame and isinstance(frame["method"], str):
        assert isinstance(message, Notification) == (frame.get("jsonrpc") == "2.0")


# ---------------------------------------------------------------- our own messages


class Sample(Struct):
    text: str
    more: Any = UNSET


def test_a_result_line_holds_the_id_as_it_was_sent() -> None:
    assert encode_result(rb'"\u00e9"', to_json(Sample("x"))) == (
        b'{"jsonrpc":"2.0","id":"\\u00e9","result":{"text":"x"}}\n')


def test_requests_and_notifications_of_ours_are_whole_lines() -> None:
    assert msgspec.json.decode(encode_request(4, "m", Sample("x"))) == {
        "jsonrpc": "2.0", "id": 4, "method": "m", "params": {"text": "x"}}
    assert msgspec.json.decode(encode_notification("m", Sample("x"))) == {
        "jsonrpc": "2.0", "method": "m", "params": {"text": "x"}}


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_any_text_is_encoded_on_one_line_of_utf8(text: str) -> None:
    value = Sample(text, {"key" + text: [text, Raw(b'{"a":\n1}')]})
    for line in (
        encode_result(b"1", to_json(value)),
        encode_error(b"1", -1, text, {"facts": text}),
        encode_notification("m", value),
    ):
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        msgspec.json.decode(line)
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert msgspec.json.decode(to_json(value))["text"] == text


def test_an_unpaired_surrogate_becomes_one_replacement_character() -> None:
    assert to_json(Sample("a\udcffb\ud83d\ude00", Raw(b"[1]"))) == '{"text":"a\ufffdb😀","more":[1]}'.encode()


def test_an_error_reaches_the_client_whatever_its_data_is() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert msgspec.json.decode(encode_error(b"1", -5, "m", Path("/x")))["error"]["data"] == "/x"
    assert msgspec.json.decode(encode_error(b"1", -5, "m", cycle))["error"] == {"code": -5, "message": "m"}
    assert "data" not in msgspec.json.decode(encode_error(b"1", -5, "m"))["error"]
