"""Whatever comes in, a clear 4xx or an answer with the uid goes out: never a 500, never a traceback, never a hang."""

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
        (FINE.replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), "application/json", 400),
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
    "host", ["x", "virt-admit-webhook.virt-admit.svc:443", "[::1]:8443", "a..b", "a b", "x" * 300, ""]
)
def test_the_host_of_a_request_does_not_matter(webhook, host):
    connection = webhook.connect()
    try:
        connection.request("POST", "/validate", FINE, {"Content-Type": "application/json", "Host": host})
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


@pytest.mark.parametrize(("size", "status"), [(7 * 1024 * 1024 - 4096, 200), (7 * 1024 * 1024 + 1, 413)])
def test_size_limit(webhook, size, status):
    body = review(vm())
    body["request"]["object"]["metadata"]["annotations"] = {"fill": "x" * (size - len(json.dumps(body)) - 100)}
    text = json.dumps(body).encode()
    if status == 413:
        text += b" " * (size - len(text))
    assert post(webhook, text)[0] == status


def test_a_chunked_body_that_never_ends_is_refused(webhook):
    connection = webhook.connect()
    connection.putrequest("POST", "/validate")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    chunk = b"x" * 1024 * 1024
    try:
        for _ in range(40):
            connection.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
        status = 413  # it hung up on us
    finally:
        connection.close()
    assert status == 413


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
    status, answer = send(webhook, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
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
    raw = webhook.tls().wrap_socket(socket.create_connection(("127.0.0.1", webhook.port)), server_hostname="localhost")
    head = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    raw.sendall(head % len(FINE) + FINE[:100])
    time.sleep(0.2)
    raw.sendall(FINE[100:])
    response = http.client.HTTPResponse(raw)
    response.begin()
    assert response.status == 200
    raw.close()


def test_400_silent_peers_do_not_slow_the_others(webhook):
    """200 silent TCP and 200 silent TLS connections: the others are answered within 50 ms (the median of 20).

    Or, on a machine that is busy with other things, within five times as long as without them.
    """
    alone = median_answer(webhook)
    peers = []
    try:
        peers += [socket.create_connection(("127.0.0.1", webhook.port)) for _ in range(200)]
        context = webhook.tls()
        for _ in range(200):
            plain = socket.create_connection(("127.0.0.1", webhook.port))
            peers.append(context.wrap_socket(plain, server_hostname="localhost"))
        assert median_answer(webhook) < max(0.05, 5 * alone)
    finally:
        for peer in peers:
            peer.close()


def median_answer(webhook):
    """Seconds until an answer on a connection that is open already: the median of 20."""
    connection = webhook.connect()
    connection.connect()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        connection.request("POST", "/validate", FINE, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter() - start)
        assert answer.status == 200
    connection.close()
    return statistics.median(times)
