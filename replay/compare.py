"""A golden against a run: what differs, behaviour before wording, the first of each in each place.

Sessions are paired by address, not by file name. Within a session the order of events is compared, and on the wire
each session's lines by themselves: both sides are in canonical order, so what was never promised cannot differ.
Names are compared one-to-one: two runs may number differently after a difference, but who is who must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import UNSET, Struct

from replay import items
from replay.differences import Category, Difference, Item, clipped, context, text_diff
from replay.golden import FILES, WIRE, Golden
from replay.names import TOKEN
from replay.receipts import Counts, LaneReceipt, Receipt
from replay.snapshot import FileEntry, Normalised, SessionLog, WireFrame


def compare(golden: Golden, run: Normalised) -> list[Difference]:
    """Every first difference, behaviour before wording; [] when the run did what the golden says."""
    found = [Difference(Category.SESSIONS, name, "is missing; write the golden") for name in golden.missing]
    return sorted([*found, *differences(golden.expected, run, skip=golden.missing)], key=lambda one: one.category)


def differences(expected: Normalised, run: Normalised, *, skip: Sequence[str] = ()) -> list[Difference]:
    """The differences of two runs. `skip` names the parts (`WIRE`, `FILES`) that are not expected."""
    same = Pairing()
    found = [*_sessions(expected, run, same), *_receipt(run.receipt)]
    found += [Difference(Category.BEHAVIOUR, "promise", broken) for broken in run.broken]
    if WIRE not in skip:
        found += _wire(expected, run, same)
    if FILES not in skip:
        found += _files(expected, run)
    found += _leftovers(expected, run)
    telling = [one for one in found if one.category is not Category.VOLATILE or one.where == "leftover"]
    return sorted(telling or found, key=lambda one: one.category)


class Pairing:
    """Which name of the golden is which of the run: one-to-one, learned as names are met."""

    def __init__(self) -> None:
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}
        self.renumbered = False

    def learn(self, one: str, other: str) -> bool:
        """Pair two names; False when either has another partner."""
        if self._there.setdefault(one, other) != other or self._back.setdefault(other, one) != one:
            return False
        self.renumbered = self.renumbered or one != other
        return True

    def partner(self, name: str) -> str:
        """The run's name for a golden's."""
        return self._there.get(name, name)

    def crossed(self, one: str, other: str) -> str | None:
        """How two texts, equal but for names, mix up who is who; None when they do not."""
        for left, right in zip(TOKEN.finditer(one), TOKEN.finditer(other), strict=False):
            if not self.learn(left.group(), right.group()):
                partner = self._there.get(left.group())
                elsewhere = f"{partner} elsewhere" if partner != right.group() else "somebody else's partner"
                return f"{left.group()} of the golden is {right.group()} here and {elsewhere}"
        return None


# ---------------------------------------------------------------- sessions


def _sessions(expected: Normalised, run: Normalised, same: Pairing) -> Iterator[Difference]:
    wanted = {(log.root, log.path): log for log in expected.logs}
    there = {(log.root, log.path): log for log in run.logs}
    for place, log in wanted.items():
        if place in there:
            same.learn(log.name, there[place].name)
        else:
            yield _lonely(log, "-", "this session is in the golden, and it did not run")
    for place, log in there.items():
        if place not in wanted:
            yield _lonely(log, "+", "this session ran, and it is not in the golden")
    for place, log in wanted.items():
        if place in there:
            where = f"{there[place].name} ({log.address})"
            yield from compare_items(items.of_log(log), items.of_log(there[place]), where, same, count=_event)


def _lonely(log: SessionLog, sign: str, what: str) -> Difference:
    told = [items.of_event(event) for event in log.events if event.type in ("user/message", "assistant/message")]
    lines = tuple(f"{sign} {clipped(item.label)}" for item in told[:3])
    return Difference(Category.SESSIONS, f"{log.name} ({log.address})", what, lines)


# ---------------------------------------------------------------- items


class _Spot(Struct, frozen=True):
    """A pair of positions: where two lists part."""

    golden: int
    run: int


def _event(at: int) -> str:
    """A log's first item is its header."""
    return f"event {at - 1}" if at else "header"


def _line(at: int) -> str:
    return f"line {at + 1}"


def compare_items(
    golden: Sequence[Item], run: Sequence[Item], where: str, same: Pairing, *, count: Callable[[int], str] = _line
) -> Iterator[Difference]:
    """The first difference of each category between two sequences of events or lines.

    Behaviour is looked for to the end. Wording, mixed-up ids and citations are looked for up to the first place
    where anything differs: what follows it is its consequence. `count` says where a position is.
    """
    acted = _behaviour_spot(golden, run)
    if acted is not None:
        yield _difference(Category.BEHAVIOUR, golden, run, acted, where, count)
    cited: _Spot | None = None
    for at, (one, other) in enumerate(zip(golden, run, strict=False)):
        spot = _Spot(at, at)
        if items.masked(one.text) != items.masked(other.text):
            if acted is None or at < acted.run:
                yield _difference(Category.WORDING, golden, run, spot, where, count)
            return
        crossed = same.crossed(one.text, other.text)
        if crossed is not None:
            yield Difference(Category.BEHAVIOUR, where, f"{count(at)}: ids are mixed up: {crossed}",
                             context(golden, run, at, at))
            return
        if one.cited != other.cited:
            cited = cited or spot
    if len(golden) != len(run):
        if acted is None:
            end = min(len(golden), len(run))
            yield _difference(Category.WORDING, golden, run, _Spot(end, end), where, count)
    elif cited is not None:
        yield _difference(Category.VOLATILE, golden, run, cited, where, count)


def _behaviour_spot(golden: Sequence[Item], run: Sequence[Item]) -> _Spot | None:
    acts = [(at, item.behaviour) for at, item in enumerate(golden) if item.behaviour is not None]
    done = [(at, item.behaviour) for at, item in enumerate(run) if item.behaviour is not None]
    for (at_golden, act), (at_run, deed) in zip(acts, done, strict=False):
        if act != deed:
            return _Spot(at_golden, at_run)
    if len(acts) == len(done):
        return None
    at_golden = acts[len(done)][0] if len(acts) > len(done) else len(golden)
    at_run = done[len(acts)][0] if len(done) > len(acts) else len(run)
    return _Spot(at_golden, at_run)


def _difference(
    category: Category, golden: Sequence[Item], run: Sequence[Item], spot: _Spot, where: str,
    count: Callable[[int], str],
) -> Difference:
    one = golden[spot.golden] if spot.golden < len(golden) else None
    other = run[spot.run] if spot.run < len(run) else None
    kinds = [_kind(item) for item in (one, other) if item is not None]
    what = kinds[0] if len(set(kinds)) == 1 else " became ".join(kinds)
    if one is None:
        what = f"{kinds[0]} came, and the golden ends here"
    elif other is None:
        what = f"{kinds[0]} is missing"
    elif category is Category.VOLATILE:
        what += " cites other positions"
    return Difference(category, where, f"{count(spot.run)}: {what}", context(golden, run, spot.golden, spot.run))


def _kind(item: Item) -> str:
    return item.label.partition(" ")[0]


# ---------------------------------------------------------------- wire


def _wire(expected: Normalised, run: Normalised, same: Pairing) -> Iterator[Difference]:
    of_request = {frame.value.get("id"): frame.session for frame in run.wire if "method" not in frame.value}
    wanted: dict[str | None, list[Item]] = {}
    for frame in expected.wire:
        session = _session(frame, of_request, same)
        wanted.setdefault(session, []).append(items.of_frame(frame))
    sent: dict[str | None, list[Item]] = {}
    for frame in run.wire:
        sent.setdefault(frame.session, []).append(items.of_frame(frame))
    for session in dict.fromkeys([*sent, *wanted]):
        where = "wire, outside of sessions" if session is None else f"wire of {session}"
        yield from compare_items(wanted.get(session, []), sent.get(session, []), where, same)
    if same.renumbered:
        yield Difference(Category.VOLATILE, "names", "the run numbers its ids differently; write the golden again")


def _session(frame: WireFrame, of_request: dict[object, str | None], same: Pairing) -> str | None:
    """The run's name of the session a golden's line is about."""
    if "method" not in frame.value:
        return of_request.get(frame.value.get("id"))
    return None if frame.session is None else same.partner(frame.session)


# ---------------------------------------------------------------- files, receipt, leftovers


def _files(expected: Normalised, run: Normalised) -> Iterator[Difference]:
    for path in sorted({*expected.files, *run.files}):
        one, other = expected.files.get(path), run.files.get(path)
        if one == other:
            continue
        yield Difference(Category.BEHAVIOUR, f"file {path}", _file_change(one, other), tuple(_file_lines(one, other)))


def _file_change(one: FileEntry | None, other: FileEntry | None) -> str:
    if one is None or other is None:
        entry = one or other
        assert entry is not None
        deed = "removed" if entry.removed is True else "written"
        return f"was {deed}, and the golden does not say so" if one is None else f"should have been {deed}"
    if one.removed is not other.removed:
        return "was removed" if other.removed is True else "should have been removed"
    if one.mode != other.mode and (one.text, one.base64) == (other.text, other.base64):
        modes = ["plain" if mode is UNSET else mode for mode in (one.mode, other.mode)]
        return f"has the mode {modes[1]} instead of {modes[0]}"
    return "has another content"


def _file_lines(one: FileEntry | None, other: FileEntry | None) -> list[str]:
    left = "" if one is None or one.text is UNSET else one.text
    right = "" if other is None or other.text is UNSET else other.text
    return text_diff(left, right) if left != right else []


def _receipt(receipt: Receipt | None) -> Iterator[Difference]:
    """What was not used up, or used too often. Results that drifted are told by the logs."""
    if receipt is None:
        return
    if receipt.error is not UNSET:
        yield Difference(Category.BEHAVIOUR, "recording", receipt.error)
    for lane in receipt.lanes:
        for purpose, counts in lane.calls.items():
            told = _consumption(lane, counts, partial=receipt.partial is True)
            if told is not None:
                yield Difference(Category.BEHAVIOUR, f"recording {lane.file}", told if purpose == "main" else
                                 f"{purpose}: {told}")
    for file in receipt.unaddressed:
        yield Difference(Category.BEHAVIOUR, f"recording {file}", "nothing could ask for its recorded calls")


def _consumption(lane: LaneReceipt, counts: Counts, *, partial: bool) -> str | None:
    """`partial` means that nobody knows of every call that was made: what is left is then told by the logs alone."""
    where = " > ".join(["root", *lane.address])
    if counts.over:
        return f"{where} made {counts.over} calls beyond the {counts.recorded} recorded"
    if counts.left == 0 or partial:
        return None
    if not lane.sessions:
        return f"no session stood at {where}, its {counts.recorded} recorded calls were not asked for"
    return f"{where} made {counts.used} of its {counts.recorded} recorded calls"


def _leftovers(expected: Normalised, run: Normalised) -> Iterator[Difference]:
    """Values that look machine-made and that the golden does not hold: the next run will have others."""
    if not run.leftovers:
        return
    known = "\n".join([*(frame.line for frame in expected.wire),
                       *(msgspec.json.encode(event.data).decode() for log in expected.logs for event in log.events)])
    for left in dict.fromkeys(run.leftovers):
        if left.value not in known:
            yield Difference(Category.VOLATILE, "leftover", str(left))
