"""The journal's file: whole lines, and a torn last one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.errors import FleetError
from fleet.operate.journal import End, Journal, SentRecord, Start, read


def test_records_are_read_back_as_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", now_ms=iter([1.5, 2.5, 3.0]).__next__)
    journal.sent("a", "g", 1)
    journal.start("a", "g", epoch=7)
    journal.end("a", None, epoch=None, status=200)
    assert list(read(tmp_path / "j")) == [
        SentRecord("a", "g", 1, 1.5),
        Start("a", "g", 7, 2.5),
        End("a", None, None, 200, 3),
    ]
    journal.close()


def test_a_line_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", now_ms=iter([1.5, 2.5, 3.0]).__next__)
    journal.sent("a", "g", 1)
    journal.start("a", "g", epoch=7)
    journal.end("a", "g", epoch=7, status=412)
    journal.close()
    assert [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()] == [
        {"kind": "sent", "id": "a", "group": "g", "seq": 1, "t": 1.5},
        {"kind": "start", "id": "a", "group": "g", "epoch": 7, "status": None, "t": 2.5},
        {"kind": "end", "id": "a", "group": "g", "epoch": 7, "status": 412, "t": 3.0},
    ]


def test_a_pool_that_is_known_is_in_the_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.sent("a", "g", 1, pool="P")
    journal.start("a", "g", epoch=7, pool="P")
    journal.end("a", "g", epoch=7, status=200, pool="P")
    journal.close()
    assert [json.loads(line)["pool"] for line in (tmp_path / "j").read_text().splitlines()] == ["P"] * 3
    assert [record.pool for record in read(tmp_path / "j")] == ["P"] * 3


def test_an_unbuffered_record_is_in_the_file_at_once_and_a_buffered_one_after_flush(tmp_path: Path) -> None:
    direct, buffered = Journal(tmp_path / "d"), Journal(tmp_path / "b", buffer_bytes=10_000)
    for journal in (direct, buffered):
        journal.sent("a", "g", 1)
    assert len(list(read(tmp_path / "d"))) == 1
    assert len(list(read(tmp_path / "b"))) == 0
    buffered.flush()
    assert len(list(read(tmp_path / "b"))) == 1
    for number in range(1000):
        buffered.sent(str(number), "g", number)
    assert (tmp_path / "b").stat().st_size > 10_000
    for journal in (direct, buffered):
        journal.close()
        journal.close()
    assert len(list(read(tmp_path / "b"))) == 1001


def test_two_writers_append_to_one_file(tmp_path: Path) -> None:
    one, two = Journal(tmp_path / "j"), Journal(tmp_path / "j")
    for number in range(100):
        (one, two)[number % 2].sent(str(number), "g", number)
    assert [record.id for record in read(tmp_path / "j")] == [str(number) for number in range(100)]
    one.close()
    two.close()


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_a_torn_last_line_is_passed_over_and_cut_when_writing_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    for number in range(200):
        journal.sent(str(number), "g", number)
    journal.close()
    path.write_bytes(path.read_bytes()[:-cut])
    whole = 200 if cut == 1 else 199  # without its newline only, the last record is readable but not yet written
    assert len(list(read(path))) == whole
    again = Journal(path)
    again.sent("later", "g", 201)
    again.close()
    assert [record.id for record in read(path)][-2:] == ["198", "later"]


def test_a_file_of_one_torn_line_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"x" * 10_000)
    assert list(read(path)) == []
    Journal(path).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b'{"kind":"sent"}\n', b"\xff\n", b'{"kind":"other"}\n'])
def test_a_damaged_line_elsewhere_is_an_error_that_names_it(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    journal.sent("a", "g", 1)
    journal.close()
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(FleetError, match="line 2 is not a journal record"):
        list(read(path))
