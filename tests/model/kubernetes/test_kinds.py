"""The table of kinds."""

from virt_admit.model.kubernetes import kinds


def test_a_group_of_the_api_server_is_said_to_be_built_in():
    """A 404 for a group that is not says that the cluster has no such kind,
    not that there is none of its objects. That of the snapshotter is such a group.
    """
    groups = {kind.group for kind in kinds.ALL if kind.group.endswith(".k8s.io")}
    assert groups - kinds.BUILT_IN_GROUPS == {kinds.VOLUME_SNAPSHOT.group}
