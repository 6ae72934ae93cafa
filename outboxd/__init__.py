"""outboxd relays a transactional outbox in MySQL to the outside world."""

from outboxd.errors import Reject

__all__ = ["Reject", "__version__"]

__version__ = "0.1.0"
