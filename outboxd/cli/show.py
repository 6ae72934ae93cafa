"""Output: tables, drawn by rich on a terminal and aligned by spaces elsewhere; JSON for programs."""

import shutil
import sys
from collections.abc import Iterable, Sequence

import click
import msgspec

from outboxd.redact import clip

LONGEST_CELL = 1000
LONGEST_LINE = 10_000
GAP = 2
LEAST_LAST = 16
"""Columns that a table's last one must have on a terminal."""


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
    """A table; columns named in `numbers` are set to the right. The last one may be long: on a terminal it is wrapped,
    and one row is a paragraph where even that does not fit; in a pipe a row is always one line.
    """
    cells = [[clip(cell, LONGEST_CELL) for cell in row] for row in rows]
    if not is_terminal():
        click.echo("\n".join(plain(titles, cells, frozenset(numbers))))
    elif sum(widths(titles, cells)[:-1]) + GAP * (len(titles) - 1) + LEAST_LAST <= shutil.get_terminal_size().columns:
        _draw(titles, cells, frozenset(numbers))
    else:
        click.echo("\n\n".join(paragraph(titles, row) for row in cells))


def widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Of the columns, in characters."""
    return [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]


def plain(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]) -> list[str]:
    """The table as lines, with two spaces between columns."""
    lines = []
    for row in (titles, *rows):
        parts = zip(titles, row, widths(titles, rows), strict=True)
        aligned = [cell.rjust(width) if title in numbers else cell.ljust(width) for title, cell, width in parts]
        lines.append((" " * GAP).join(aligned).rstrip())
    return lines


def paragraph(titles: Sequence[str], row: Sequence[str]) -> str:
    """One row, a line for each cell."""
    return "\n".join(f"{title}: {cell}" for title, cell in zip(titles, row, strict=True))


def _draw(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for title in titles:
        is_last = title == titles[-1]
        drawn.add_column(title, justify="right" if title in numbers else "left", no_wrap=not is_last, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(drawn)
