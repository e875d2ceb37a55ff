"""Fixtures of the tests of the TLS context."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.certs.listener import Server
from virt_admit_certs.certificates import Pair, new_signer
from virt_admit_certs.tls import TlsContextProvider

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def signer() -> Pair:
    return new_signer(NOW, timedelta(days=1))


@pytest.fixture
def serve() -> Iterator[object]:
    servers: list[Server] = []

    def start(front: TlsContextProvider) -> int:
        servers.append(Server(front))
        return servers[-1].port

    yield start
    for server in servers:
        server.close()
