"""What answers are made from."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from outboxd import vitals
from outboxd.admin.desks import Desks
from outboxd.admin.exposition import Exposition
from outboxd.admin.sampler import Sampler
from outboxd.config.schema import Config, Lane


@dataclass(frozen=True, slots=True)
class Source:
    """Handed to every listener's application. lanes: those whose workers run; config has the others too."""

    config: Config
    lanes: Sequence[Lane]
    board: vitals.Board
    sampler: Sampler
    exposition: Exposition
    desks: Desks = field(default_factory=Desks)
