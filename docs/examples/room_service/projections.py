"""What is shown of rooms: a list by heat, in Redis. It may lag or be lost, and nothing is decided by it."""

from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from room_service.domain import Room

TIMEOUT_S = 0.25
HOT, MEMBERS = "room_service:hot", "room_service:members"


class Projections:
    """At one Redis. Raises redis.RedisError."""

    def __init__(self, redis_url: str) -> None:
        self._redis: Redis = Redis.from_url(
            redis_url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )

    def put(self, room: Room) -> None:
        """As the room is now."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zadd(HOT, {room.room_id: room.heat})
        pipeline.hset(MEMBERS, room.room_id, str(len(room.members)))
        pipeline.execute()

    def hottest(self, count: int) -> list[tuple[str, int]]:
        """Room and heat."""
        found: Any = self._redis.zrevrange(HOT, 0, count - 1, withscores=True)
        return [(name.decode(), int(heat)) for name, heat in found]
