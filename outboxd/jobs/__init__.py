"""Scheduled jobs: the role that runs them, and what they call. Handlers of your own need `handler` and `Context`.

    import outboxd.jobs

    @outboxd.jobs.handler("Report")
    def report(context: outboxd.jobs.Context, params: str) -> str:
        ...
        return "412 rooms"
"""

from outboxd.jobs.registry import Context, Handler, handler

__all__ = ["Context", "Handler", "handler"]
