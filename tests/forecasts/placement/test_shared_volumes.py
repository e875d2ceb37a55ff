"""A volume of Longhorn that several nodes mount, whose NFS server has no address."""

import pytest

from tests.builders import complete, manifest
from virt_admit.forecasts.placement.components.longhorn import shared_volumes
from virt_admit.model.messages import command_of

LONGHORN = "longhorn.io/v1beta2", "longhorn-system"
INITIALIZED = {"rwx-network.settings.harvesterhci.io/initialized": "true"}


def volume(endpoint="nfs://None/pv"):
    status = {"shareEndpoint": endpoint}
    return manifest(LONGHORN[0], "Volume", "pv", LONGHORN[1], status=status)


def setting(name, value):
    return manifest(LONGHORN[0], "Setting", name, LONGHORN[1], value=value)


EMPTY = setting("endpoint-network-for-rwx-volume", "")
SHARED = (
    setting("storage-network", "harvester-system/net"),
    setting("storage-network-for-rwx-volume-enabled", "true"),
)


def rwx_network(value="", annotations=INITIALIZED):
    metadata = {"annotations": annotations}
    of = "harvesterhci.io/v1beta1"
    return manifest(of, "Setting", "rwx-network", metadata=metadata, value=value)


def found(*objects):
    return shared_volumes.without_address("pv", complete(*objects))


def test_the_network_of_the_storage_is_set_again():
    fault = found(volume(), EMPTY, *SHARED)

    assert fault.lasts
    assert "the address of its NFS server is nfs://None/…" in fault.words
    assert "endpoint-network-for-rwx-volume is empty while" in fault.words
    assert '\'{"value":"harvester-system/net"}\'' in command_of(fault.remedy)
    assert "kubectl delete pod share-manager-pv -n longhorn-system" in fault.remedy
    assert "when the pods that use the volume may stop" in fault.remedy
    assert "annotate" not in fault.remedy


def test_harvester_takes_over_the_value():
    fault = found(volume(), EMPTY, *SHARED, rwx_network())

    assert "harvesterhci.io rwx-network rwx-network.settings" in fault.remedy


@pytest.mark.parametrize("other", [rwx_network("{}"), rwx_network(annotations={})])
def test_harvester_keeps_what_it_has(other):
    assert "annotate" not in found(volume(), EMPTY, *SHARED, other).remedy


@pytest.mark.parametrize(
    "objects",
    [
        [EMPTY],
        [EMPTY, SHARED[0], setting("storage-network-for-rwx-volume-enabled", "false")],
        [setting("endpoint-network-for-rwx-volume", "harvester-system/net"), *SHARED],
        [],
    ],
    ids=["no network", "not shared", "set", "unknown"],
)
def test_no_network_is_guessed(objects):
    fault = found(volume(), *objects)

    assert "patch" not in fault.remedy
    assert command_of(fault.remedy)


@pytest.mark.parametrize(
    "objects",
    [[], [volume("")], [volume("nfs://10.53.1.2/pv"), EMPTY, *SHARED]],
    ids=["another driver", "no server", "an address"],
)
def test_a_volume_with_an_address(objects):
    assert found(*objects) is None
