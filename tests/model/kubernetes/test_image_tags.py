"""The tag of an image."""

import pytest

from virt_admit.model.kubernetes import workloads


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("registry:5000/team/tool:v1.2", "v1.2"),
        ("registry:5000/team/tool", ""),
        ("tool:v1.2@sha256:0a1b", "v1.2"),
        ("team/tool@sha256:0a1b", ""),
        ("", ""),
    ],
)
def test_a_tag_is_told_from_a_port_and_a_digest(image, tag):
    assert workloads.image_tag(image) == tag
