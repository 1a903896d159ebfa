"""What was found, in the order of the areas."""

from __future__ import annotations

from dataclasses import dataclass, field

STATES = ("ok", "note", "warning", "problem")


@dataclass
class Finding:
    """One line; `more` are details below it."""

    area: str
    state: str
    text: str
    more: list[str] = field(default_factory=list)


class Findings:
    """A list of findings with words for a terminal and for programs."""

    def __init__(self) -> None:
        self._all: list[Finding] = []

    def add(self, area: str, state: str, text: str, more: list[str] | None = None) -> None:
        """Add one; `state` is ok, note, warning or problem."""
        assert state in STATES
        self._all.append(Finding(area, state, text, more or []))

    def counts(self) -> dict[str, int]:
        """How many there are of each state."""
        return {state: sum(f.state == state for f in self._all) for state in STATES}

    def as_json(self) -> list[dict[str, object]]:
        """All of them, as plain values."""
        return [{"area": f.area, "state": f.state, "text": f.text, "more": f.more} for f in self._all]

    def as_text(self) -> str:
        """A block per area. Control characters are shown, not sent to the terminal."""
        lines: list[str] = []
        area = ""
        for f in self._all:
            if f.area != area:
                lines += ([""] if lines else []) + [f.area]
                area = f.area
            lines.append(f"  {f.state:<8} {visible(f.text)}")
            lines += [f"           {visible(text)}" for text in f.more]
        return "\n".join(lines) + "\n"


def visible(text: str) -> str:
    """The text with control characters and bidirectional overrides written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def size(count: float) -> str:
    """Bytes for people: "3.2 MB"."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
