"""Outcomes from a client's threads: each event once, by its deadline."""

import select
import threading
import time

from outboxd.event import CONNECT, DELIVERED, TIMEOUT, Retry
from outboxd.publishers.mailbox import GIVEN_UP, Mailbox
from tests.services.publishing import make_event


def test_what_a_thread_drops_wakes_the_loop_and_comes_out_once() -> None:
    mailbox = Mailbox()
    event = make_event()
    call = mailbox.add(event, time.monotonic() + 30)
    threading.Thread(target=lambda: mailbox.drop_all([(call, DELIVERED), (call, DELIVERED)])).start()
    (bell,) = mailbox.wait_on().read
    assert select.select([bell], [], [], 10)[0]
    assert mailbox.collect() == [(event, DELIVERED)]
    assert mailbox.collect() == []
    mailbox.close()


def test_a_callback_that_never_comes_is_given_up_at_the_deadline() -> None:
    """G4: and what it says afterwards changes nothing."""
    mailbox = Mailbox()
    event = make_event()
    call = mailbox.add(event, time.monotonic() - 0.001)
    assert mailbox.collect() == [(event, GIVEN_UP)]
    mailbox.drop(call, DELIVERED)
    assert mailbox.collect() == []
    mailbox.close()


def test_an_excuse_holds_for_what_is_in_flight_and_for_nothing_later() -> None:
    """G6: time that an outage took is the outage's; what comes after it is on its own."""
    mailbox = Mailbox()
    during, after = make_event(), make_event()
    away = Retry(CONNECT, "refused", counted=False)
    mailbox.add(during, time.monotonic() - 0.001)
    mailbox.excuse(away)
    mailbox.add(after, time.monotonic() - 0.001)
    assert mailbox.collect() == [(during, away), (after, GIVEN_UP)]
    mailbox.close()


def test_each_event_has_a_deadline_of_its_own_in_whatever_order_they_come() -> None:
    mailbox = Mailbox()
    now_s = time.monotonic()
    late = Retry(TIMEOUT, "not even begun", counted=False)
    for after_s in (60.0, -1.0, 30.0):
        mailbox.add(make_event(), now_s + after_s, late)
    assert mailbox.wait_on().until_s == now_s - 1.0
    assert [outcome for _, outcome in mailbox.collect()] == [late]
    assert mailbox.wait_on().until_s == now_s + 30.0
    mailbox.close()


def test_after_the_end_a_late_callback_touches_no_descriptor() -> None:
    """The number may belong to another file by then."""
    mailbox = Mailbox()
    call = mailbox.add(make_event(), time.monotonic() + 30)
    (bell,) = mailbox.wait_on().read
    mailbox.close()
    with open("/dev/full", "wb", buffering=0) as reused:
        assert reused.fileno() == bell
        mailbox.drop(call, DELIVERED)  # a write would raise here
