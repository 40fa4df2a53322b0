"""What an agent of the protocol's version 1 has to keep: 94 numbered statements, in our own words.

The numbers are those by which the conformance tests, the laws and `acp-agent lint` name them.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

Strength: TypeAlias = Literal["must", "should", "recommended"]
"""How much the protocol insists. What it leaves open and JSON-RPC or common sense settles is `recommended`."""

Stability: TypeAlias = Literal["stable", "unstable"]


class Statement(Struct, frozen=True):
    """One statement. `recommended` in its text marks a part that is weaker than the rest."""

    number: int
    strength: Strength
    text: str
    stability: Stability = "stable"


_MUST: Final[Strength] = "must"
_SHOULD: Final[Strength] = "should"
_ADVICE: Final[Strength] = "recommended"

STATEMENTS: Final = (
    # framing and JSON-RPC
    Statement(1, _MUST, "Standard output holds JSON-RPC 2.0 messages and no other byte, one object to a line."),
    Statement(2, _MUST, "Whatever characters a text holds, its message is one line of UTF-8 and decodes to that text."),
    Statement(3, _ADVICE, "Blank lines are passed over, and a line that ends in CR LF is read like any other."),
    Statement(4, _ADVICE, "A line that is not JSON or not UTF-8 gets one error -32700 with a null id; the connection "
                          "stays usable."),
    Statement(5, _ADVICE, "JSON that is no JSON-RPC message gets one error -32600; the connection stays usable."),
    Statement(6, _ADVICE, "A batch gets exactly one error -32600 with a null id, and nothing in it is carried out."),
    Statement(7, _MUST, "A response carries its request's id, with the same value and the same JSON type."),
    Statement(8, _MUST, "A request whose id is null is still a request and is answered with that id."),
    Statement(9, _MUST, "A notification is never answered, be it known, unknown or malformed."),
    Statement(10, _MUST, "A request for a method that does not exist is answered with -32601 under its id."),
    Statement(11, _SHOULD, "A notification that is not known is ignored and does no harm."),
    Statement(12, _ADVICE, "A response to nothing that was asked is dropped without a word."),
    Statement(13, _MUST, "Params that lack a required member, or are no object, are refused with -32602. Recommended: "
                         "null params are read as none."),
    Statement(14, _MUST, "Members that are not known, and `_meta` anywhere, do not make params wrong; a `_meta` that "
                         "is no object counts as absent."),
    Statement(15, _ADVICE, "A message of 1 MiB and one of 8 MiB are taken."),
    Statement(16, _MUST, "Requests sent without waiting for answers are each answered exactly once."),
    Statement(17, _ADVICE, "At the end of its input, idle or in a turn, the agent exits with status 0 within five "
                           "seconds and leaves no process behind."),
    # initialisation
    Statement(18, _MUST, "`initialize` with version 1 is answered with the integer 1, in a result of the right form."),
    Statement(19, _MUST, "A version the agent does not speak is answered with one it does speak, never with an error."),
    Statement(20, _ADVICE, "A version that is no integer from 0 to 65535 is refused with -32602, and a correct "
                           "`initialize` works afterwards."),
    Statement(21, _MUST, "A client that declared nothing is asked for nothing and sent nothing that needs a client "
                         "capability."),
    Statement(22, _ADVICE, "A malformed capability of the client's counts as absent and does not fail `initialize`."),
    Statement(23, _MUST, "Every advertised method exists. Recommended: an optional one that is not advertised is "
                         "answered with -32601."),
    Statement(24, _SHOULD, "`agentInfo` gives a name and a version, neither empty."),
    Statement(25, _ADVICE, "`session/new` before `initialize` is an error and makes no session; a normal start works "
                           "afterwards."),
    Statement(26, _ADVICE, "A second `initialize` is answered, and the sessions there are stay usable."),
    # authentication
    Statement(27, _MUST, "-32000 says that a login is needed, and is used for nothing else."),
    Statement(28, _MUST, "After `authenticate` with an advertised method, sessions can be made."),
    Statement(29, _ADVICE, "`authenticate` with an unknown method, or one for the terminal, is refused with -32602."),
    Statement(30, _MUST, "After `logout`, where it is advertised, making a session needs a login again."),
    Statement(31, _MUST, "A login method for the terminal is listed only for a client that runs them, and its command "
                         "logs in and says by its exit status whether it could."),
    # sessions
    Statement(32, _MUST, "Every `session/new` gives a session id that is not empty and was not given before."),
    Statement(33, _ADVICE, "`session/new` needs `mcpServers`; null and an empty list are both none."),
    Statement(34, _ADVICE, "A working directory that is relative or empty is refused with -32602, and nothing is "
                           "made."),
    Statement(35, _MUST, "Relative paths start at the session's directory, wherever the agent was started."),
    Statement(36, _MUST, "A stdio MCP server is started as described, with or without its type being said, and its "
                         "tools can be called."),
    Statement(37, _ADVICE, "An MCP server with a transport that is not advertised, or a malformed one, is refused "
                           "with -32602, and no session is made."),
    Statement(38, _ADVICE, "An MCP server that does not exist or never answers does not hold up `session/new`."),
    Statement(39, _MUST, "A further root that is relative, empty or no text is refused with -32602. Recommended: so "
                         "is any where they are not advertised."),
    Statement(40, _ADVICE, "No update of a new session precedes the response that gives its id."),
    Statement(41, _MUST, "`session/load` sends the whole history, in order and in the right form, before its "
                         "response."),
    Statement(42, _ADVICE, "Loading asks the client for nothing, calls no model and repeats no notices."),
    Statement(43, _MUST, "After a load the model knows what was said before."),
    Statement(44, _ADVICE, "An unknown session is answered with -32002 and the id in the error's data."),
    Statement(45, _MUST, "`session/resume` sends no history before its response, and the context is kept."),
    Statement(46, _MUST, "Further roots are those of the request that opened the session and not of an earlier one. "
                         "Recommended: MCP servers likewise."),
    Statement(47, _MUST, "A list for a directory holds the sessions of that directory alone; without any it is "
                         "empty."),
    Statement(48, _MUST, "Followed from cursor to cursor, a list gives every session once and ends; directories are "
                         "absolute and times ISO 8601."),
    Statement(49, _SHOULD, "A cursor that no list gave is refused."),
    Statement(50, _MUST, "A deleted session is in no list any more. Deleting it again, or one that never was, "
                         "succeeds."),
    Statement(51, _MUST, "`session/close` in a turn ends that turn as cancelled, frees what it used, and only then "
                         "succeeds; the session stays listed."),
    Statement(52, _ADVICE, "A closed session is -32002 for a prompt until it is opened again; closing an unknown one "
                           "succeeds or is -32002."),
    # prompt turn
    Statement(53, _MUST, "A prompt's answer is streamed in at least one chunk, and its response has one of the five "
                         "stop reasons."),
    Statement(54, _MUST, "Text and resource links are always taken, and the model learns of a link."),
    Statement(55, _ADVICE, "A content block that is not advertised, not known or incomplete, and a prompt without "
                           "blocks, are refused with -32602; what is advertised is taken."),
    Statement(56, _MUST, "Running out of tokens, running out of model requests and a refusal have their own stop "
                         "reasons, and a refused prompt is not told to the model again."),
    Statement(57, _ADVICE, "A failing model is a JSON-RPC error without secrets, and the next prompt works."),
    Statement(58, _MUST, "A message id means one message: the same for all its chunks, another for the next and for "
                         "thoughts."),
    Statement(59, _ADVICE, "While a turn runs, other requests are answered promptly."),
    Statement(60, _MUST, "Turns of two sessions run side by side, each update names its own session, and cancelling "
                         "one leaves the other."),
    Statement(61, _ADVICE, "A prompt in a busy session is queued or refused with -32600; two turns are never mixed."),
    Statement(62, _ADVICE, "No message or tool update of a turn follows its response."),
    Statement(63, _MUST, "Every advertised command runs. Recommended: one that is not known is taken as text or "
                         "clearly refused."),
    # cancellation
    Statement(64, _MUST, "A cancelled turn ends soon, with a result that says `cancelled` and not with an error."),
    Statement(65, _MUST, "Cancelling stops the running tool or terminal and gives its call a final status before the "
                         "response."),
    Statement(66, _MUST, "Cancelling while a permission is asked for ends the turn, however the client answers, and "
                         "the tool does not run."),
    Statement(67, _MUST, "Nothing of a cancelled turn follows its response, and the next prompt works."),
    Statement(68, _ADVICE, "Cancelling an idle, unknown or finished session does nothing at all."),
    Statement(69, _MUST, "A prompt withdrawn with `$/cancel_request` is answered once, as cancelled; withdrawing "
                         "anything else does nothing."),
    # tools and permissions
    Statement(70, _MUST, "A tool call's id is its own for the session, it is announced before it is updated, and a "
                         "final status stays. Recommended: it has one before its turn ends."),
    Statement(71, _MUST, "A file change is shown as a diff with an absolute path, the new text, and the old text "
                         "unless the file is new."),
    Statement(72, _ADVICE, "A tool that fails is a failed call with a readable reason, and the turn goes on."),
    Statement(73, _MUST, "A permission question names a reported call and distinct options, and the tool has not "
                         "begun."),
    Statement(74, _MUST, "A tool runs when it is allowed and not when it is rejected. Recommended: any other answer "
                         "is a no."),
    Statement(75, _ADVICE, "After an answer for always, the same thing is not asked about again in that session."),
    # client services
    Statement(76, _MUST, "Only the file methods that the client offers are used, with absolute paths and lines from "
                         "1 up."),
    Statement(77, _ADVICE, "A client service that fails makes a failed tool call, and the turn goes on."),
    Statement(78, _MUST, "Every terminal is released exactly once, whatever happens, and not used afterwards."),
    Statement(79, _ADVICE, "A command that takes too long is killed, its output read, its terminal released, and the "
                           "model sees the output."),
    Statement(80, _MUST, "Questions to the user come only in modes the client offers; any answer but a yes is no "
                         "success."),
    Statement(81, _MUST, "A question that opens a page has an id of its own, and no form asks for a secret."),
    # modes, options, other updates
    Statement(82, _MUST, "The current mode is one of those available, a known mode can be set, and a change the agent "
                         "makes is told. Recommended: an unknown one is refused with -32602."),
    Statement(83, _MUST, "Every option has a valid value, and setting one gives back them all. Recommended: a wrong "
                         "option or value is refused with -32602 and changes nothing."),
    Statement(84, _MUST, "A boolean option is offered only to a client that knows them. Recommended: modes and the "
                         "option for them keep step."),
    Statement(85, _MUST, "A plan is always sent whole, and a command has a name and a description."),
    Statement(86, _MUST, "Usage is told in whole numbers, a cost with amount and currency, and session info holds "
                         "nothing but title and time."),
    Statement(87, _MUST, "A notice has a title, a compaction ends exactly once, and neither reaches a client that "
                         "did not ask for it."),
    # unstable
    Statement(88, _MUST, "A fork is a new session that can be prompted at once; its source does not change and its "
                         "roots are its own.", "unstable"),
    Statement(89, _MUST, "Archived sessions are left out of a list unless it asks for them; archiving twice is fine, "
                         "an unknown session or filter is not.", "unstable"),
    Statement(90, _MUST, "A session's status can be read without effect, and its title set unless it is blank.",
              "unstable"),
    Statement(91, _MUST, "`auth/status` never asks for a login, and changes alone are told.", "unstable"),
    Statement(92, _MUST, "A list of providers shows no headers, and a wrong or required one cannot be set or "
                         "disabled.", "unstable"),
    Statement(93, _MUST, "Plans by id and traffic of subagents reach only clients that declared them, and a subagent "
                         "is announced first.", "unstable"),
    Statement(94, _MUST, "A system prompt that cannot be used fails the request, and messages go only to MCP servers "
                         "the client declared.", "unstable"),
)
