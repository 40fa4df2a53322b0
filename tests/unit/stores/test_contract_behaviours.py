"""Every behaviour that session-log-v0 5.5 asks of a store, and the test that holds this project's stores to it.

Behaviours that the reference gives to its coordinator (a write-behind buffer between sessions and stores, which knows
of live sessions) are the appender's or the session's here, or do not exist; `DO_NOT_APPLY` says why.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent

APPLY: dict[str, str] = {
    # basic contract
    "round trip is byte-identical": "trees::a_tree_travels_between_stores_byte_for_byte",
    "fractional creation time refused without burning the id":
        "trees::a_log_that_could_not_be_continued_is_not_taken_in",
    "interrupted turn kept": "reading::an_interrupted_turn_is_kept_as_it_is",
    "list hides zero-event sessions": "writing::a_session_without_events_is_neither_listed_nor_found",
    "readFrom returns exactly the suffix": "reading::read_from_returns_exactly_the_suffix",
    "readFrom changes nothing": "reading::looking_writes_nothing",
    "what a list tells changes after an append": "listing::a_summary_tells_titles_times_and_directory",
    "wrong first seq refused": "writing::a_wrong_first_seq_is_refused",
    "mid-batch gap refused": "writing::a_gap_or_a_repetition_in_a_batch_is_refused_and_the_batch_goes_on",
    "non-JSON data refused": "trees::data_that_is_not_json_is_refused_naming_where",
    # coordinator contract
    "live session survives reload": "writing::what_is_written_can_be_read_while_the_writer_goes_on",
    "load refused while a live session owns the log": "reading::a_session_that_is_open_here_is_not_loaded_again",
    "load refused while another process owns the log": "locks::another_process_is_named_and_reading_goes_on",
    "empty live session not loadable": "writing::a_session_without_events_is_neither_listed_nor_found",
    "seedLength round trip": "seeds::the_boundary_round_trips_through_create_append_and_load",
    "delegation depth and parent id round trip": "trees::depth_parent_and_spawn_key_round_trip",
    "malformed messages refused": "trees::a_log_that_could_not_be_continued_is_not_taken_in",
    "append snapshots the caller's batch": "writing::appending_takes_the_event_as_it_is_at_that_moment",
    "fork seed stored once": "seeds::a_fork_stores_its_seed_once",
    "resume does not re-append its seed": "writing::loading_and_closing_stores_nothing_again",
    "adopts, and persists what is live": "trees::what_was_taken_in_can_be_continued",
    "drains on dispose": "writing::closing_twice_is_fine_and_closing_the_store_closes_its_logs",
    "never crash-repairs a live open turn": "reading::looking_writes_nothing",
    "colliding new session refused": "locks::a_new_id_that_another_store_wrote_first_is_refused",
    "abandoned lazy id reusable": "writing::the_id_of_an_abandoned_session_can_be_used_again",
    "disposal drains before giving up ownership": "writing::closing_an_appender_stores_what_was_not_written",
    "fresh session on a stored id refused": "writing::an_id_that_is_stored_is_refused",
    "continuation appends a suffix": "writing::a_stored_session_goes_on_after_its_last_event",
    "continuation without an append": "writing::loading_and_closing_stores_nothing_again",
    "claims never cross cwd: an id is taken everywhere":
        "writing::the_id_of_a_stored_session_is_taken_in_every_working_directory",
    "claims never cross cwd: lists": "listing::a_list_of_one_directory_has_only_sessions_of_exactly_that_one",
    "empty batch no-op": "writing::an_empty_batch_changes_nothing",
    "missing session refused": "writing::an_unknown_session_is_not_found",
    "duplicate id refused in memory": "writing::an_id_that_is_open_here_is_refused",
    "duplicate id refused on disk": "writing::an_id_that_is_stored_is_refused",
    "newer version refused naming direction, older without promise":
        "reading::another_format_version_is_refused_with_its_direction",
    "unknown type refused": "reading::an_unknown_event_type_is_refused_by_type_and_seq_when_it_is_loaded",
    "unknown type accepted when ignorable": "reading::an_unknown_event_type_is_loaded_when_it_is_ignorable",
    "torn tail truncated during load": "reading::a_torn_last_record_is_cut_off_by_load_and_by_nothing_else",
}

DO_NOT_APPLY: dict[str, str] = {
    "interrupted turn closed; unstarted call gets a retryable result; recorded call without result gets an "
    "unknown-outcome result; open turn closed during load":
        "what closes a turn is session/repair.py, over any store: a store invents no events. Tested there, and with "
        "killed processes in tests/wire",
    "pre-aborted reads reject with the exact reason": "there is no abort signal; a cancelled task raises by itself",
    "snapshot revisions stable": "lists have no revisions; `updated_at` is the newest event's time",
    "events frozen after buffering; returned views immutable": "events are frozen structs: there is nothing to freeze",
    "pre-identity logs load; pre-loop logs load":
        "shims for that project's pre-release logs; format reference 1.3: a fresh system needs neither",
    "hot reload seeds existing sessions, adopts live sessions; append adopts storage-only session":
        "stores are not exchanged in a running process: a session is written by the appender it was created or loaded "
        "with",
    "repair-load refused, re-checked after entering the per-id chain":
        "there is no chain of operations per id: an appender is the ownership, and the tree's lock is taken before "
        "the log is read",
    "repeated created-signal harmless; cursor-0 ownerless state claimable; exact-seed claim without append; prefix "
    "claim with suffix append; flush before init uses cursor 0":
        "nobody claims: `create` gives a log its only writer, and `load` continues one",
}


@pytest.mark.parametrize("behaviour", APPLY)
def test_each_behaviour_has_its_test(behaviour: str) -> None:
    module, name = APPLY[behaviour].split("::")
    text = (HERE / f"test_contract_{module}.py").read_text()
    assert re.search(rf"^async def test_{name}\(", text, re.MULTILINE)
