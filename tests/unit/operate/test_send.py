"""What a producer makes of lines, and what it says of those that cannot go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleet.config.router import parse_router_config
from fleet.errors import FleetError
from fleet.operate.journal import Journal, SentRecord, read
from fleet.operate.send import (
    Draft,
    Overrides,
    drafts_from_lines,
    drafts_of_one,
    made_up_body,
    sample_target,
    seed_drafts,
    send,
    uri_of_queue,
)
from fleet.sources.base import Outgoing
from fleet.sources.open import open_source

GOOD = b'{"id":"a","mediationTarget":"http://h/","messageGroupId":"g"}'


def lines(*bodies: bytes, overrides: Overrides | None = None, unchecked: bool = False) -> list[Draft]:
    return list(drafts_from_lines(bodies, overrides or Overrides(), unchecked=unchecked))


def test_a_line_that_needs_nothing_is_sent_as_it_is() -> None:
    body = b'{"id":"a","mediationTarget":"http://h/", "unknown": 1}'
    assert lines(body + b"\n") == [Draft(1, "a", None, body, dedup_id="a", pool="DEFAULT-POOL")]


def test_a_bad_line_is_named_by_its_number_and_stops_no_other() -> None:
    drafts = lines(GOOD, b"", b"not json", b"[]", b'{"id":"b"}', GOOD)
    assert [(d.line, bool(d.refusal)) for d in drafts] == [(1, False), (3, True), (4, True), (5, True), (6, False)]


def test_a_message_without_an_id_gets_one() -> None:
    (draft,) = lines(b'{"mediationTarget":"http://h/"}')
    assert len(draft.id) == 26
    assert json.loads(draft.body)["id"] == draft.id


def test_copies_of_one_message_have_ids_of_their_own() -> None:
    assert len({draft.id for draft in drafts_of_one(GOOD, 3, Overrides())}) == 3
    assert [draft.id for draft in drafts_of_one(GOOD, 1, Overrides())] == ["a"]


def test_the_command_line_overrules_the_body() -> None:
    (draft,) = lines(GOOD, overrides=Overrides(group="other", pool="P", target="http://x/"))
    assert draft.group == "other"
    sent = json.loads(draft.body)
    assert (sent["messageGroupId"], sent["poolCode"], sent["mediationTarget"]) == ("other", "P", "http://x/")


def test_who_asks_for_no_order_has_no_group_at_the_source() -> None:
    (draft,) = lines(GOOD[:-1] + b',"dispatchMode":"IMMEDIATE"}')
    assert draft.group is None
    assert not draft.refusal


def test_unchecked_bodies_go_as_they_are() -> None:
    drafts = lines(b"not json", b'{"id":"b"}', unchecked=True)
    assert [(d.body, d.refusal) for d in drafts] == [(b"not json", ""), (b'{"id":"b"}', "")]


@pytest.mark.parametrize(("mode", "groups"), [("unique", 200), ("1of8", 8), ("single", 1)])
def test_seeded_messages_are_grouped_as_asked(mode: str, groups: int) -> None:
    drafts = list(seed_drafts(count=200, mode=mode, groups=8, target="http://h/"))  # type: ignore[arg-type]
    assert len({draft.group for draft in drafts}) == groups
    assert len({draft.id for draft in drafts}) == 200


def test_what_is_made_up_names_its_pool() -> None:
    """A coordinator warns of messages that name none, and nobody can mend ours."""
    seeded = seed_drafts(count=1, mode="single", groups=1, target="http://h/")
    made_up = drafts_of_one(made_up_body(), 1, Overrides(target="http://h/"))
    for (draft,) in (seeded, made_up):
        assert (json.loads(draft.body)["poolCode"], draft.refusal) == ("DEFAULT-POOL", "")
    chosen = drafts_of_one(made_up_body(), 1, Overrides(target="http://h/", pool="P"))
    assert [json.loads(draft.body)["poolCode"] for draft in chosen] == ["P"]


def test_a_sample_endpoint_is_known_by_its_name() -> None:
    assert sample_target("slow", port=9) == "http://127.0.0.1:9/slow"
    assert sample_target("https://h/x") == "https://h/x"
    with pytest.raises(FleetError, match="neither a URL"):
        sample_target("quick")


async def test_what_a_queue_accepted_is_journalled_in_order_and_nothing_else(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/q.db?queue=x"
    bodies = [GOOD.replace(b'"a"', f'"m{i}"'.encode()) for i in range(1200)]
    bodies[700] = b"bad"
    journal = Journal(tmp_path / "sent.ndjson", buffer_bytes=1 << 20)
    sent = await send(uri, drafts_from_lines(bodies, Overrides()), journal=journal)
    journal.close()
    assert (sent.accepted, sent.refused, len(sent.refusals)) == (1199, 1, 1)
    assert sent.refusals[0].startswith("line 701: not JSON")
    records = [record for record in read(tmp_path / "sent.ndjson") if isinstance(record, SentRecord)]
    assert [record.id for record in records] == [f"m{i}" for i in range(1200) if i != 700]
    assert [record.seq for record in records] == sorted({record.seq for record in records})
    assert {record.pool for record in records} == {"DEFAULT-POOL"}
    source = open_source("x", uri, 1000)
    await source.open()
    assert (await source.depth()).waiting == 1199
    await source.close()


class Picky:
    async def open(self) -> None: ...

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        return ["no room" if message.id == "m1" else None for message in messages]

    async def close(self) -> None: ...


async def test_what_a_queue_refuses_is_counted_and_not_journalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.operate.send.open_publisher", lambda uri: Picky())
    bodies = [GOOD.replace(b'"a"', f'"m{i}"'.encode()) for i in range(3)]
    journal = Journal(tmp_path / "sent.ndjson")
    sent = await send("any:", drafts_from_lines(bodies, Overrides()), journal=journal)
    journal.close()
    assert (sent.accepted, sent.refusals) == (2, ["line 2: no room"])
    assert [record.id for record in read(tmp_path / "sent.ndjson")] == ["m0", "m2"]


def test_a_queue_is_found_by_name_or_because_it_is_the_one_meant() -> None:
    def config(*names: str) -> bytes:
        queues = [{"queueName": name, "queueUri": f"sqlite:///{name}.db?queue=q"} for name in names]
        return json.dumps({"queues": queues}).encode()

    assert uri_of_queue(parse_router_config(config("a", "b")), "b") == ("b", "sqlite:///b.db?queue=q")
    assert uri_of_queue(parse_router_config(config("a")), None)[0] == "a"
    assert uri_of_queue(parse_router_config(config("a", "default")), None)[0] == "default"
    with pytest.raises(FleetError, match="a, b"):
        uri_of_queue(parse_router_config(config("a", "b")), None)
    with pytest.raises(FleetError, match="no queue c is configured; there are: a"):
        uri_of_queue(parse_router_config(config("a")), "c")
