"""What repairs a failed migration, by the reason that KubeVirt gives."""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.failed_migrations import (
    convergence,
    launcher_libvirt,
    shortened_state,
    small_targets,
    stale_network,
    unflagged_copies,
    unlike_processors,
    unsafe_storage,
)
from virt_admit.forecasts.drain.guests import refused_devices
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migration_failures, storage
from virt_admit.model.kubevirt.instances.migration_failures import Failure
from virt_admit.model.kubevirt.launcher import missing_network_info
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    missing_network_info.READS,
    refused_devices.READS,
    launcher_libvirt.READS,
    unlike_processors.READS,
    unflagged_copies.READS,
    unsafe_storage.READS,
    convergence.READS,
    shortened_state.READS,
    small_targets.READS,
    stale_network.READS,
)
POST_COPY_REMEDY: Final = (
    "set the sysctl vm.unprivileged_userfaultfd=1 on all nodes or allowPostCopy: false"
)
_REMEDIES: Final = (
    (
        # kubevirt#17780, user-guide#1004: kernels forbid it since 5.11
        (migration_failures.USERFAULTFD,),
        POST_COPY_REMEDY,
    ),
    (
        ("no space left", "disk quota", "nospace"),
        "free space on the target node or in the storage of its claims",
    ),
    (
        ("failed to lock", 'write" lock', "'write' lock", "cannot acquire"),
        "stop the VM for the drain, if its own guest has the lock, as storage may not pass it on "
        "(files on NFS); else end the other process that has the disk open",
    ),
    (
        (
            "connection refused",
            "connection reset",
            "no route",
            "timed out",
            "unable to connect",
            "tls",
            "certificate",
        ),
        "repair the migration network and virt-handler on both nodes",
    ),
    (
        ("permission denied", "operation not permitted", "selinux"),
        "repair the access to its disks on the target node",
    ),
    (
        ("out of memory", "oom", "cannot allocate memory", "cannot set up guest memory"),
        "free memory on the target node",
    ),
    (
        ("cannot access", "no such file", "not found", "does not exist"),
        "provide what it needs on the target node",
    ),
    (("unschedulable", "pending"), "let kube-scheduler place its target pod"),
    (("target pod",), "repair what ends its target pods, as their logs and events say"),
    (("without shared storage",), "move its disks to storage that both nodes share"),
    (("argument unsupported",), "install a virt-launcher whose libvirt knows what it asks for"),
    (
        ("vir_migrate_param_migrate_disks",),
        "name the former claims in the VM again, which ends the copy of its volumes",
    ),
    (
        ("unsupported configuration", "not supported", "unsafe"),
        "remove the device or feature that QEMU cannot migrate",
    ),
    (("aborted", "cancel"), "see who cancelled it, or give migrations more time"),
)
"""What repairs a failure, by words of libvirt and QEMU. The first one that fits."""


def of(text: str) -> str:
    """Return what repairs the failure of a migration that may succeed later,
    from the reason that KubeVirt gives.
    """
    lower = text.lower()
    found = (repair for words, repair in _REMEDIES if any(word in lower for word in words))
    return f"{next(found, 'remove the cause that its events name')}, and see the last one"


def of_one_vm(vmi: Object, failure: str, cluster: Cluster) -> Problem | None:
    """Return why no node takes a VMI until it stops, by the words of a failed migration, or only
    one with its processor.
    """
    return lasting(vmi, failure, cluster) or unlike_processors.problem(vmi, failure, cluster)


def lasting(vmi: Object, failure: str, cluster: Cluster) -> Problem | None:
    """Return why no migration of a VMI succeeds, whatever its target, until it stops."""
    return (
        shortened_state.problem(vmi, cluster)
        or storage.held_by_swtpm(vmi, failure)
        or missing_network_info.problem(vmi, failure, cluster)
        or launcher_libvirt.problem(vmi, failure, cluster)
        or unflagged_copies.problem(vmi, failure, cluster)
        or unsafe_storage.problem(vmi, failure, cluster)
        or refused_devices.of_target(vmi, failure, cluster)
    )


def of_target(vmi: Object, failure: Failure, cluster: Cluster) -> Problem | None:
    """Return why no migration of a VMI to the node of a failed one succeeds, until something is
    changed there."""
    return stale_network.problem(vmi, failure.text, failure.target, cluster)
