"""Output: tables, drawn by rich on a terminal and aligned by spaces elsewhere; JSON for programs."""

import sys
from collections.abc import Iterable, Sequence

import click
import msgspec

from outboxd.redact import clip

LONGEST_CELL = 1000
LONGEST_LINE = 10_000


def is_terminal() -> bool:
    """Does a person look at standard output?"""
    return sys.stdout.isatty()


def line(text: str = "") -> None:
    """One line of text; what could move a terminal's cursor or change its colours is shown as an escape."""
    click.echo(clip(text, LONGEST_LINE))


def as_json(value: object) -> None:
    """One JSON document on one line."""
    click.echo(msgspec.json.encode(value).decode())


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()) -> None:
    """A table; columns named in `numbers` are set to the right. In a pipe no cell is shortened."""
    cells = [[clip(cell, LONGEST_CELL) for cell in row] for row in rows]
    if is_terminal():
        _draw(titles, cells, frozenset(numbers))
    else:
        click.echo("\n".join(plain(titles, cells, frozenset(numbers))))


def plain(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]) -> list[str]:
    """The table as lines, with two spaces between columns."""
    widths = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    lines = []
    for row in (titles, *rows):
        parts = zip(titles, row, widths, strict=True)
        aligned = [cell.rjust(width) if title in numbers else cell.ljust(width) for title, cell, width in parts]
        lines.append("  ".join(aligned).rstrip())
    return lines


def _draw(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        drawn.add_column(title, justify="right" if title in numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(drawn)
