"""Errors of libvirt are made legible, also those that are quoted repeatedly."""

import json

from tests.for_each import for_each
from virt_admit.model.kubevirt.launcher import libvirt_errors

BEGIN, END = "LibvirtError(Code=1, Domain=10, Message='", "')"


@for_each("times", [0, 1, 4])
def test_the_marks_of_quoting_go(times: int) -> None:
    text = 'cannot open "disk"'
    for _ in range(times):
        text = json.dumps(text)[1:-1]

    assert libvirt_errors.legible(f"{BEGIN}{text}{END}") == 'cannot open "disk"'


@for_each("text", ["\\" * 10**5, '\\" ' * 30_000, " -device {" * 10_000])
def test_long_errors_are_read_in_linear_time(text: str) -> None:
    assert libvirt_errors.legible(f"{BEGIN}{text}{END}")
