"""
What a person and a script read: standard output for the answer, standard error for everything else.

Ids, reasons and evidence come from outside and are hostile text: control characters are shown, never sent to a
terminal, and nothing is read as markup.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from integrations.cli.given import Given
from journal.names import shown, shown_json
from journal.words import Evidence

PIPED_WIDTH = 160
"""Columns when nobody's terminal says how many: wide enough that rows stay lines."""

LAST = 24
"""Columns that a table's last cell needs at least; with less, the table is told row by row."""

_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")

STYLES = {
    "applied": "green", "advanced": "green", "done": "green", "converge": "green", "ours": "green", "ok": "green",
    "open": "yellow", "in_doubt": "yellow", "waiting": "yellow", "wait": "yellow", "unknown": "yellow",
    "note": "yellow",
    "parked": "red", "park": "red", "halt": "red", "conflict": "red", "lost": "red", "reclaimed": "red", "fault": "red",
    "rolled_back": "red", "rejected": "red", "canceled": "red",
}  # fmt: skip


def visible(text: str) -> Text:
    """Hostile text as what it is: no escape sequence, no direction mark, no markup."""
    return Text(_INVISIBLE.sub(lambda m: f"\\u{ord(m[0]):04x}", text))


class Output:
    """Standard output in the form that was asked for."""

    def __init__(self, given: Given) -> None:
        terminal = sys.stdout.isatty()
        width = None if terminal or os.environ.get("COLUMNS") else PIPED_WIDTH
        self.json = given.json
        self.console = Console(
            no_color=not given.color or None, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False
        )

    @property
    def terminal(self) -> bool:
        return self.console.is_terminal

    def document(self, data: Any) -> None:
        """One JSON document."""
        self.raw(shown_json(orjson.dumps(data, option=orjson.OPT_INDENT_2, default=str).decode()))

    def line(self, data: Any) -> None:
        """One JSON line of a stream, at once."""
        self.raw(shown_json(orjson.dumps(data, default=str).decode()))

    def raw(self, text: str) -> None:
        """Text exactly as it is."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def say(self, text: str | Text, style: str = "") -> None:
        """One line for a person."""
        shown_text = text if isinstance(text, Text) else visible(text)
        if style:
            shown_text.stylize(STYLES.get(style, style))
        self.console.print(shown_text, soft_wrap=not self.terminal)

    def head(self, text: str) -> None:
        """A title above what follows."""
        self.console.print()
        self.console.print(visible(text), style=Style(bold=True))

    def item(self, text: str) -> None:
        """A paragraph of a list, wrapped behind its mark."""
        if self.terminal:
            self.console.print(Padding(visible(text), (0, 0, 0, 2)))
        else:
            self.console.print(visible(f"  {text}"), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Rows in columns, or row by row where the terminal is too narrow for that: no word is torn."""
        rows = [tuple(row) for row in rows]
        if not _fits(columns, rows, self.console.width):
            for row in rows:
                self._record(columns, row)
            return
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for place, name in enumerate(columns):
            last = place == len(columns) - 1
            table.add_column(name, overflow="fold", ratio=None, no_wrap=not last and len(name) < 4)
        for row in rows:
            table.add_row(*(_cell(cell) for cell in row))
        self.console.print(table)

    def _record(self, columns: Sequence[str], row: Sequence[object]) -> None:
        """One row as lines of `name value`, broken between them; what follows the first line is set in."""
        line = Text()
        for place, (name, value) in enumerate(zip(columns, row, strict=True)):
            cell = _cell(value)
            if not cell.plain:
                continue
            part = Text.assemble((f"{name} ", "dim"), cell, style="bold" if not place else "")
            if line.plain.strip() and line.cell_len + part.cell_len > self.console.width:
                line.rstrip()
                self.console.print(line)
                line = Text("  ")
            line = Text.assemble(line, part, "  ")
        line.rstrip()
        if line.cell_len <= self.console.width:
            self.console.print(line)
        else:
            self.console.print(Padding(Text(line.plain.strip()), (0, 0, 0, 2)))


def _fits(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> bool:
    """Every column but the last in full, and the last one either in full or wide enough to be read."""
    if not rows:
        return True
    widest = [max(len(str(cell)) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    *others, last = widest
    return sum(others) + 2 * len(others) + min(last, LAST) <= width


def _cell(value: object) -> Text:
    text = visible(str(value))
    if style := STYLES.get(str(value)):
        text.stylize(style)
    return text


def complain(text: str) -> None:
    """One line on standard error."""
    # Already made of escaped parts where it quotes anybody; a line break would make it two.
    line = _INVISIBLE.sub(lambda m: " " if m[0] in "\n\t" else f"\\u{ord(m[0]):04x}", text)
    sys.stderr.write(f"journal: {line}\n")


def moment(at_us: int, *, day_of_us: int = 0) -> str:
    """Microseconds since 1970 as a time in UTC, without its day if that is the day of another; empty for never."""
    if not at_us:
        return ""
    try:
        then = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    except OverflowError:
        return str(at_us)
    same = day_of_us and at_us // 86_400_000_000 == day_of_us // 86_400_000_000
    return then.strftime("%H:%M:%SZ" if same else "%Y-%m-%d %H:%M:%SZ")


def lasted(start_us: int, end_us: int) -> str:
    """A duration in the largest unit that tells something; empty if it has no end."""
    if not start_us or not end_us:
        return ""
    us = max(0, end_us - start_us)
    for size, unit in ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s")):
        if us >= size:
            return f"{us / size:.1f} {unit}"
    return f"{us // 1000} ms"


def seen(evidence: Evidence, limit: int = 12) -> str:
    """Evidence in one line, with long hashes cut."""
    return " ".join(f"{name}={_short(value)}" for name, value in evidence[:limit])


def _short(value: object) -> str:
    text = str(value)
    if match := re.fullmatch(r"((?:sha256:|[0-9]{1,19}:)?[0-9a-f]{12})[0-9a-f]{20,52}", text):
        return match[1] + "…"
    return shown(text, 100) if _INVISIBLE.search(text) else text if len(text) <= 100 else text[:99] + "…"
