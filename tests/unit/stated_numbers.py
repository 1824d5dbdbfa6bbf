"""Numbers that the pages state, each in the words of its page, made of what the code goes by: for `test_docs.py`."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

from coordinator import acknowledge, consume, late, room, rounds, setbacks, watch
from coordinator.syncer import fetch, sync, validate
from fleet import letter, message, outcome
from fleet import process as every_process
from fleet.broker import by_lease, core, counts, names, options, pull, sweep, waits
from fleet.broker import filter as filters
from fleet.broker import message as topic_message
from fleet.broker import publish as publishing
from fleet.broker.pubsub import main as pubsub_door
from fleet.broker.pubsub import subscriber as pubsub
from fleet.broker.sqs import batch as sqs_batch
from fleet.broker.sqs import catalogue as sqs_catalogue
from fleet.broker.sqs import message as sqs_message
from fleet.broker.sqs import move_tasks as sqs_move_tasks
from fleet.broker.sqs import ranges as sqs_ranges
from fleet.broker.sqs import tags as sqs_tags
from fleet.broker.sqs import throttle as sqs_throttle
from fleet.broker.sqs import upkeep as sqs_upkeep
from fleet.cli import produce as sending
from fleet.cli.main import fleet
from fleet.config import router as config
from fleet.config.settings import Settings
from fleet.delivery import breakers as own_breakers
from fleet.delivery import reply
from fleet.jobs import decide, prune, read, records, rising, store
from fleet.local import supervise, up
from fleet.metrics import broker as broker_metrics
from fleet.metrics import exposition
from fleet.operate import behind_breakers
from fleet.processing import process as processing
from fleet.processing import targets as job_admission
from fleet.server import answers, depths, due, monitoring, pulse, snapshot
from fleet.sources import check
from fleet.sources.activemq import address as activemq_address
from fleet.sources.activemq import line as activemq_line
from fleet.sources.activemq import source as activemq
from fleet.sources.nats import line as nats_line
from fleet.sources.nats import source as nats
from fleet.sources.own import polling as own
from fleet.sources.sqlite import publisher as sqlite_publisher
from fleet.sources.sqs import client as sqs_client
from fleet.sources.sqs import entry as sqs_entry
from fleet.sources.sqs import receive as sqs_receive
from fleet.sources.sqs import source as sqs
from fleet.state import (
    breakers,
    cluster,
    connections,
    engine,
    hear,
    letters,
    look,
    pool,
    queue,
    scripts,
    topic,
    totals,
    warnings,
)
from fleet.state.registry import NEARLY_FULL
from fleet.state.scripts import number
from spark import feed
from spark import lead as spark_lead
from spark import progress as spark_progress
from spark.sources import copy, ledger, publish, send
from spark.steps import recover
from spark.steps import report as report_step
from spark.transforms import report as reports
from tests.chaos import order_storm, test_order_storm, test_storm
from tests.conformance import test_whole_fleet
from tests.simulation import scenario, test_seeds
from tests.spark import story, test_whole
from tests.suites import lanes
from workers import deliver, exchange, homes, mediate, settle, waking

ROOT = Path(__file__).parents[2]
WORDS = dict(enumerate(["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]))
PART: dict[float, str] = {2: "half", 4: "a quarter"}
RULES = breakers.RULES
SETTINGS = Settings()
SYNC = sync.RetryPolicy()
SUBSCRIPTION, RETRIES = options.SubscriptionOptions(), options.RetryPolicy()


def behind(words: str, text: str) -> int:
    """A number that has no name where it stands: what comes before it finds it."""
    found = re.search(re.escape(words) + r"(\d+)", text)
    assert found is not None, words
    return int(found[1])


def literal(script: str, words: str) -> int:
    return behind(words, scripts.script(script).source)


def percent(share: float) -> str:
    return f"{share * 100:g} %"


def kib(count: int) -> str:
    return f"{count / 1024:g} KiB"


def mib(count: int) -> str:
    return f"{count / 1024 / 1024:g} MiB"


def minutes(ms: float) -> str:
    return WORDS[round(ms / 60_000)]


def forms(test: Any) -> dict[str, tuple[Any, ...]]:
    """The sets of parameters that a test is run with, by their ids."""
    return {form.id: form.values for form in test.pytestmark[0].args[1]}


def storm_of_order(form: order_storm.Form) -> tuple[str, str]:
    """How many messages it sends, a part before the rounds and five in each, and in how many groups."""
    part = form.messages // (form.rounds * 6)
    sent = part * (1 + 5 * form.rounds) + order_storm.BESIDE * form.rounds
    return f"{sent:,}", f"{form.groups + order_storm.BESIDE_GROUPS}"


RETRY_S, NAME = outcome.DEFAULT_RETRY_S, message.MAX_NAME_CHARACTERS
OPEN_S = f"{RULES.open_ms / 1000:g} s"
AGAIN_S, AGAIN_MOST_S = setbacks.AFTER_ERROR_MS / 1000, setbacks.AFTER_ERROR_MOST_MS / 1000
OFTENER = f"after {AGAIN_S:g} s, then later and later, up to every {AGAIN_MOST_S:g} s"
MANY_LATE = f"{late.LATE_MOST:,} messages"
IDLE, BETWEEN, TIMES = (
    connections.KEEPALIVE[option] for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
)
DEMO = {option.name: option.default for option in fleet.commands["demo"].params}
BEAT_S = activemq_line.HEARTBEAT_MS / 1000
EPOCHS_KEPT_MS = literal("remove", "'PEXPIRE', epochs, ")
STORM, PIPELINE = (
    {name: (f"{values[counts]:,}", values[counts + 1]) for name, values in forms(test).items()}
    for test, counts in (
        (test_storm.test_nothing_is_lost_or_reordered_while_processes_die, 0),
        (test_whole.test_drivers_and_a_server_are_killed_and_no_job_is_lost_doubled_or_out_of_order, 1),
    )
)
UNIT = (ROOT / "deploy" / "fleet-worker@.service").read_text(encoding="utf-8")

NUMBERS: dict[str, tuple[str, ...]] = {
    "README.md": (f"It adds {DEMO['messages']:,} events",),
    "ARCHITECTURE.md": (
        f"up to {exchange.CHUNK} messages at its head ({4 * exchange.CHUNK} where no lane waits",
        f"homes*: {WORDS[homes.HOMES]} workers",
        f"Up to {WORDS[deliver.ATTEMPTS]} attempts a message",
        f"the lane rests {settle.FENCED_PAUSE_MS / 1000:g} s in `later`",
        f"work that no signal told of | every {waking.SWEEP_S:g} s |",
        f"leases that are free | {rounds.ROUNDS} times in a lease time |",
        f"and how full Redis is | every {'second' if watch.WATCH_EVERY_S == 1 else '?'} |",
        f"the codes of all pools | every {'second' if watch.WATCH_EVERY_S == 1 else '?'} |",
        f"while a pool has none | every {'second' if room.SWEEP_S == 1 else '?'} |",
        f"in case a signal was lost | every {acknowledge._SWEEP_S:g} s |",
        f"with its own heartbeat | every {'second' if every_process._BEAT_S == 1 else '?'} |",
    ),
    "docs/order.md": (
        f"keeps {PART[number('with/rest', 'LANE_SHARE')]} of the pool's capacity at most",
        f"all groups that wait keep {PART[number('with/rest', 'REST_SHARE')]} of it together",
        f"within twice its visibility timeout and {minutes(2 * pool.AWAY_GRACE_MS)} minutes",
        f"nacked, N s ({outcome.MIN_RETRY_S} to {outcome.MAX_RETRY_S:,}; {RETRY_S} if none)",
        f"200 with a body over {kib(reply.MAX_REPLY_BODY_BYTES)}",
        f"nacked, `Retry-After` in seconds (a date, or none: {RETRY_S} s)",
        f"500 to 599 otherwise | ERROR_PROCESS | nacked, {RETRY_S} s | {deliver.ATTEMPTS} | cascade",
        f"of the group is nacked, {number('exchange', 'FENCED_BACK_MS') / 1000:g} s | 1 |",
        f"| rests {settle.FENCED_PAUSE_MS / 1000:g} s, then under a new epoch",
        f"the {WORDS[number('exchange', 'FENCED_MOST')]}th time in a row",
        f"after {deliver.BACKOFF_S[0]:g} s and {deliver.BACKOFF_S[1]:g} s, each with its own deadline",
        f"siblings' delay is {outcome.CASCADE_RETRY_S} s where",
        f"submitted late, up to {number('exchange', 'FAILED_BATCH_MS') / 1000:g} s after the failure",
        f"from the front, in shares of {pool.SHARE}.",
        f"go back for {outcome.MIN_RETRY_S} s to {outcome.QUEUE_FULL_RETRY_S} s",
        f"does not answer for {PART[1000 / exchange.STALL_MS]} of a second",
        f"that one, up to {WORDS[deliver.ATTEMPTS]} attempts",
        f"Fleet-Attempt: <1 to {deliver.ATTEMPTS}>",
        f"Up to {kib(reply.MAX_REPLY_BODY_BYTES)} of the answer's body are read",
        f"up to {kib(reply.MAX_REPLY_HEADER_BYTES)} of headers",
    ),
    "docs/redis.md": (
        f"(`hold`, `park`); TTL {number('with/away', 'AWAY_TTL_MS') / 86_400_000:g} day",
        f"{number('with/away', 'AWAY_MOST'):,} a lane; deleted when all are back",
        f"{PART[number('with/rest', 'REST_SHARE')]} of the pool's capacity; deleted when no lane waits",
        f"when it was set; TTL {number('with/rate', 'RATE_WINDOW_MS') / 1000:g} s",
        f"failures of {number('exchange', 'FAILED_BATCH_MS') / 1000:g} s; swept",
        f"TTL {EPOCHS_KEPT_MS / 3_600_000:g} h once the pool is gone",
        f"the {queue.HIDDEN_REMEMBERED:,} that come back last",
        f"the newest {letters.KEPT:,}; of a body that is not a message {kib(letter.BODY_BYTES)}",
        f"publishers stop at {percent(NEARLY_FULL)} of `maxmemory`",
        f"sent in {engine.DEDUP_MS / 60_000:g} minutes",
        f"{mib(fetch.MAX_CONFIG_BYTES)} of each source",
        f"the dead for a {'minute' if literal('beat', 'now - ') == 60_000 else '?'}",
        f"{breakers.MOST_ORIGINS:,} origins; forgotten an {'hour' if breakers.IDLE_MS == 3_600_000 else '?'} after",
        f"the newest {warnings.MOST:,}; TTL {warnings.KEEP_MS / 3_600_000:g} h",
        f"for {totals.TTL_MS / 3_600_000:g} h those that did not end cleanly",
        f"costs time: {waking.SWEEP_S:g} s for `fleet:wake` and `fleet:wake:`",
        f"{acknowledge._SWEEP_S:g} s for `fleet:settled` and `fleet:queue`",
        f"{own.LOOK_S:g} s for `fleet:settled` and `fleet:queue`",
        f"{room.SWEEP_S:g} s for `fleet:room`",
        f"sizes of pools, {look._POOLS_A_CALL} pools a call",
        f"Above {percent(NEARLY_FULL)} of `maxmemory` (in a Cluster",
        f"They take nothing new above {percent(NEARLY_FULL)}.",
        f"gives the queue back and tries again {OFTENER}.",
        f"(`visibilityTimeout`, {config.DEFAULT_VISIBILITY_S} s by default)",
        f"asked {'twice' if cluster._LOOK_EVERY_S == 0.5 else '?'} a second",
        f"up to {MANY_LATE} of a queue",
        f"at most {connections.MOST} connections to a server",
        f"waits up to {connections.TIMEOUT_S:g} s for one",
        f"at least {connections.MOST} × processes",
        f"({IDLE} s, then {WORDS[TIMES]} times {BETWEEN} s)",
    ),
    "docs/operate.md": (
        f"`worker.max_in_flight` ({SETTINGS.worker.max_in_flight}) groups",
        f"wait {sending._COMES_UP_WITHIN_S} s for one to come up",
        f"the {queue.HIDDEN_REMEMBERED:,} of each queue that come back last",
        f"It tries again {OFTENER}",
        f"`all {connections.MOST} connections wait for answers`",
        f"With {MANY_LATE} waiting (or {mib(late.LATE_MOST_BYTES)})",
        f"are above {percent(NEARLY_FULL)} of the `maxmemory`",
        f"at least {PART[1 / RULES.failure_ratio]} of its last {RULES.window} requests failed",
        f"a probe every {OPEN_S}. Its messages come again after {RETRY_S} s",
        f"called again after {RULES.successes_to_close} good probes",
        f"From {percent(NEARLY_FULL)} on nothing new is taken",
        f"no answer within {connections.TIMEOUT_S:g} s, gives up every connection",
        f"two pings in a row ({2 * hear.PING_EVERY_S:g} s)",
        f"what is dead after {'half' if IDLE + TIMES * BETWEEN == 30 else '?'} a minute",
        f"requests in flight within {SETTINGS.worker.stop_within_s:g} s",
        f"after {supervise._PAUSES_S[0]:g} s at first and up to {supervise._PAUSES_S[1]:g} s later",
        f"the first sync failed for a {'minute' if SYNC.attempts * SYNC.pause_s == 60 else '?'}",
    ),
    "docs/configure.md": (
        f"`DEFAULT-POOL` (concurrency {config.DEFAULT_POOL_CONCURRENCY})",
        f"1 to {config.MAX_VISIBILITY_S} s | {config.DEFAULT_VISIBILITY_S} |",
        f"max({config.CAPACITY_PER_SLOT} · concurrency, {config.MIN_CAPACITY})",
        f"| `parkAfter` | integer ≥ 1 | {config.DEFAULT_PARK_AFTER} |",
        f"| `connections` | integer ≥ 1 | {config.DEFAULT_CONNECTIONS} |",
        f"text, at most {config.MAX_QUEUE_NAME_CHARACTERS} characters, no braces",
        f"text, at most {NAME} characters, no spaces and braces",
        f"each of its queues, {validate._AT_ONCE} at a time",
        f"opened within {check.WITHIN_S:g} s from",
        f"each of at most {sqs_receive.MOST} messages",
        f"messages come back after {RETRY_S} s",
        f"in shares of {pool.SHARE}, each whole or not at all. A pool with a capacity of {pool.SHARE} or less",
        f"still taken, for {number('configure', 'PROMISE_MS') / 1000:g} s at most",
        f"must be good: {SYNC.attempts} attempts, {SYNC.pause_s:g} s apart",
        f"A URL has {fetch.FETCH_TIMEOUT_S:g} s to answer, and {mib(fetch.MAX_CONFIG_BYTES)} are read at most",
        f"`fleet up` waits {up.WORKER_STOPS_S:g} s for it, the units {behind('TimeoutStopSec=', UNIT)} s",
        f"up to {feed._HELD_S:g} s apart where a look takes long",
        f"at most {NAME} printable characters, unique",
        f"A body over {kib(message.MAX_BODY_BYTES)}",
        f"(`{{q:NAME}}:dead`, the newest {letters.KEPT:,})",
    ),
    "docs/breakers.md": (
        f"closed ──{RULES.window * RULES.failure_ratio:g} of the last {RULES.window} requests failed──▶ open",
        f"open ──{OPEN_S}──▶ half-open",
        f"half-open ──{RULES.successes_to_close} probes succeeded──▶ closed",
        f"each of the up to {WORDS[deliver.ATTEMPTS]} attempts",
        f"nacked and comes back after {RETRY_S} s",
        f"after {OPEN_S} the next message asks",
        f"wait as well, up to {mediate.PROBE_PATIENCE_MS / 1000:g} s",
        f"a lease in Redis of {breakers.PERMIT_MS / 1000:g} s",
        f"{WORDS[RULES.successes_to_close].capitalize()} probes that succeed",
        f"opens it for {OPEN_S} more",
        "in {}, {}, then {} s at the earliest".format(*processing._RETURN_S),
        f"a {'hundredth' if job_admission._APART_MS == 10 else '?'} of a second apart",
        f"within a {'minute' if job_admission._MOST_MS == 60_000 else '?'}, so that",
        f"silent for {own_breakers.ASK_WITHIN_S:g} s",
        f"at most {breakers.MOST_ORIGINS:,} origins, and none that was not called for an hour",
        f"up to {behind_breakers._MESSAGES:,} of each pool",
        f"opens it again after {WORDS[RULES.window]} requests",
    ),
    "docs/server.md": (
        f"a body over {mib(answers.MAX_BODY_BYTES)}",
        f"has not answered for {pulse.QUIET_MS / 1000:g} s",
        f"`snapshot` each {'second' if snapshot.EVERY_S == 1 else '?'}",
        f"(at most {monitoring._LISTENERS})",
        f"within a {'minute' if consume.STUCK_MS == 60_000 else '?'} |",
        f"depth every {depths.REMOTE_MS / 1000:g} s at most",
        f"goes {warnings.KEEP_MS / 3_600_000:g} h after the last time; the newest {warnings.MOST:,} are kept",
        f"({', '.join(f'{bound:g}' for bound in exposition.POOL_BOUNDS_S)} s)",
        f"pieces of at most {totals.PIECE} pools",
        f"some {every_process.RECORDS_A_SECOND:,} pools and kinds a second",
        f"every {due.EVERY_MS / 1000:g} s at most",
        f"The first {broker_metrics.MOST_LABELS} topics, subscriptions and queues of the SQS door",
        f"What was counted of all others is `{broker_metrics.OTHERS}`",
        f"tell what they counted every {counts.TELL_EVERY_S:g} s",
        f"does not answer within {due.PATIENCE_S:g} s",
    ),
    "docs/jobs.md": (
        f"with a host, at most {read.MAX_URL_CHARACTERS:,} characters",
        f"any JSON, at most {read.MAX_PAYLOAD_BYTES:,} bytes",
        f"| a ULID | at most {NAME} printable characters",
        f"| `sequence` | {records.DEFAULT_SEQUENCE} |",
        f"| `maxRetries` | {records.DEFAULT_MAX_RETRIES} | 0 to {read.MAX_RETRIES} |",
        f"| `timeoutSeconds` | {records.DEFAULT_TIMEOUT_S} | 1 to {read.MAX_TIMEOUT_S}, for one delivery |",
        f"at most {read.MAX_KEY_CHARACTERS} characters. A job",
        f"{prune.BATCH} rows a transaction",
        f"cannot be read for that: over {kib(reply.MAX_REPLY_BODY_BYTES)}",
        f"after {', '.join(map(str, (*decide.RETRY_DELAYS_S, decide.RETRY_DELAYS_S[-1])))} … s",
        f"taken for its timeout and {store.MARGIN_MS / 1000:g} s",
        f"goes again in {processing._RETURN_S[0]} to {processing._RETURN_S[-1]} s",
        f"**At most {processing.AT_ONCE}** deliveries",
        f"a subscription's name has at most {read.MAX_SUBSCRIPTION_CHARACTERS} characters",
        f"an event's group at most {read.MAX_EVENT_GROUP_CHARACTERS}.",
    ),
    "docs/sqs.md": (
        f"{broker_metrics.MOST_LABELS} queues have labels",
        f"tried again every {sqs_upkeep.RETRY_MS / 1000:g} seconds",
        f"above {sqs_upkeep._MOST * sqs_upkeep.TIDY_EVERY_MS // 1000:,} queues",
        f"and port {Settings().sqs.port} unless",
        f"once in {Settings().sqs.purge_interval_s:g} seconds",
        f"up to {sqs_tags.MOST_TAGS} tags",
        f"up to {sqs_ranges.MOST_MOVED_A_SECOND} a second, or as fast as it goes, which is {sqs_move_tasks._A_STEP:,}",
        f"known for {sqs_catalogue.DEDUP_MS // 60_000} minutes",
        f"least {sqs_throttle.LEAST_CAPACITY:g}, at most {sqs_throttle.MOST:,g}",
        f"| entries of a batch, messages of a receive | {sqs_batch.MOST_ENTRIES} |",
        f"{sqs_catalogue.MOST_IN_FLIGHT[False]:,} of a standard queue",
        f"{sqs_catalogue.MOST_IN_FLIGHT[True]:,} of a FIFO queue",
        f"| message attributes | {sqs_message.MOST_ATTRIBUTES} |",
    ),
    "docs/broker.md": (
        f"at most {pull.MOST_PULLED:,} a call",
        f"More than {publishing.MOST_COPIES:,} copies (messages times subscriptions), or"
        f" {publishing._MOST_BYTES / 2**20:g} MB of data",
        f"after that time (at most {core.MOST_WAIT_S} s)",
        f"one look each {waits.LOOK_S:g} s, as a signal may be lost",
        f"- each {'second' if by_lease.EACH_SECOND_S == 1 else '?'}: dead letters",
        f"- each {by_lease.EACH_MINUTE_S:g} s: what is older",
        f"of up to {sweep.MOST_CARRIED} subscriptions at a time",
        f"| {topic.MOST_HELD:,} messages or {topic.MOST_BYTES / 1e6:g} MB wait |",
        f"have 1 to {names.MAX_NAME_CHARACTERS} characters",
        f"keys of 1 to {topic_message.MAX_ATTRIBUTE_KEY_BYTES} bytes that do not begin with"
        f" `{topic_message.RESERVED_PREFIXES[0]}`, values of up to {topic_message.MAX_ATTRIBUTE_VALUE_BYTES} bytes",
        f"text of up to {topic_message.MAX_ORDERING_KEY_BYTES} bytes, or None",
        f"({topic_message.MAX_MESSAGE_BYTES:,} bytes): data, attributes, ordering key, and"
        f" {topic_message.METADATA_BYTES} bytes",
        "| `ack_deadline_seconds` | {} to {} | {:g} |".format(
            *options.ACK_DEADLINE_S, SUBSCRIPTION.ack_deadline_seconds
        ),
        "`maximum_backoff`, in seconds, {} to {} |".format(*options.BACKOFF_S),
        f"| `filter` | up to {filters.MAX_FILTER_BYTES} bytes |",
        "| `message_retention_seconds` | {:,} to {:,} (31 days) | {:,g} (7 days) |".format(
            *options.RETENTION_S, SUBSCRIPTION.message_retention_seconds
        ),
        f"waits for {pubsub.WAIT_S:g} s, or {pubsub.PART:.0%} of the time".replace("%", " %"),
        f"a request is larger than {pubsub_door.MOST_REQUEST_BYTES / 2**20:g} MB",
        f"| `fleet pubsub` | listen on `{SETTINGS.pubsub.host}:{SETTINGS.pubsub.port}`",
        f"takes Pub/Sub's {RETRIES.minimum_backoff:g} or {RETRIES.maximum_backoff:g} for the other",
    ),
    "docs/pipeline.md": (
        f"a line every {spark_progress.EVERY_S:g} s at most",
        f"if that has more than {rising.LONGEST_EVENT_ID} characters",
        f"a payload of {mib(read.MAX_PAYLOAD_BYTES)} ({read.MAX_PAYLOAD_BYTES:,} bytes)",
        f"no more than {mib(copy.BATCH_BYTES)} are read at a time",
        f"(`batch_size` is {SETTINGS.feed.batch_size:,} unless set)",
        f"from the executors, {send.BATCH} a call",
        f"waits {WORDS[spark_lead._WAITS_FOR_TTLS]} lease times",
        f"**Claims** are kept for a {'day' if ledger._KEEP_MS == 86_400_000 else '?'}.",
        f"above {percent(NEARLY_FULL)} of Redis's memory",
        f"of each shard {publish._OWN_ROUND:,} jobs at a time, {publish._ROUND:,} where",
        f"{ledger._MANY:,} jobs or more are marked",
        f"or {feed._HELD_S:g} s have passed",
        f"for up to {recover.MOST:,} jobs at a time",
        f"more than {spark_lead._LOOK:,} groups of our own queue",
    ),
    "docs/sources.md": (
        f"| the embedded queue, our own, SQS FIFO | {minutes(sqlite_publisher.DEDUP_MS)} minutes |",
        f"`[feed] dedup_s`, an {'hour' if SETTINGS.feed.dedup_s == 3600 else '?'} unless set |",
        f"accepted and dropped for {minutes(engine.DEDUP_MS)} minutes",
        f"at most {engine.PER_LANE} messages of each",
        f"at most {engine.PER_LANE} messages of a group",
        f"At most {NAME} printable characters",
        f"Above {percent(NEARLY_FULL)} of `maxmemory` it takes nothing more",
        f"a long poll of {sqs.LONG_POLL_S} s for up to {sqs_client.BATCH} messages",
        f"given up after {sqs_client.CALL_TIMEOUT_S} s",
        f"rests for {sqs_receive.REST_MS:g} ms",
        f"1 to {sqs.MAX_VISIBILITY_S:,} s, set with each receive",
        f"by {sqs_entry.MAX_DELAY_S} s at most",
        f"more than {sqs.MAX_VISIBILITY_S / 3600:g} hours from its receive",
        f"({sqs.LONG_POLL_S} s at most)",
        f"some {nats._OVER_S + nats._CLOSE_S:.0f} s longer",
        f"waited for {PART[nats._OLD_PART]} of the ack wait",
        f"a call fails within {nats_line._CONNECT_S + nats_line.ANSWER_S:g} s",
        f"(port {activemq_address.DEFAULT_PORT} unless given; prefetch {activemq_address.DEFAULT_PREFETCH})",
        f"heartbeats ({BEAT_S:g} s; the broker",
        f"waits {activemq._SIGNS_OF_LIFE * BEAT_S:g} s first",
        f"after {activemq._RETRY_S[0]:g} s at first, then up to every {activemq._RETRY_S[1]:g} s",
        f"{WORDS[activemq_line._SILENT_BEATS]} heartbeats ({activemq_line._SILENT_BEATS * BEAT_S:g} s)",
    ),
    "docs/testing.md": (
        f"every {lanes.TELL_EVERY_S:g} s a line says how far each is",
        f"some {scenario.MESSAGES} messages, {scenario.FAULTS} faults",
        f"the first {test_seeds.SEEDS}, then those of the day until {test_seeds.SECONDS:g} s are over",
        "| `short` | SQLite | {} messages in {} groups |".format(*STORM["short"]),
        "| `one-a-lease` | SQLite | {} in {} groups,".format(*STORM["one-a-lease"]),
        "| `own-queue` | our own | {} in {} groups |".format(*STORM["own-queue"]),
        "| `whole`, `own-queue-whole` | SQLite, our own | {} in {} groups,".format(*STORM["whole"]),
        "| `whole`, `own-queue-whole` | SQLite, our own | {} in {} groups,".format(*STORM["own-queue-whole"]),
        f"under libfaketime (by {order_storm.AWHILE_S} s where",
        "- `short`: {} messages in {} groups;".format(*storm_of_order(test_order_storm.SHORT)),
        "`whole`: {} in {} groups".format(*storm_of_order(test_order_storm.WHOLE)),
        f"groups and {WORDS[test_order_storm.WHOLE.rounds]} rounds",
        f"the line is cut for {WORDS[int(test_whole_fleet.CUT_S)]} seconds",
        f"at each of their {WORDS[len(story.PLACES)]} failpoints",
        "- `short`: {} jobs in {} groups on SQLite;".format(*PIPELINE["short"]),
        "`whole`: {} in {} on PostgreSQL".format(*PIPELINE["whole"]),
    ),
    "docs/glossary.md": (
        f"up to {pool.SHARE} messages of one batch",
        f"one of the {WORDS[homes.HOMES]} workers",
        f"`workers/deliver.py` makes up to {WORDS[deliver.ATTEMPTS]}",
    ),
    "docs/report.md": (
        f"the first {report_step.INVERSIONS_SHOWN:,}",
        f"Exact up to {reports._EXACT_BELOW:,} values",
    ),
}
