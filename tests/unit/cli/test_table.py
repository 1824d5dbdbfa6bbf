"""Tables on a terminal and in a pipe."""

from __future__ import annotations

import sys

import pytest

from fleet.cli.table import show_table

MESSAGE = "queue orders cannot be read, as its host does not answer: " + " ".join(f"word{n}" for n in range(40))


def shown(capsys: pytest.CaptureFixture[str], *, prose: bool) -> list[str]:
    rows = [("0643ecb4cbd1f7a90c", 3, MESSAGE), ("0643ecb4cbd1f7a90d", 1, "short")]
    show_table(("ID", "TIMES", "MESSAGE"), rows, empty="", ends_in_prose=prose)
    return capsys.readouterr().out.splitlines()


def test_prose_in_a_pipe_is_whole_and_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(capsys, prose=True)
    assert len(lines) == 3
    assert lines[1].endswith(f"  {MESSAGE}")


@pytest.mark.parametrize("columns", [80, 200])
def test_prose_on_a_terminal_goes_on_below_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    title, first, *more, last = shown(capsys, prose=True)
    at = title.index("MESSAGE")
    assert all(len(line) <= columns for line in (first, *more))
    assert all(line[:at].isspace() for line in more)
    assert " ".join(line[at:] for line in (first, *more)) == MESSAGE
    assert last[at:] == "short"


def test_what_strangers_sent_breaks_no_row_and_does_not_write_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_table(("DATA", "MORE"), [("a\nb\tc\x1b[31m\0", ["\x9b2J", "e\u0301\u4e2d"])], empty="")
    assert capsys.readouterr().out.splitlines()[1] == "a b c\\x1b[31m\\x00  \\x9b2J, e\u0301\u4e2d"


def test_names_are_cut_to_the_width(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, shown(capsys, prose=False))) == 80
