"""Whatever comes in, a clear 4xx or an answer with the uid goes out: never a 500, never a
traceback, never a hang.
"""

import contextlib
import http.client
import json
import socket
import ssl
import statistics
import time

import pytest

from tests.https.reviews import review, vm

FINE = json.dumps(review(vm())).encode()


def post(webhook, body, content_type="application/json", path="/validate", method="POST"):
    connection = webhook.connect()
    try:
        headers = {"Content-Type": content_type} if content_type else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/validate", "/mutate"])
@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"", "application/json", 400),
        (b"hello", "application/json", 400),
        (b"\xff\xfe\x00", "application/json", 400),
        (b"null", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{}", "application/json", 400),
        (b'{"a": NaN}', "application/json", 400),
        (b'{"a": 1e999}', "application/json", 400),
        (b"[" * 200_000, "application/json", 400),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "application/json", 400),
        (FINE, "text/plain", 415),
        (FINE, "application/x-www-form-urlencoded", 415),
        (FINE, "", 415),
        (FINE, "application/json; charset=utf-8", 200),
        (
            FINE.replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
            "application/json",
            400,
        ),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "application/json", 400),
        (FINE.replace(b'"42"', b'""'), "application/json", 400),
        (FINE.replace(b'"42"', b"42"), "application/json", 400),
    ],
)
def test_envelope(webhook, path, body, content_type, status):
    got, text = post(webhook, body, content_type, path)
    assert got == status
    assert b"Traceback" not in text
    assert text


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_only_post(webhook, method):
    assert post(webhook, None, method=method)[0] == 405


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/validate/x"])
def test_nothing_else_is_here(webhook, path):
    assert post(webhook, FINE, path=path)[0] == 404


@pytest.mark.parametrize(
    "host",
    ["x", "virt-admit-webhook.virt-admit.svc:443", "[::1]:8443", "a..b", "a b", "x" * 300, ""],
)
def test_the_host_of_a_request_does_not_matter(webhook, host):
    connection = webhook.connect()
    try:
        connection.request(
            "POST", "/validate", FINE, {"Content-Type": "application/json", "Host": host}
        )
        assert connection.getresponse().status == 200
    finally:
        connection.close()


def nested(depth):
    value = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "change",
    [
        {"object": None},
        {"object": None, "oldObject": None},
        {"object": []},
        {"object": "x"},
        {"operation": None},
        {"operation": "CONNECT"},
        {"operation": 7},
        {"resource": None},
        {"resource": {"resource": []}},
        {"userInfo": []},
        {"userInfo": {"groups": "x", "username": 3}},
        {"namespace": 5, "name": {}},
        {"subResource": "status"},
        {"object": {"metadata": "x", "spec": "y"}},
        {"object": {**vm(), "spec": None}},
        {"object": {**vm(), "spec": {"template": None}}},
        {"object": {**vm(), "spec": {"template": {"spec": []}}}},
        {"object": {**vm(), "spec": nested(500)}},
        {"object": {**vm(), "spec": 10**4000}},
        {"object": {**vm(), "metadata": {"name": "\ud800", "labels": [], "annotations": 3}}},
    ],
    ids=lambda change: str(change)[:40],
)
@pytest.mark.parametrize("path", ["/validate", "/mutate"])
def test_odd_requests_are_answered(webhook, path, change):
    status, text = post(webhook, json.dumps(_changed(change)).encode(), path=path)
    if status == 200:
        assert json.loads(text)["response"]["uid"] == "42"
    else:
        assert status == 400  # orjson refuses lone surrogates and numbers that are too long
    assert b"Traceback" not in text


def _changed(change):
    body = review(vm())
    body["request"] |= change
    return body


@pytest.mark.parametrize(
    ("size", "status"), [(7 * 1024 * 1024 - 4096, 200), (7 * 1024 * 1024 + 1, 413)]
)
def test_size_limit(webhook, size, status):
    body = review(vm())
    body["request"]["object"]["metadata"]["annotations"] = {
        "fill": "x" * (size - len(json.dumps(body)) - 100)
    }
    text = json.dumps(body).encode()
    if status == 413:
        text += b" " * (size - len(text))
    assert post(webhook, text)[0] == status


def send_chunks(connection, sizes):
    """Send a body in chunks of these sizes, without its end."""
    connection.putrequest("POST", "/validate")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    for size in sizes:
        connection.send(b"%x\r\n%s\r\n" % (size, b"x" * size))


@pytest.mark.usefixtures("unharmed")
def test_a_chunked_body_that_never_ends_is_refused(webhook):
    with contextlib.closing(webhook.connect()) as connection:
        # all that the webhook reads, so that no reset comes first
        send_chunks(connection, [1024 * 1024] * 28 + [1])
        assert connection.getresponse().status == 413


@pytest.mark.usefixtures("unharmed")
def test_a_client_that_never_stops_sending_is_disconnected(webhook):
    with (
        contextlib.closing(webhook.connect()) as connection,
        pytest.raises((ConnectionError, ssl.SSLError)),
    ):
        send_chunks(connection, [1024 * 1024] * 200)


HEAD = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def send(webhook, sent):
    """The status of the answer to these bytes; nothing that is logged meanwhile is a traceback."""
    logged = webhook.log.stat().st_size
    plain = socket.create_connection(("127.0.0.1", webhook.port), timeout=10)
    with webhook.tls().wrap_socket(plain, server_hostname="localhost") as peer:
        peer.sendall(sent)
        answer = peer.recv(1000)
    assert "Traceback" not in webhook.log.read_text()[logged:]
    assert answer.startswith(b"HTTP/1.1 ")
    return int(answer[9:12]), answer


@pytest.mark.parametrize("size", [10, 100, 100_000])
def test_a_chunked_body_is_read(webhook, size):
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in split(FINE, size))
    status, answer = send(
        webhook, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    )
    assert status == 200
    assert b'"uid":"42"' in answer


def split(body, size):
    return [body[start : start + size] for start in range(0, len(body), size)]


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Transfer-Encoding: br", 501),
        (b"Transfer-Encoding: br, chunked", 501),
        (b"Transfer-Encoding: gzip, chunked", 501),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501),
        (b"Transfer-Encoding: gzip", 400),  # RFC 9112 section 6.3: a body without an end
        (b"Content-Length: " + b"1" * 5_000, 431),
        (b"Content-Length: -1", 400),
        (b"X: " + b"x" * 5_000, 431),
        (b"\r\n".join(b"X-%d: x" % number for number in range(30)), 431),
    ],
    ids=lambda value: str(value)[:50],
)
def test_headers_that_are_not_supported_are_refused(webhook, header, status):
    assert send(webhook, HEAD + header + b"\r\n\r\n0\r\n\r\n")[0] == status


def test_a_body_split_in_the_middle_is_read(webhook):
    raw = webhook.tls().wrap_socket(
        socket.create_connection(("127.0.0.1", webhook.port)), server_hostname="localhost"
    )
    head = (
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n"
    )
    raw.sendall(head % len(FINE) + FINE[:100])
    time.sleep(0.2)
    raw.sendall(FINE[100:])
    response = http.client.HTTPResponse(raw)
    response.begin()
    assert response.status == 200
    raw.close()


def test_400_silent_peers_do_not_slow_the_others(webhook, own_webhook):
    """200 silent TCP and 200 silent TLS connections do not delay the responses to others."""
    peers = []
    try:
        peers += [socket.create_connection(("127.0.0.1", own_webhook.port)) for _ in range(200)]
        context = own_webhook.tls()
        for _ in range(200):
            plain = socket.create_connection(("127.0.0.1", own_webhook.port))
            peers.append(context.wrap_socket(plain, server_hostname="localhost"))
        assert_as_quick(own_webhook, webhook)
    finally:
        for peer in peers:
            peer.close()


def assert_as_quick(crowded, idle):
    """Assert that the median response of the crowded webhook takes 50 ms at most, or five times
    that of the idle one.

    The requests alternate, so other processes of the machine delay both alike.
    """
    times = {crowded: [], idle: []}
    with (
        contextlib.closing(crowded.connect()) as first,
        contextlib.closing(idle.connect()) as second,
    ):
        first.connect()
        second.connect()
        for _ in range(20):
            for webhook, connection in ((crowded, first), (idle, second)):
                start = time.perf_counter()
                connection.request("POST", "/validate", FINE, {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                times[webhook].append(time.perf_counter() - start)
                assert response.status == 200
    assert statistics.median(times[crowded]) < max(0.05, 5 * statistics.median(times[idle])), (
        times.values()
    )
