"""Handlers of jobs: how they are registered, found and called."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import outboxd.jobs
from outboxd.errors import HandlerError, JobFailed
from outboxd.jobs import Context, registry
from outboxd.jobs.registry import load_handlers
from outboxd.jobs.targets import run_target
from outboxd.redact import register
from outboxd.schedule.records import Job
from tests.services.job_modules import load_in_process, registering, write_module

RULE = "write a letter or _, then letters, digits and _ . -, at most 64 characters"
ADVICE = "is its folder on PYTHONPATH?"
BUILT_IN = ["HelloWorld", "LogClean", "OutboxClean", "SendSms"]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone afterwards, and what other modules have registered is not seen here."""
    load_handlers(())
    monkeypatch.setattr(registry, "_registered", {name: registry.registered()[name] for name in BUILT_IN})


def job(url: str, params: str = "") -> Job:
    return Job(id=7, name="nightly", cron_expression="0 0 * * * *", url=url, params=params)


CONTEXT = Context(job_id=7, job_name="nightly", fire_at_ms=5, node_id="node-a")


def call(url: str, params: str = "") -> str:
    return run_target(job(url, params), CONTEXT)


def failure(url: str, params: str = "") -> str:
    with pytest.raises(JobFailed) as failed:
        call(url, params)
    return str(failed.value)


def test_a_handler_gets_the_run_and_the_params_as_they_are() -> None:
    """And what it returns is what the log keeps."""
    seen: list[tuple[Context, str]] = []

    @outboxd.jobs.handler("Report")
    def report(context: Context, params: str) -> str:
        seen.append((context, params))
        return "412 rooms"

    assert call("Report", " not JSON ") == "412 rooms"
    assert seen == [(CONTEXT, " not JSON ")]
    assert report(CONTEXT, "") == "412 rooms", "a handler can be called by its own tests"


def test_a_handler_can_ask_whether_to_stop_and_sleep_until_then() -> None:
    """A wait ends when it is time."""
    stop = threading.Event()
    context = Context(job_id=1, job_name="a", fire_at_ms=1, stop=stop)
    assert not context.should_stop()
    threading.Timer(0.05, stop.set).start()
    context.wait(60)
    assert context.should_stop()


@pytest.mark.parametrize(("result", "kept"), [("", ""), (None, ""), ("a\nb", "a\\nb"), ("x" * 5000, "x" * 1000)])
def test_of_a_result_1000_characters_are_kept_on_one_line(result: str | None, kept: str) -> None:
    """Nothing is a result as well."""
    outboxd.jobs.handler("Long")(lambda context, params: result)
    assert call("Long") == kept


def test_secrets_are_kept_neither_of_a_result_nor_of_an_error() -> None:
    """As everywhere in the log."""
    register(["parrot-of-jobs-3"])

    @outboxd.jobs.handler("Leaks")
    def leaks(context: Context, params: str) -> str:
        if params:
            raise ValueError("the key parrot-of-jobs-3 is refused by https://tom:x9y9@host/path?key=1")
        return "the key is parrot-of-jobs-3"

    assert call("Leaks") == "the key is ***"
    assert failure("Leaks", "x") == "ValueError: the key *** is refused by https://***@host/path?***"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("why"), "ValueError: why"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (RecursionError("deep"), "RecursionError: deep"),
        (Unspeakable(), "Unspeakable"),
        (JobFailed("in plain words"), "in plain words"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 988),
    ],
)
def test_whatever_a_handler_raises_is_a_failure_with_its_reason(error: BaseException, reason: str) -> None:
    """Nothing it raises ends the thread, or the role."""

    @outboxd.jobs.handler("Fails")
    def fails(context: Context, params: str) -> str:
        raise error

    assert failure("Fails") == reason


async def asleep() -> str:
    await asyncio.sleep(0)
    return "done"


@pytest.mark.parametrize(
    ("make", "name"), [(lambda: 5, "int"), (lambda: b"done", "bytes"), (asleep, "coroutine"), (dict, "dict")]
)
def test_a_result_that_is_no_text_is_a_failure(make: Callable[[], object], name: str) -> None:
    """It may stand for work that is still to be done."""
    outboxd.jobs.handler("Odd")(lambda context, params: make())  # type: ignore[arg-type,return-value]
    assert failure("Odd") == f"the handler Odd returned {name}, it must return a text or nothing"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("logclean", "did you mean LogClean?"),
        ("OutboxCleaner", "did you mean OutboxClean?"),
        ("Zzz", "known here: HelloWorld, LogClean, OutboxClean, SendSms"),
        ("", "known here: "),
        ("ftp://host/file", "known here: "),
    ],
)
def test_an_unknown_handler_fails_and_near_ones_are_named(url: str, words: str) -> None:
    """So that a slip of the pen is seen in the job log."""
    assert failure(url).startswith(f"no local handler named {url!r}; {words}")


def test_of_many_known_handlers_a_few_are_named() -> None:
    """The reason stays short."""
    for number in range(20):
        outboxd.jobs.handler(f"A{number:02}")(lambda context, params: "")
    assert failure("Zzz").endswith("known here: A00, A01, A02, A03, A04, A05, A06, A07 and 16 more")


@pytest.mark.parametrize("name", ["a", "_a", "Report", "shop.nightly-2_x", "x" * 64])
def test_names_that_may_be_registered(name: str) -> None:
    """As identifiers are written, with dots and dashes."""
    outboxd.jobs.handler(name)(lambda context, params: "done")
    assert call(name) == "done"


@pytest.mark.parametrize("name", ["", "1a", ".a", "-a", "a b", "a/b", "ü", "a\n", "x" * 65, "http://a"])
def test_names_that_may_not_be_registered(name: str) -> None:
    """None can look like a URL."""
    with pytest.raises(HandlerError, match="cannot name a handler: write a letter or _, then letters"):
        outboxd.jobs.handler(name)


@pytest.mark.parametrize("name", [*BUILT_IN, "Mine"])
def test_a_name_cannot_be_registered_twice(name: str) -> None:
    """The first one stays, whichever module it is in."""
    mine = outboxd.jobs.handler("Mine")(lambda context, params: "first")
    with pytest.raises(HandlerError, match=rf"the handler {name} is registered twice, \S+ has it already"):
        outboxd.jobs.handler(name)(lambda context, params: "second")
    assert registry.registered()["Mine"] is mine


def test_what_returns_before_its_work_is_done_cannot_be_registered() -> None:
    """Its run would succeed without a thing done."""

    async def coroutine(context: Context, params: str) -> str:
        return "done"

    def generator(context: Context, params: str) -> Iterator[str]:
        yield "done"

    for function in (coroutine, generator, "text"):
        with pytest.raises(HandlerError, match="must be a plain function, not async and no generator"):
            outboxd.jobs.handler("Early")(function)  # type: ignore[arg-type]


def test_modules_are_imported_and_their_handlers_are_there(tmp_path: Path) -> None:
    """Beside the built-in ones."""
    first = write_module(tmp_path, "first_jobs", registering("Zebra"), registering("Ape"))
    second = write_module(tmp_path, "second_jobs", registering("Bear"))
    run = load_in_process(tmp_path, first, second)
    assert (run.returncode, run.stdout.split()) == (0, ["Ape", "Bear", *BUILT_IN, "Zebra"]), run.stderr


def test_everything_that_is_wrong_with_modules_is_told_at_once(tmp_path: Path) -> None:
    """With the module and the reason. A module that ends the process while it is imported does not."""
    good = write_module(tmp_path, "good_jobs", registering("Report"))
    bad = [
        write_module(tmp_path, "twice_jobs", registering("Report")),
        write_module(tmp_path, "ours_jobs", registering("LogClean")),
        write_module(tmp_path, "broken_jobs", "1 / 0"),
        write_module(tmp_path, "syntax_jobs", "def"),
        write_module(tmp_path, "leaving_jobs", "raise SystemExit(0)"),
        write_module(tmp_path, "spaced_jobs", registering("two words")),
        "missing_jobs",
    ]
    run = load_in_process(tmp_path, good, *bad)
    told = run.stderr.strip().splitlines()[-1].removeprefix("outboxd.errors.HandlerError: ").split("; jobs.handlers: ")
    assert [line.removeprefix("jobs.handlers: ") for line in told] == [
        "twice_jobs: the handler Report is registered twice, good_jobs has it already",
        "ours_jobs: the handler LogClean is registered twice, outboxd.jobs.handlers.log_clean has it already",
        "broken_jobs cannot be imported: ZeroDivisionError: division by zero",
        "syntax_jobs cannot be imported: SyntaxError: invalid syntax (syntax_jobs.py, line 3)",
        "leaving_jobs cannot be imported: SystemExit: 0",
        f"spaced_jobs: 'two words' cannot name a handler: {RULE}",
        f"missing_jobs cannot be imported: ModuleNotFoundError: No module named 'missing_jobs'; {ADVICE}",
    ]


def test_the_handlers_for_trying_out() -> None:
    """HelloWorld greets, SendSms records and sends nothing."""
    assert call("HelloWorld") == "Hello, world! This is nightly on node-a."
    assert call("HelloWorld", " Ada ") == "Hello, Ada!"
    assert call("SendSms", '{"to": "+49"}') == (
        'no text message was sent, the parameters are only recorded: {"to": "+49"}'
    )
    assert call("SendSms") == "no text message was sent, the parameters are only recorded: none"


def test_a_handler_without_a_name_is_refused() -> None:
    """`@handler` instead of `@handler("Name")`."""
    with pytest.raises(HandlerError, match=r'write @outboxd.jobs.handler\("Name"\)'):
        outboxd.jobs.handler(lambda context, params: None)
