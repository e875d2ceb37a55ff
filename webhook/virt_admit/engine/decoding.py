"""Decode the bytes of an AdmissionReview into a ``Request``, with a limit on each part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from virt_admit.engine.admission_review import API_VERSION, Request
from virt_admit.model.kubernetes import json_codec, kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Operation

MAX_BODY: Final = 7 * 1024 * 1024
"""Bytes: two objects of 3 MiB and their envelope (kubernetes-sigs/controller-runtime
http.go#maxRequestSize).
"""
MAX_VALUES: Final = 170_000
"""Values in the JSON of a review. Real manifests need 12 bytes for a value or more (examples/,
tests/data), so this is an update of an object of 1 MB, or of a health check with 20,000 conditions.
Small values cost 30 times their text: 7 MB of ``[[],[],[]]`` take 200 MiB, and a rule reads them
for seconds.
"""
MAX_NAME: Final = 253
"""Characters of the names in a request (k8s.io/apimachinery
pkg/util/validation#DNS1123SubdomainMaxLength).
"""
MAX_USER: Final = 1024
"""Characters that are kept of a user name.
The policy remembers what it says about users and namespaces.
"""


class ReviewError(ValueError):
    """The bytes are not an AdmissionReview that can be answered; the message says why."""


def decode(body: bytes) -> Request:
    """Decode an AdmissionReview.

    If it has too many values, its objects are not read.

    Raises:
        ReviewError: the body is not JSON, not an AdmissionReview v1, or has no request or no uid;
            or it has too many values and does not begin with what identifies the request, as the
            reviews of an API server do.
    """
    return _envelope(body) if _too_many_values(body) else _decode(body)


_PIECE: Final = 64 * 1024
"""Bytes that are divided at a time, because each part of them takes more memory than its text."""


def _too_many_values(body: bytes) -> bool:
    """Whether the body has too many values: commas and opening brackets, without those in texts."""
    if len(body) <= MAX_VALUES or _values(body) <= MAX_VALUES:
        return False
    # each quote that is left begins or ends a text
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    count, inside = 0, 0
    for start in range(0, len(plain), _PIECE):
        parts = plain[start : start + _PIECE].split(b'"')
        count += _values(b"".join(parts[inside::2]))
        inside = (inside + len(parts) - 1) % 2
    return count > MAX_VALUES


def _values(text: bytes) -> int:
    return sum(map(text.count, (b",", b"[", b"{")))


_USER_ENDS: Final = re.compile(rb'\}\s*,\s*"object"\s*:')
"""Go writes ``userInfo``, a map, before the object (k8s.io/api
admission/v1/types.go#AdmissionRequest).
"""


def _envelope(body: bytes) -> Request:
    """Decode what comes before the object."""
    end = _USER_ENDS.search(body)
    start = body[: end.start()] if end else b""
    if end is None or _too_many_values(start):
        raise ReviewError(
            f"the review has more than {MAX_VALUES:,} values; its uid and user must come before "
            "the object"
        )
    return _decode(start + b'},"object":null}}')._replace(too_large=True)


def _decode(body: bytes) -> Request:
    try:
        review = json_codec.loads_bounded(body)
    except ValueError as error:
        raise ReviewError(f"the body is not JSON: {error}") from None
    if not isinstance(review, dict):
        raise ReviewError("the body is not a JSON object")
    if review.get("kind") != "AdmissionReview" or review.get("apiVersion") != API_VERSION:
        raise ReviewError(f"expected an AdmissionReview of {API_VERSION}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise ReviewError("the AdmissionReview has no request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise ReviewError("the request has no uid")
    return _request(request, uid)


# Plain look-ups, because no path of the envelope is ever shown


def _request(request: Mapping[str, Any], uid: str) -> Request:
    namespace = _name(request, "namespace")
    user, resource = _map(request, "userInfo"), _map(request, "resource")
    kind = kinds.by_resource(
        ".".join(filter(None, (_text(resource, "resource"), _text(resource, "group"))))
    )
    if kind is None and not isinstance(request.get("resource"), dict):
        named = _map(request, "kind")
        kind = kinds.find(_text(named, "group"), _text(named, "kind"))
    operation = _name(request, "operation")
    groups = user.get("groups")
    data = request.get("object")
    if (
        operation == Operation.CREATE
        and kind
        and kind.status_from_elsewhere
        and isinstance(data, dict)
    ):
        data = {key: value for key, value in data.items() if key != "status"}
    return Request(
        uid=uid,
        operation=operation,
        kind=kind,
        obj=_object(data, namespace),
        old=_object(request.get("oldObject"), namespace),
        name=_text(request, "name"),
        namespace=namespace,
        user=_text(user, "username")[:MAX_USER],
        groups=frozenset(filter(None, map(_only_text, groups)) if isinstance(groups, list) else ()),
        subresource=_name(request, "subResource"),
        dry_run=request.get("dryRun") is True,
    )


def _only_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text(holder: Mapping[str, Any], key: str) -> str:
    return _only_text(holder.get(key))


def _name(holder: Mapping[str, Any], key: str) -> str:
    name = _text(holder, key)
    if len(name) > MAX_NAME:
        raise ReviewError(f"the {key} of the request has more than {MAX_NAME} characters")
    return name


def _map(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _object(data: Any, namespace: str) -> Object | None:
    return Object(data, namespace) if isinstance(data, dict) else None
