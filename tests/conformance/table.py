"""Source × fact: what each kind of queue was seen to do, and what it cannot."""

from __future__ import annotations

from collections.abc import Mapping

from tests.conformance.kits import KITS


class Table:
    """Filled while the suite runs: `yes` was seen, `NO` was not, a number leads to why the queue cannot."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, str]] = {}
        self._seen: dict[tuple[str, str], bool] = {}

    def expect(self, fact: str, reasons: Mapping[str, str]) -> None:
        self.facts[fact] = dict(reasons)

    def note(self, fact: str, kind: str, *, passed: bool) -> None:
        """A fact that is tried with several values holds when it holds with each."""
        self._seen[fact, kind] = self._seen.get((fact, kind), True) and passed

    def text(self) -> str:
        notes: list[str] = []

        def cell(fact: str, kind: str) -> str:
            reason = self.facts[fact][kind]
            if reason:
                if reason not in notes:
                    notes.append(reason)
                return f"no ({notes.index(reason) + 1})"
            passed = self._seen.get((fact, kind))
            return "not run" if passed is None else "yes" if passed else "NO"

        titles = [kit.title for kit in KITS.values()]
        rows = [f"| fact | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
        rows += [
            f"| {fact.replace('_', ' ')} | {' | '.join(cell(fact, kind) for kind in KITS)} |" for fact in self.facts
        ]
        if notes:
            rows += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
        return "\n".join(rows)
