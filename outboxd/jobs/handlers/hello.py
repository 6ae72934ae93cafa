"""Two handlers that touch nothing: for trying out schedules, and for what once sent text messages."""

from outboxd.jobs.registry import Context, handler


@handler("HelloWorld")
def hello_world(context: Context, params: str) -> str:
    """A greeting."""
    whom = params.strip()
    return f"Hello, {whom}!" if whom else f"Hello, world! This is {context.job_name} on {context.node_id or 'a node'}."


@handler("SendSms")
def send_sms(context: Context, params: str) -> str:
    """Records its parameters, and sends nothing."""
    return f"no text message was sent, the parameters are only recorded: {params.strip() or 'none'}"
