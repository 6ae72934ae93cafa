"""The built-in handlers. Importing this registers them."""

from outboxd.jobs.handlers import hello, log_clean, outbox_clean

__all__ = ["hello", "log_clean", "outbox_clean"]
