"""The documentation says what the code has: nothing that exists is missing, nothing that is named is invented."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from fleet import failpoint
from fleet.cli.main import fleet
from fleet.config import router as config
from fleet.config import settings
from fleet.message import Message
from fleet.state import keys, scripts
from tests.conformance.table import promised
from tests.unit.stated_numbers import NUMBERS

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    *sorted(f"docs/{page.name}" for page in ROOT.glob("docs/*.md")),
]
OURS = [page for page in PAGES if page != "docs/benchmark.md"]


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """The part under one heading, up to the next of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text(page), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {title}"
    return re.sub(r"^```.*?^```", "", found[1], flags=re.MULTILINE | re.DOTALL)


def rows(part: str) -> list[list[str]]:
    """The cells of the tables in it, without their heads, backticks taken off those that are one name."""
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {i for i, row in enumerate(cells) if set("".join(row)) <= {"-", ":"}}
    heads = {i - 1 for i in rules}
    return [[re.sub(r"^`([^`]*)`$", r"\1", c) for c in row] for i, row in enumerate(cells) if i not in rules | heads]


def first_column(page: str, title: str) -> list[str]:
    return [row[0] for row in rows(section(page, title))]


# Settings ------------------------------------------------------------------------------------------


def as_written(value: Any) -> str:
    if value in ("", ()):
        return "empty"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def settings_of_the_code() -> Iterator[tuple[str, str, str, str]]:
    defaults = settings.Settings()
    for part, name, _, metadata in settings._fields():
        owner = getattr(defaults, part) if part else defaults
        ours = "_".join(["FLEET", *([part] if part else []), name]).upper()
        label = f"[{part}] {name}" if part else name
        yield label, ours, metadata.get("env") or "", as_written(getattr(owner, name))


def test_every_setting_is_described_with_its_variables_and_its_default() -> None:
    described = {tuple(row[:4]) for row in rows(section("docs/configure.md", "Settings"))}
    assert described == set(settings_of_the_code())


def test_every_variable_that_is_named_anywhere_exists() -> None:
    known = {name for _, ours, older, _ in settings_of_the_code() for name in (ours, older)}
    known |= {"FLEET_CONFIG", "FLEET_OPTIONS", "FLEET_"}
    named = {v for page in OURS for v in re.findall(r"\b(?:FLEET|MESSAGE_ROUTER|MEDIATOR)_[A-Z_]*", text(page))}
    assert named - known == set()


@pytest.mark.parametrize(
    ("title", "fields"),
    [
        ("Top level", config._ROUTER_FIELDS),
        ("A queue", config._QUEUE_FIELDS),
        ("A pool", config._POOL_FIELDS),
        ("A message", frozenset(Message.__struct_encode_fields__)),
    ],
)
def test_every_field_is_described(title: str, fields: frozenset[str]) -> None:
    assert set(first_column("docs/configure.md", title)) == set(fields)


@pytest.mark.parametrize(("page", "words"), [(page, words) for page in NUMBERS for words in NUMBERS[page]])
def test_a_number_that_a_page_states_is_that_of_the_code(page: str, words: str) -> None:
    assert words in " ".join(text(page).split())


# Redis ---------------------------------------------------------------------------------------------


def names_of(family: type) -> set[str]:
    given = {item.name for item in dataclasses.fields(family)} if dataclasses.is_dataclass(family) else set()
    own = {"bucket", "attempt", "purging"} if family is keys.MessageKeys else set()
    return {name for name in vars(family) if not name.startswith("_")} - given - {"tag", "prefix"} | own


FAMILIES = [
    ("A pool: `{p:CODE}:`", keys.PoolKeys),
    ("A source queue: `{q:NAME}:`", keys.QueueKeys),
    ("Messages of our own: `{b:NAME:P}:` and `{t:TOPIC}:s:NAME:`", keys.MessageKeys),
    ("A topic: `{t:TOPIC}:`", keys.TopicKeys),
    ("The broker: `{broker}:`", keys.BrokerKeys),
    ("The fleet: `{fleet}:`", keys.FleetKeys),
]
WRITES = (
    "HSET|HDEL|HINCRBY|SADD|SREM|ZADD|ZREM|ZREMRANGEBYSCORE|ZREMRANGEBYRANK|LPUSH|RPUSH|LPOP|RPOP|LREM|LTRIM|SET|DEL"
    "|PEXPIRE|PERSIST|UNLINK|RENAME"
)


@pytest.mark.parametrize(("title", "family"), FAMILIES)
def test_every_key_is_described_by_its_name(title: str, family: type) -> None:
    assert set(first_column("docs/redis.md", title)) == names_of(family)


def test_the_families_that_may_remain_are_listed() -> None:
    part = section("docs/redis.md", "What may remain when everything is delivered and acked")
    assert re.findall(r"^- `(.*)`$", part, re.MULTILINE) == list(keys.FAMILIES)


def test_every_channel_is_described() -> None:
    channels = {value for name, value in vars(keys).items() if name.endswith("_CHANNEL")}
    assert set(first_column("docs/redis.md", "Channels")) == channels


def test_every_script_is_described_and_every_one_that_is_named_exists() -> None:
    there = {f"{name}.lua" for name in scripts.names()}
    assert set(first_column("docs/redis.md", "Scripts")) == there
    named = {name for page in OURS for name in re.findall(r"\b((?:own/)?[a-z_]+\.lua)\b", text(page))}
    parts = {path.name for path in (ROOT / "fleet/state/lua/with").iterdir()}
    assert named - there - parts == {"prelude.lua"}


def written_in(code: str, parts: dict[str, list[int]]) -> set[str]:
    """What a script, or a part of one, writes under the name that it has there. `parts`: which arguments they write."""
    found = set(re.findall(rf"(?:redis\.call|call_many)\('(?:{WRITES})', ([a-z_]+)(?!, ''\))\b", code))
    for part, places in parts.items():
        for given in re.findall(rf"(?<!function )\b{part}\(([^()]*)", code):
            arguments = given.split(", ")
            found |= {arguments[place] for place in places if place < len(arguments)}
    return found


def keys_written_by(name: str) -> set[str]:
    source, parts = scripts.script(name).source, dict[str, list[int]]()
    for part, takes, body in re.findall(r"^local function (\w+)\((.*?)\)\n(.*?)^end$", source, re.M | re.S):
        parts[part] = [i for i, one in enumerate(takes.split(", ")) if one in written_in(body, parts)]
    return written_in(text(f"fleet/state/lua/{name}.lua"), parts) & set(scripts.script(name).keys)


@pytest.mark.parametrize(("title", "family"), FAMILIES)
def test_a_script_that_writes_a_key_is_named_beside_it(title: str, family: type) -> None:
    of_messages = family in (keys.MessageKeys, keys.TopicKeys)
    theirs = [name for name in scripts.names() if name.startswith("own/") == of_messages]
    ours = [name for name in theirs if set(scripts.script(name).keys) <= names_of(family)]
    written = {name: keys_written_by(name) for name in ours if name != "remove"}  # which the page names below the table
    for row in rows(section("docs/redis.md", title)):
        named = set(re.findall(r"([a-z_/]+)\.lua", row[4]))
        assert {name for name in written if row[0] in written[name]} <= named, row[0]
        assert {name for name in named if row[0] not in scripts.script(name).keys} <= {"lease"}, row[0]


def test_a_script_has_its_wrapper_where_the_page_says() -> None:
    for name, _, _, wrapper in rows(section("docs/redis.md", "Scripts")):
        assert re.search(rf'(?:script|_call)\("{name.removesuffix(".lua")}"', text(wrapper)), name


# Commands, scripts, failpoints, files --------------------------------------------------------------


def commands_of(group: click.Command, path: str = "fleet") -> Iterator[str]:
    if isinstance(group, click.Group):
        if group.invoke_without_command:
            yield path
        for name, command in group.commands.items():
            yield from commands_of(command, f"{path} {name}")
    else:
        yield path


def test_every_command_is_described() -> None:
    described = "; ".join(first_column("docs/operate.md", "Commands"))
    assert set(re.findall(r"`?(fleet(?: [a-z]+)+)`?", described)) == set(commands_of(fleet))


def test_every_command_that_is_named_exists() -> None:
    known = {f"fleet {name}" for name in fleet.commands}
    for page in OURS:
        for named in re.findall(
            r"(?:`|bin/|^)fleet ([a-z]+)", text(page).replace("fleet\ndoctor", "fleet doctor"), re.M
        ):
            assert f"fleet {named}" in known, (page, named)


def test_every_option_that_is_named_beside_a_command_exists() -> None:
    for page in OURS:
        for line in text(page).splitlines():
            for name, rest in re.findall(r"(?:`|bin/|^)fleet ([a-z]+)([^`]*)", line):
                command = fleet.commands[name]
                commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
                options = {option for one in commands for parameter in one.params for option in parameter.opts}
                assert set(re.findall(r"(?<= )--[a-z-]+", rest)) <= options | {"--help"}, (page, line)


def test_every_script_of_the_folder_is_described_and_every_one_that_is_named_exists() -> None:
    there = {file.name for file in (ROOT / "scripts").iterdir() if file.is_file()}
    assert set(re.findall(r"`?\./scripts/([a-z]+)", text("README.md"))) == there
    named = {name for page in OURS for name in re.findall(r"\bscripts/([a-z]+)", text(page))}
    assert named - there == set()


def test_every_failpoint_is_described() -> None:
    described = first_column("docs/operate.md", "Failpoints")
    assert sorted(described) == sorted(failpoint.NAMES)
    assert set(
        re.findall(r"`([a-z-]+)`", section("ARCHITECTURE.md", "The states of an entry, and a crash at each edge"))
    ) >= {name for name in failpoint.NAMES if not name.startswith("feed-")} - {"owned", "fenced-pools"}
    assert set(re.findall(r"`(feed-[a-z]+)`", section("docs/pipeline.md", "An epoch, and what a crash costs"))) == {
        name for name in failpoint.NAMES if name.startswith("feed-")
    }


@pytest.mark.parametrize("page", OURS)
def test_every_file_that_is_named_exists(page: str) -> None:
    named = set(re.findall(r"`((?:[a-z]+/)+[\w@./-]*)`", text(page)))
    folders = {
        "",
        "coordinator",
        "fleet/state",
        "fleet/state/lua",
    }  # a sentence that has named the folder names the file alone
    for name in named - {"redis/"}:
        assert any((ROOT / folder / name).exists() for folder in folders), name


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/glossary.md"])
def test_every_file_is_named_by_its_whole_path(page: str) -> None:
    """A script alone by its name: all of them are in one folder."""
    lua = ROOT / "fleet/state/lua"
    for name in re.findall(r"`([\w./-]+(?:/|\.(?:py|lua|md|toml)))`", text(page)):
        in_folders = (ROOT / name, lua / name, lua / "with" / name)
        assert any(path.exists() for path in (in_folders if name.endswith(".lua") else in_folders[:1])), name


def test_a_word_of_the_glossary_means_one_thing_and_lives_in_one_file() -> None:
    words = rows(text("docs/glossary.md"))
    assert [word for word, times in Counter(row[0] for row in words).items() if times > 1] == []
    assert [row for row in words if not (ROOT / row[2]).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_line_of_prose_is_no_longer_than_a_hand_is_wide(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.MULTILINE | re.DOTALL)
    # The notes below a table that a suite prints are a line each.
    assert [line for line in prose.splitlines() if len(line) > 140 and not re.match(r"\||\d+\. ", line)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", text(page)):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if file.suffix == ".md" else []
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, target


@pytest.mark.parametrize("page", PAGES)
def test_no_page_promises_what_cannot_be_kept(page: str) -> None:
    assert not re.search(r"exactly[- ]once", text(page), re.IGNORECASE)


def test_the_promise_is_the_same_wherever_it_is_made() -> None:
    promise = (
        "At-least-once; in order per group (where the source keeps groups, or with `onFailure: hold`, across batches"
        " too); at most one delivery in progress per group; duplicates bounded by what was in flight at a crash."
    )
    for page in ("README.md", "docs/order.md"):
        assert promise in " ".join(text(page).split())


def test_everything_that_deploy_holds_is_described() -> None:
    pages = "".join(text(page) for page in OURS)
    for file in (ROOT / "deploy").iterdir():
        assert f"deploy/{file.name}" in pages or file.suffix == ".target", file.name


def test_the_table_of_the_sources_is_the_one_that_their_suite_prints() -> None:
    """Made by `python -m tests.conformance.table`; a fact that fails turns the suite red."""
    assert promised() in text("docs/sources.md")


def test_the_budgets_of_the_benchmark_are_those_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    scenarios = {one.name: one for one in importlib.import_module("benchmark.cli").scenarios()}
    stated: dict[str, str] = {}
    name = ""
    for row in rows(section("docs/benchmark.md", "Results")):
        name = row[0] or name  # a row without one is more of the one above
        stated[name] = f"{stated.get(name, '')}, {row[4]}"
    assert stated.keys() == scenarios.keys()
    for name, scenario in scenarios.items():
        lines = [
            f"{sign} {value:,g}"
            for budget in scenario.budgets
            for sign, value in (("≥", budget.at_least), ("≤", budget.at_most), ("aim", budget.aim))
            if value is not None
        ]
        assert set(re.findall(r"[≥≤] [\d.,]*\d|aim [\d.]*\d", stated[name])) == set(lines), name
