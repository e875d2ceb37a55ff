"""The Flask apps: the admission listener and the ops listener. The only import of flask."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import flask
import flask.typing
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from virt_admit.engine.admission_review import Reply
from virt_admit.engine.decoding import ReviewError
from virt_admit.serving.metrics import CONTENT_TYPE, ProcessMetrics

Decide = Callable[[bytes], Reply]
"""Decides a review: takes the bytes of an AdmissionReview."""

JSON: Final = "application/json"


class _Reply(flask.Response):
    """A response with its whole body and without a Location,
    which werkzeug would look for on the way out.
    """

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:  # noqa: ARG002
        """Send the status, the headers and the body as they are."""
        start_response(self.status, list(self.headers))
        return [self.get_data()]


class _AdmissionFlask(flask.Flask):
    """Flask without what no admission uses, a quarter of its time: host matching,
    hooks and signals.
    """

    def create_url_adapter(self, request: flask.Request | None) -> MapAdapter | None:
        """Match the path and the method alone: no route depends on the Host header,
        and no URL is built.
        """
        if request is None:
            return None
        return self.url_map.bind("", path_info=request.path, default_method=request.method)

    def full_dispatch_request(self) -> flask.Response:
        """Call the view, or the handler of what it raises."""
        try:
            answer = self.dispatch_request()
        except Exception as error:
            # as in Flask: its handler raises again what no handler is registered for
            answer = self.handle_user_exception(error)
        return self.make_response(answer)


def admission_app(
    validate: Decide,
    mutate: Decide,
    observe: Callable[[str, Reply, float], None],
    in_flight: Callable[[str], AbstractContextManager[None]] = lambda _endpoint: nullcontext(),
    draining: Callable[[], bool] = lambda: False,
) -> flask.Flask:
    """Return the app with ``POST /validate`` and ``POST /mutate``.

    ``observe`` gets the endpoint, the answer and its duration in seconds; ``in_flight`` is held
    while it is decided. While ``draining`` each answer closes its connection, so that the API
    server goes to another replica.
    """
    app = _AdmissionFlask(__name__, static_folder=None)

    def answer(endpoint: str, decide: Decide) -> flask.Response:
        request = flask.request
        if request.mimetype != JSON:
            return _refuse(415, f"the content type must be {JSON}")
        start = time.perf_counter()
        try:
            with in_flight(endpoint):
                # the bridge passes a complete body, and no larger one
                answered = decide(request.input_stream.read())
        except ReviewError as error:
            return _refuse(400, str(error))
        except RecursionError:
            return _refuse(400, "the body is nested too deeply")
        observe(endpoint, answered, time.perf_counter() - start)
        response = _Reply(answered.body, content_type=JSON)
        if draining():
            response.headers["Connection"] = "close"
        return response

    app.register_error_handler(HTTPException, _plain_error)
    app.add_url_rule(
        "/validate", "validate", lambda: answer("validate", validate), methods=["POST"]
    )
    app.add_url_rule("/mutate", "mutate", lambda: answer("mutate", mutate), methods=["POST"])
    return app


def ops_app(
    checks: Callable[[], Mapping[str, str]], metrics: ProcessMetrics, version: Mapping[str, Any]
) -> flask.Flask:
    """Return the app with ``/healthz``, ``/livez``, ``/readyz``, ``/metrics`` and ``/version``.

    ``checks`` returns the readiness checks; an empty value means the check passed.
    """
    app = flask.Flask(__name__, static_folder=None)
    app.register_error_handler(HTTPException, _plain_error)

    @app.get("/healthz")
    @app.get("/livez")
    def live() -> flask.Response:
        return _text("ok\n")  # a process that answers needs no restart

    @app.get("/readyz")
    def ready() -> flask.Response:
        missing = checks()
        lines = [
            f"[{'-' if why else '+'}] {name}{f': {why}' if why else ' ok'}\n"
            for name, why in missing.items()
        ]
        is_ready = not any(missing.values())
        verbose = "verbose" in flask.request.args or not is_ready
        return _text("".join(lines) if verbose else "ok\n", 200 if is_ready else 503)

    @app.get("/metrics")
    def scrape() -> flask.Response:
        return flask.Response(metrics.text(), content_type=CONTENT_TYPE)

    @app.get("/version")
    def tell_version() -> flask.Response:
        return flask.jsonify(version)

    return app


def watch_app(
    checks: Callable[[], Mapping[str, str]],
    metrics: ProcessMetrics,
    version: Mapping[str, Any],
    page: Callable[[], str],
    content_security_policy: str,
) -> flask.Flask:
    """Return the ops app with the page at ``/``, which runs only what the policy admits."""
    app = ops_app(checks, metrics, version)

    @app.get("/")
    def show_page() -> flask.Response:
        response = flask.Response(page(), mimetype="text/html")
        # frame-ancestors has no effect in the page's own meta element
        response.headers["Content-Security-Policy"] = (
            f"{content_security_policy}; frame-ancestors 'none'"
        )
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cache-Control"] = "no-cache"  # a cached page must be compared by its ETag
        response.add_etag()
        response.make_conditional(flask.request)
        return response

    return app


def _text(text: str, status: int = 200) -> flask.Response:
    return flask.Response(text, status, mimetype="text/plain")


def _plain_error(error: HTTPException) -> flask.typing.ResponseReturnValue:
    response = error.get_response()
    response.data = f"{error.name.lower()}\n"
    response.content_type = "text/plain; charset=utf-8"
    return response


def _refuse(status: int, why: str) -> flask.Response:
    return _text(why + "\n", status)
