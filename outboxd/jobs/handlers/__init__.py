"""The built-in handlers. Importing this registers them."""

from outboxd.jobs.handlers import hello

__all__ = ["hello"]
