"""Params of the built-in handlers: a JSON object, or nothing."""

from typing import TypeVar

import msgspec

from outboxd.errors import JobFailed

Params = TypeVar("Params", bound=msgspec.Struct)


def read_params(text: str, kind: type[Params]) -> Params:
    """What the object says; empty text is an empty object. Raises JobFailed for what cannot be used, unknown keys too.

    kind: forbids unknown fields.
    """
    try:
        return msgspec.json.decode(text.strip() or "{}", type=kind)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        names = ", ".join(kind.__struct_encode_fields__)
        advice = f"known here: {names}" if names else "this handler takes none, leave them empty"
        raise JobFailed(f"params cannot be used: {error}; {advice}") from error
