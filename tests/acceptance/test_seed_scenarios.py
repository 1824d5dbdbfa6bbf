"""What a failure does to the rest of its batch and group: the scenarios of the seeds, at endpoint and source."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from fleet.operate.status import is_off
from fleet.state.connect import connected
from fleet.state.keys import PoolKeys, QueueKeys
from fleet.state.warnings import Warnings
from tests.acceptance.intake import an_intake, received
from tests.acceptance.numbers import NEVER, Answer, AtSource, House, ToldEndpoint, a_house, a_told_endpoint, message
from tests.servers.ports import free_port
from tests.waiting import eventually, until

SLACK_MS = 3000
"""Between the answer and the nack at the source, on a machine that others use too."""


def _delay_ms(endpoint: ToldEndpoint, at_source: AtSource, after: str) -> float:
    """For how long a message is hidden, counted from the answer that failed."""
    return at_source.visible_at_ms - endpoint.answered_ms[after]


def _batch(house: House, endpoint: ToldEndpoint, groups: dict[str, str], *, timeout_ms: int = 900_000) -> None:
    """Publish these (id: group) before anybody polls, so that they come in one batch."""
    house.publish([message(message_id, group, "P", endpoint.url) for message_id, group in groups.items()])
    house.settle_in()
    house.crew(MEDIATOR_HTTP_TIMEOUT_MS=str(timeout_ms))


def _wait_nacked(house: House, *messages: str) -> dict[str, AtSource]:
    def nacked() -> bool:
        left = house.at_source()
        return set(left) == set(messages) and not any(m.is_leased for m in left.values())

    until(nacked, 40, lambda: f"{house.at_source()}\n{house.logs()}", every_s=0.05)
    return house.at_source()


def _is_clean(house: House) -> bool:
    """Nothing is remembered of a batch that is over, but the mark that expires."""
    with house.client() as client:
        keys, queue = PoolKeys("P"), QueueKeys("q")
        # Nor of what was given back: the embedded queue can be asked.
        left = client.exists(
            keys.entries, keys.leases, keys.owners, keys.outboxes, queue.tracked, queue.apps, queue.delayed
        )
        return left == 0 and int(client.zcard(keys.failed)) <= 1


FAILURES: dict[str, tuple[Answer, int]] = {
    "busy": ((429, {"Retry-After": "3"}, {}), 3),
    "delayed": ((200, {}, {"ack": False, "delaySeconds": 4}), 4),
    "plain": ((200, {}, {"ack": False}), 30),
}
"""What the third message of each group is answered, and the seconds that this asks for."""


def test_of_five_in_a_batch_whose_third_fails_three_are_mediated_two_acked_and_all_come_later_in_order(
    tmp_path: Path,
) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        endpoint.tell = {f"{group}-3": [answer] for group, (answer, _) in FAILURES.items()}
        five = {f"{group}-{i}": group for i in range(1, 6) for group in FAILURES}
        _batch(house, endpoint, five)
        left = _wait_nacked(house, *(message_id for message_id in five if message_id[-1] in "345"))
        for group, (_, head_s) in FAILURES.items():
            assert [i for i in endpoint.ids() if i.startswith(group)] == [f"{group}-{i}" for i in (1, 2, 3)]
            head = f"{group}-3"
            assert head_s * 1000 - 100 <= _delay_ms(endpoint, left[head], head) <= head_s * 1000 + SLACK_MS
            for sibling in (f"{group}-4", f"{group}-5"):
                assert 9_900 <= _delay_ms(endpoint, left[sibling], head) <= 10_000 + SLACK_MS
                assert left[sibling].taken == 1
        # Later: the group whose head has the default delay stays for 30 s, and is not waited for.
        until(lambda: len(house.at_source()) == 3, 40, house.logs, every_s=0.05)
        for group in ("busy", "delayed"):
            came = [i for i in endpoint.ids() if i.startswith(group)]
            assert came == [f"{group}-{i}" for i in (1, 2, 3, 3, 4, 5)]
        assert [i for i in endpoint.ids() if i.startswith("plain")] == [f"plain-{i}" for i in (1, 2, 3)]


def test_scenario_1_a_failure_takes_the_rest_of_its_own_group_along_and_no_other(tmp_path: Path) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        endpoint.tell["m2"] = [(500, {}, {})] * 3
        groups = {"m1": "order-12345", "m2": "order-12345", "m3": "order-12345", "m4": "order-67890"}
        _batch(house, endpoint, groups)
        left = _wait_nacked(house, "m2", "m3")
        assert endpoint.ids().count("m2") == 3, "three attempts"
        assert sorted(set(endpoint.ids())) == ["m1", "m2", "m4"]
        assert 29_900 <= _delay_ms(endpoint, left["m2"], "m2") <= 30_000 + SLACK_MS
        assert 9_900 <= _delay_ms(endpoint, left["m3"], "m2") <= 10_000 + SLACK_MS
        began = [at for message_id, at in endpoint.seen if message_id == "m2"]
        # A request that this endpoint was late to see shortens the pause that it sees behind it.
        assert 900 <= began[1] - began[0] <= 2500, "the second attempt comes after 1 s"
        assert 1900 <= began[2] - began[1] <= 3500, "the third after 2 s more"


def test_scenario_2_a_timeout_in_the_middle_keeps_what_was_acked_and_nacks_the_rest(tmp_path: Path) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        endpoint.tell["m3"] = [NEVER] * 3
        groups = {f"m{i}": "order-12345" for i in range(1, 6)}
        _batch(house, endpoint, groups, timeout_ms=300)
        began_ms = time.time() * 1000
        left = _wait_nacked(house, "m3", "m4", "m5")
        assert endpoint.ids() == ["m1", "m2", "m3", "m3", "m3"]
        last_ms = endpoint.seen[-1][1] + 300
        assert last_ms > began_ms + 3000, "three attempts and the pauses between them"
        assert 29_800 <= left["m3"].visible_at_ms - last_ms <= 30_000 + SLACK_MS
        assert all(9_800 <= left[m].visible_at_ms - last_ms <= 10_000 + SLACK_MS for m in ("m4", "m5"))
        until(lambda: _is_clean(house), 10, house.logs)


async def test_scenario_3_a_failure_in_one_batch_leaves_the_next_batch_of_its_group_alone(tmp_path: Path) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}, queues=()) as house:
        endpoint.tell["m1"] = [(429, {"Retry-After": "20"}, {})]
        house.settle_in()
        async with an_intake(house.redis_server.url) as intake:
            for batch in (("m1", "m2"), ("m3", "m4")):
                group = {"messageGroupId": "order-12345", "mediationTarget": endpoint.url}
                await intake.admission.admit([received(i, **group) for i in batch])
            house.start("worker")
            source, acknowledger = intake.source, intake.acknowledger
            applying = asyncio.create_task(acknowledger.run())

            def is_applied() -> bool:
                acknowledger.wake.set()  # nobody tells us of the worker's outcomes here
                return len(source.acked) + len(source.nacked) == 4

            await eventually(is_applied, within_s=20)
            acknowledger.stop()
            await applying
            # This source tells nothing of a message that it hides: what `fleet explain` says of it we remember.
            hidden = {one.message_id: one async for page in intake.queue.hidden() for one in page}
            assert set(hidden) == {"m1", "m2"}
            assert abs(hidden["m1"].until_ms - endpoint.answered_ms["m1"] - 20_000) < SLACK_MS
        assert endpoint.ids() == ["m1", "m3", "m4"]
        assert source.acked == ["handle-m3", "handle-m4"]
        # Not 10 s: this source would show the sibling before the head of its group.
        assert source.nacked == {"handle-m1": 20_000, "handle-m2": 20_000}


def test_a_delivery_is_the_request_of_the_seed(tmp_path: Path) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        house.publish([message("m1", "g", "P", f"{endpoint.url}orders?x=1", authToken="s3cret", mediationType="HTTP")])
        house.settle_in()
        house.crew()
        until(lambda: endpoint.ids() == ["m1"], 20, house.logs)
        (request,) = endpoint.requests
        assert (request.method, request.path, request.body) == ("POST", "/orders?x=1", b'{"messageId":"m1"}')
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type", "Accept")}
        assert headers == {
            "Authorization": "Bearer s3cret",
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        # By which a fence is kept: two pools may deliver groups of one name.
        assert (request.headers["Fleet-Pool"], request.headers["Fleet-Group"]) == ("P", "g")


def test_what_an_endpoint_rejects_for_good_is_acked_with_a_warning_and_its_group_goes_on(tmp_path: Path) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        endpoint.tell = {"m1": [(404, {}, {})], "m2": [(501, {}, {})]}
        _batch(house, endpoint, {"m1": "g", "m2": "g", "m3": "g"})
        until(lambda: not house.at_source() and len(endpoint.ids()) == 3, 20, house.logs)
        assert endpoint.ids() == ["m1", "m2", "m3"], "no second attempt"
        until(lambda: _warned(house) >= {("CONFIGURATION", "ERROR"), ("CONFIGURATION", "CRITICAL")}, 10, house.logs)


def test_an_endpoint_that_is_not_there_costs_three_attempts_and_the_batch_and_group_comes_again(tmp_path: Path) -> None:
    with a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        target = f"http://127.0.0.1:{free_port()}/"
        house.publish([message(i, "g", "P", target) for i in ("m1", "m2")])
        house.settle_in()
        house.crew()
        until(lambda: bool(house.at_source()["m1"].taken), 20, house.logs)
        began_ms = time.time() * 1000
        left = _wait_nacked(house, "m1", "m2")
        assert 32_000 <= left["m1"].visible_at_ms - began_ms <= 33_000 + SLACK_MS, "30 s after 1 s and 2 s of pauses"
        assert 19_900 <= left["m1"].visible_at_ms - left["m2"].visible_at_ms <= 20_100


def test_a_router_that_is_switched_off_takes_nothing(tmp_path: Path) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        house.publish([message("m1", "g", "P", endpoint.url)])
        house.settle_in()
        house.start("worker")
        off = house.start("coordinator", MESSAGE_ROUTER_ENABLED="false")
        until(lambda: " coordinates" in off.text(), 20, house.logs)
        time.sleep(2)  # the fact is that nothing happens, longer than it takes to own a queue
        assert (endpoint.ids(), house.at_source()["m1"].taken) == ([], 0)
        with house.client() as client:
            records = [json.loads(body) for body in client.hvals("{fleet}:processes")]
        assert is_off(records), records
        house.start("coordinator")
        until(lambda: not house.at_source(), 20, house.logs)


def test_a_queue_taken_out_of_the_configuration_is_read_no_more_and_what_was_taken_is_acked(tmp_path: Path) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        endpoint.tell["m1"] = [NEVER]
        _batch(house, endpoint, {"m1": "g"})
        until(lambda: endpoint.ids() == ["m1"], 20, house.logs)
        with house.client() as client:
            revision = client.hget("{fleet}:config", "revision")
            house.queues, kept = (), house.queues
            house.write()
            until(lambda: client.hget("{fleet}:config", "revision") != revision, 20, house.logs)
        time.sleep(2)  # as long as a consumer's last poll may take
        house.queues = kept
        house.publish([message("m2", "h", "P", endpoint.url)])
        endpoint.go.set()
        until(lambda: "m1" not in house.at_source(), 20, house.logs)
        assert house.at_source()["m2"].taken == 0


def _warned(house: House) -> set[tuple[str, str]]:
    async def read() -> set[tuple[str, str]]:
        async with connected(house.redis_server.url) as client:
            return {(warning.category, warning.severity) for warning in await Warnings(client).list()}

    return asyncio.run(read())
