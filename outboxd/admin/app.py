"""The application: placeholder while its parts are put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from wsgiref.types import WSGIApplication

from flask import Flask, Response, request

from outboxd.admin.exposition import Exposition
from outboxd.admin.sampler import Sampler
from outboxd.config.schema import Config, Lane
from outboxd.vitals import Board


@dataclass(frozen=True, slots=True)
class Source:
    config: Config
    lanes: Sequence[Lane]
    board: Board
    sampler: Sampler
    exposition: Exposition


def make_app(source: Source, is_owner: bool) -> WSGIApplication:
    app = Flask("outboxd")

    @app.get("/metrics")
    def page() -> Response:
        body, content_type = source.exposition.page(request.headers.get("Accept", ""))
        return Response(body, content_type=content_type)

    return app
