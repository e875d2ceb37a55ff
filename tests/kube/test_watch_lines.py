"""The lines of a watch: whole events, however they arrive, and a bound for one that never ends."""

from __future__ import annotations

import itertools

import pytest

from virt_admit.kube import informers
from virt_admit.kube.client import MalformedResponse
from virt_admit.kube.informers import watch_lines


class Streamed:
    """A response that arrives in these chunks."""

    def __init__(self, chunks):
        self.sent = 0
        self._chunks = chunks

    def stream(self, decode_content):
        assert decode_content
        for chunk in self._chunks:
            self.sent += len(chunk)
            yield chunk


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_whole_however_they_arrive(size):
    body = b'{"a":1}\n\n{"b":2}\n{"c":3}\n'
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    assert list(watch_lines(Streamed(chunks))) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_a_line_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr(informers, "MOST_LINE", 1_000_000)
    endless = Streamed(itertools.repeat(b"x" * 65536))
    with pytest.raises(MalformedResponse, match="a line of more than 1000000 bytes"):
        list(watch_lines(endless))
    assert endless.sent < 1_200_000
