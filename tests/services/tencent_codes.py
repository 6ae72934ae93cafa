"""The published table of Tencent IM's error codes, by what each asks for; a range is written as its ends."""

from collections.abc import Mapping, Sequence

TABLE: Mapping[str, Sequence[int | tuple[int, int]]] = {
    "success": (0, 10013, 10024, 10025),
    "retry": (
        10002, 10056, 20004, 20005, 40006, 60013, 60014, 70169, 70500, 90992, 90994, 90995, 91000,
    ),
    "throttled": (10006, 10023, 60018, 60019),
    "wait": (70050,),
    "re-sign": (10008, 70001, 70052),
    "import": (10019, 20003, 70107, 90012, 90048),
    "misconfigured": (
        10007, 10026, (60002, 60012), 60015, 60016, 60017, 60020, 60021, (70002, 70016), 70020, 70403, 90009,
    ),
    "permanent": (
        10003, 10004, 10005, 10010, 10011, 10012, 10014, 10015, 10016, 10017, 10018, 10021, 10036, 10037, 10038, 20006,
        20009, 20010, 20011, 20012, 70051, 70114, 70398, 70399, 70402, 80001, 80002, (90001, 90008), 90010, 90026,
        93000, 120001, 125000, 130000,
    ),
}  # fmt: skip
"""Of the range 120001 to 130000 (codes that the app's own callback chooses) the ends and one between."""


def numbers(kind: str) -> list[int]:
    """All codes of a kind."""
    found: list[int] = []
    for entry in TABLE[kind]:
        found += range(entry[0], entry[1] + 1) if isinstance(entry, tuple) else [entry]
    return found
