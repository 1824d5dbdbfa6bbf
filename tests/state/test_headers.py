"""A script's header is its contract: it must say what the code reads and what the wrapper passes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import fakeredis
import pytest
from redis.crc import key_slot

from fleet.state import keys
from fleet.state.connect import Client
from fleet.state.keys import FleetKeys, OwnQueueKeys, PoolKeys, QueueKeys, SubscriptionKeys
from fleet.state.scripts import Script, names, script
from tests.state.every_call import every_call
from tests.state.stage import Stage

ALL = names()
# Names that a family of keys does not have, or under another end of the key.
SPECIAL_KEYS = {
    "outbox",
    "away_lane",
    "regular_lane",
    "high_lane",
    "lease",
    "totals",
    "tallied",
    "group_list",
    "bucket",
    "subscription",
    "attempt",
}
# A local that may not be called as its argument is, as that name is taken.
SYNONYMS = {("lease", "name"): "owner"}


def source_of(name: str) -> str:
    return resources.files("fleet.state").joinpath("lua", f"{name}.lua").read_text("utf-8")


def code_of(name: str) -> str:
    """The script without comments, each statement on one line."""
    code = re.sub(r"--.*", "", source_of(name))
    return re.sub(r",\s*\n\s*", ", ", code)


def argv_line(name: str) -> str:
    found = re.search(r"^-- ARGV (.*)$", source_of(name), re.MULTILINE)
    return found.group(1) if found else ""


def locals_of(code: str) -> list[tuple[str, str]]:
    """(name, expression) of every `local a, b = x, y`."""
    pairs = []
    for names_, expressions in re.findall(r"^local ([\w, ]+) = (.+)$", code, re.MULTILINE):
        # Commas inside brackets separate nothing here.
        flat = re.sub(r"\([^()]*\)", lambda m: m.group().replace(",", ";"), expressions)
        pairs += list(zip(names_.split(", "), flat.split(", "), strict=False))
    return pairs


@pytest.mark.parametrize("name", [*ALL, "prelude"])
def test_the_first_line_is_the_name_and_a_sentence(name: str) -> None:
    first = source_of(name).splitlines()[0]
    assert re.fullmatch(rf"-- {name}: \S.*\S\.", first), first


@pytest.mark.parametrize("name", ALL)
def test_the_header_names_keys_and_arguments_and_what_is_returned(name: str) -> None:
    header = re.match(r"(--.*\n)+", source_of(name))
    assert header is not None
    assert [len(re.findall(rf"^-- {part} \S", header.group(), re.MULTILINE)) for part in ("KEYS", "ARGV")] == [1, 1]
    assert re.search(r"^-- Returns ", header.group(), re.MULTILINE)
    assert len(set(script(name).keys)) == len(script(name).keys)


@pytest.mark.parametrize("name", ALL)
def test_the_code_reads_its_keys_in_the_order_of_the_header(name: str) -> None:
    code, header = code_of(name), script(name).keys
    unpacked = re.findall(r"^ *local ([\w, ]+) = unpack\(KEYS(?:, at, at \+ \d)?\)$", code, re.MULTILINE)
    if unpacked:
        (line,) = unpacked
        read = [word.strip() for word in line.split(",")]
        assert len(read) == len(header)
        assert [r for r in read if r != "_"] == [h for r, h in zip(read, header, strict=True) if r != "_"]
    else:
        indices = {int(i) for i in re.findall(r"KEYS\[(\d+)\]", code)}
        assert indices == set(range(1, len(header) + 1))
        for local, expression in locals_of(code):
            if found := re.fullmatch(r"KEYS\[(\d+)\]", expression):
                assert local == header[int(found.group(1)) - 1]


@pytest.mark.parametrize("name", ALL)
def test_the_code_reads_as_many_arguments_as_the_header_names(name: str) -> None:
    code, line = code_of(name), argv_line(name)
    named = line.split(" …")[0].split()
    fixed_read = max((int(i) for i in re.findall(r"ARGV\[(\d+)\]", code)), default=0)
    record = re.search(r"(?:three|four|five|six|seven) fields an? \w+: (.*)$", line)
    loop = re.search(r"for i = (\d+), #ARGV(?:, (\d+))? do", code)
    if "…" not in line:
        assert fixed_read == len(named)
    elif name == "exchange":
        # What follows its fixed arguments is counted by two of them.
        assert fixed_read == len(named)
        assert re.search(r"^local at = (\d+)$", code, re.MULTILINE).group(1) == str(len(named))  # type: ignore[union-attr]
    elif record:
        counted = re.search(r"local (?:count|total) = \(#ARGV - (\d+)\) / FIELDS", code)
        fixed = int(counted.group(1))  # type: ignore[union-attr]
        assert fixed == fixed_read == len(named) - 1
        fields = re.search(r"^local FIELDS(?:, \w+)? = (\d+)", code, re.MULTILINE)
        assert fields.group(1) == str(len(record.group(1).split()))  # type: ignore[union-attr]
    elif loop:
        first, step = int(loop.group(1)), int(loop.group(2) or 1)
        assert fixed_read == first - 1
        assert len(named) == fixed_read + step
    else:
        assert (fixed_read, len(named)) == (0, 1), "every argument is one item"


@pytest.mark.parametrize("name", ALL)
def test_a_local_read_from_an_argument_is_called_as_the_header_calls_it(name: str) -> None:
    named = argv_line(name).split(" …")[0].split()
    for local, expression in locals_of(code_of(name)):
        if found := re.search(r"ARGV\[(\d+)\]", expression):
            argument = named[int(found.group(1)) - 1]
            expected = SYNONYMS.get((name, local), local)
            # `now` of `now_ms`, `epoch` of `owner_epoch`, `known` of a lookup.
            if expression.strip().startswith(("ARGV", "tonumber(ARGV", "time_ms(ARGV")):
                assert expected in argument, (local, argument)


@pytest.mark.parametrize("name", ALL)
def test_every_fixed_argument_is_explained_by_its_name_and_read(name: str) -> None:
    line = argv_line(name)
    named = line.split(" …")[0].split()
    fixed = len(named) if "…" not in line else len(named) - 1
    read = {int(i) for i in re.findall(r"ARGV\[(\d+)\]", code_of(name))}
    assert set(range(1, fixed + 1)) <= read or name == "held" or "for i = " in code_of(name)


@pytest.mark.parametrize("name", ALL)
def test_no_script_makes_up_a_key_of_its_own(name: str) -> None:
    literals = re.findall(r"'([^'\n]*)'", code_of(name))
    assert [x for x in literals if "{" in x] == []


@pytest.mark.parametrize("name", ALL)
def test_every_channel_is_one_that_somebody_can_subscribe_to(name: str) -> None:
    known = {value for name, value in vars(keys).items() if name.endswith("_CHANNEL")}
    published = re.findall(r"'PUBLISH', (\S+?),", code_of(name))
    assert {p.strip("'") for p in published} <= known


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Script, Sequence[str], Sequence[str | int]]]:
    calls: list[tuple[Script, Sequence[str], Sequence[str | int]]] = []
    call = Script.__call__

    async def recording(self: Script, client: Client, keys_: Sequence[str], arguments: Sequence[str | int]) -> Any:
        calls.append((self, keys_, arguments))
        return await call(self, client, keys_, arguments)

    monkeypatch.setattr(Script, "__call__", recording)
    return calls


@pytest.mark.parametrize("label", ["P", "a}b", "{x}", "}", "{", "ü ö", "q{1}%", "https://sqs/1/q"])
async def test_every_wrapper_passes_the_keys_of_the_header_all_in_one_slot(
    label: str, recorded: list[tuple[Script, Sequence[str], Sequence[str | int]]]
) -> None:
    async with fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer()) as client:
        stage = Stage(client=client, url="")
        async for _ in every_call(stage, code=label, name=label):
            pass
    assert {called.name for called, _, _ in recorded} == set(ALL)
    for called, passed, arguments in recorded:
        assert len(passed) == len(called.keys), called.name
        for key, name in zip(passed, called.keys, strict=True):
            assert name in SPECIAL_KEYS or key.endswith(f":{name}"), (called.name, key)
        assert len({key_slot(key.encode()) for key in passed}) == 1, called.name
        line = argv_line(called.name)
        if "…" not in line:
            assert len(arguments) == len(called.arguments), called.name


@pytest.mark.parametrize("name", ["P", "a}b", "{x}", "}", "{", "", "%7B"])
def test_every_key_of_a_family_is_in_one_slot(name: str) -> None:
    for family in (PoolKeys(name), QueueKeys(name), OwnQueueKeys(name), SubscriptionKeys(name, name)):
        # Also what a script appends to a prefix: any worker, any group.
        properties = [p for kind in type(family).__mro__ for p, v in vars(kind).items() if isinstance(v, property)]
        made = [str(getattr(family, p)) for p in properties]
        made += [f"{key}{tail}" for key in made for tail in ("{other}", "}", "{")]
        if isinstance(family, PoolKeys):
            made += [family.outbox("{worker}"), family.outbox("")]
        assert len(made) >= 5
        assert len({key_slot(key.encode()) for key in made}) == 1
    fleet = {key_slot(str(v).encode()) for k, v in vars(FleetKeys).items() if not k.startswith("_")}
    assert len(fleet) == 1


def test_keys_of_two_queues_never_meet() -> None:
    assert len({QueueKeys(name).tracked for name in ("a{", "a%7B", "a%257B", "a}", "a")}) == 5
