"""What is written to Redis for a batch of commands."""

from redis.connection import Connection

from outboxd.publishers.redis_pipe import WRITE_BYTES, Command, packed


def test_commands_are_written_as_the_client_library_would() -> None:
    """Whatever their length and their words: text and bytes, empty, many alike, one that differs, a single word."""
    head = ("XADD", "stream-é", "MAXLEN", "~", "1000", "*", b"m")
    commands: list[Command] = [(*head, b"%d" % number) for number in range(1000)]
    commands += [("MULTI",), ("ZADD", "key", "NX", "17", "text ü"), ("XADD", "other", "*", b"m", b""), ("EXEC",)]
    assert b"".join(packed(commands)) == b"".join(Connection().pack_commands(commands))


def test_a_batch_is_one_write_and_a_large_one_is_never_whole_in_memory_twice() -> None:
    """G9: what is put together for one write is bounded, save that a single command is never divided."""
    assert len(list(packed([("XADD", "s", "*", b"m", b"x" * 400)] * 500))) == 1
    large = [("XADD", "s", "*", b"m", b"x" * (WRITE_BYTES // 2))] * 10
    sizes = [len(piece) for piece in packed(large)]
    assert len(sizes) == 5
    assert max(sizes) < 2 * WRITE_BYTES


def test_nothing_is_written_for_no_commands() -> None:
    assert list(packed([])) == []
