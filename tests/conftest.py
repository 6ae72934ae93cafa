"""Fixtures for every test, and how property tests look for examples."""

import os

from hypothesis import settings

pytest_plugins = [
    "tests.services.databases", "tests.services.nginx", "tests.services.packages", "tests.services.payloads",
    "tests.services.redis_server",
    "tests.services.rocketmq",
    "tests.services.kafka",
    "tests.services.ordered_source",
]  # fmt: skip

# No deadline for one example: a loaded machine would fail tests that are right. In CI the examples are the same in
# every run, so that a change is never blamed for what chance found.
settings.register_profile("outboxd", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("outboxd")
