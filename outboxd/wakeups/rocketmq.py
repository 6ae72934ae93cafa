"""Wake-ups of rockets from RocketMQ; see outboxd/wakeups/__init__.py."""

from typing import Any

from outboxd.clients.rocketmq_group import Group
from outboxd.config.schema import RocketMqServer
from outboxd.wakeups import InvalidWakeup, Taken, decode

AT_ONCE = 16


class RocketMqWakeups:
    """Reads the topic that `rocket_launch` writes to. One thread uses it; close it, or use it in a `with`."""

    def __init__(
        self,
        endpoints: str = "127.0.0.1:8081",
        *,
        topic: str = "hyapp_room_rocket_launch",
        group: str = "hyapp-room-rocket-open",
        access_key: str = "",
        secret_key: str = "",
        namespace: str = "",
        tls: bool = False,
        timeout_s: float = 3.0,
        hidden_s: float = 30.0,
    ) -> None:
        """timeout_s: for one call. hidden_s: what is not done by then comes again; 10 s at least."""
        server = RocketMqServer(
            endpoints=endpoints, access_key=access_key, secret_key=secret_key, namespace=namespace, tls=tls,
            send_timeout_s=timeout_s,
        )  # fmt: skip
        self._group = Group(server, topic, group, hidden_s)

    def receive(self, wait_s: float) -> list[Taken]:
        """What is due. Raises SubscriptionError when RocketMQ cannot be asked. What is no wake-up is buried."""
        taken = []
        for message in self._group.receive(AT_ONCE, wait_s):
            try:
                wakeup = decode(bytes(message.body))
            except InvalidWakeup:
                self._group.bury(message)
                continue
            taken.append(Taken(wakeup, message, message.delivery_attempt or 0))
        return taken

    def done(self, taken: Taken) -> None:
        """It does not come again. Raises SubscriptionError."""
        self._group.acknowledge([taken.handle])

    def close(self) -> None:
        """What is not done comes again, here or elsewhere."""
        self._group.close()

    def __enter__(self) -> "RocketMqWakeups":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()
