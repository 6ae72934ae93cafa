"""How the values of options are read: times, durations, rates."""

import math

import click

from outboxd.explain import words

RATES = (0.001, 1_000_000.0)


def read_when(_ctx: click.Context, _param: click.Parameter, text: str | None) -> words.When | None:
    """A time, as words.read_when has it."""
    if text is None:
        return None
    try:
        return words.read_when(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_duration(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int:
    """`10m`, `1h30m`, `1.5d`, in milliseconds; 0 without it."""
    found = 0 if text is None else words.duration_ms(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no duration: write 500ms, 10m, 1h30m or 2d")
    if found > words.LONGEST_MS:
        raise click.BadParameter(f"{text!r} is too long: {words.LONGEST_MS // 86_400_000}d at most")
    return found


def read_age(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """A duration above zero, in milliseconds; None without it."""
    if text is None:
        return None
    found = read_duration(ctx, param, text)
    if not found:
        raise click.BadParameter(f"{text!r} is not above zero: write 500ms, 10m, 1h30m or 2d")
    return found


def read_rate(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """So many a second, within RATES."""
    if text is None:
        return None
    least, most = RATES
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not least <= rate <= most:  # nan neither
        raise click.BadParameter(f"{text!r} is no rate: write a number from {least:g} to {most:,.0f} (a second)")
    return rate
