"""Guests that stand still although their VMI is Running."""

from tests.healthy.clusters import plain
from tests.healthy.parts import Object, ago, obj

from .machines import UNKNOWN, YES, Incident, event, find, guest

URL = "https://github.com/kubevirt/kubevirt/issues/9704"


def paused(items: list[Object], name: str, reason: str, **since: float) -> Object:
    """Pause the guest of a VM, and return its VMI."""
    vmi = find(items, "VirtualMachineInstance", name)
    said = {
        "type": "Paused",
        "status": "True",
        "reason": reason,
        "lastTransitionTime": ago(**since),
    }
    vmi["status"]["conditions"].append(said)
    find(items, "VirtualMachine", name)["status"] |= {"printableStatus": "Paused", "ready": False}
    return vmi


def stopped_by_storage() -> list[Object]:
    """Return a cluster whose VM was paused by its storage an hour ago; nothing says why."""
    items = plain() + guest("db", "w1")
    vmi = paused(items, "db", "PausedIOError", minutes=56)
    items.append(
        event(vmi, "IOerror", "VM Paused due to IO error at the volume: db", "virt-handler")
    )
    return items


def ceph(health: str, **details: Object) -> Object:
    """Return the Ceph cluster behind the class ``block``, nearly all of which is used."""
    capacity = {"bytesTotal": 3298534883328, "bytesUsed": 3127011069396}
    status = {"ceph": {"health": health, "details": details, "capacity": capacity}}
    return obj("CephCluster", "ceph.rook.io/v1", "rook-ceph", "rook-ceph", spec={}, status=status)


FULL = {
    "OSD_FULL": {"message": "2 full osd(s)", "severity": "HEALTH_ERR"},
    "OSD_NEARFULL": {"message": "1 nearfull osd(s)", "severity": "HEALTH_WARN"},
}


def full() -> list[Object]:
    return [*stopped_by_storage(), ceph("HEALTH_ERR", **FULL)]


def hanging() -> Incident:
    """Clients of Ceph get no error, so that the VMI reports nothing: rook/rook#5882."""
    items = [*plain(), *guest("db", "w1"), ceph("HEALTH_ERR", **FULL)]
    facts = (
        (
            r"its guest may wait for reads or writes without an error, as CephCluster "
            r"rook-ceph/rook-ceph is full"
        ),
        r"Make room in Ceph",
    )
    return Incident("hanging-guest", URL, items, YES, facts, ("explain", "vm/db"))


def full_storage() -> Incident:
    facts = (
        r"Running on w1, but paused \(PausedIOError\)",
        (
            r"the storage of volume db refuses reads or writes, as CephCluster rook-ceph/rook-ceph "
            r"is full \(HEALTH_ERR: OSD_FULL 2 full osd\(s\); 95 % used\)"
        ),
        r"Neither a move, a restart nor virtctl unpause helps",
        r"make room in Ceph: add OSDs, .*as a decision, raise the full ratio",
        r"a migration now +unknown",
    )
    return Incident("full-storage", URL, full(), YES, facts, ("explain", "vm/db"))


def drain_of_a_guest_without_storage() -> Incident:
    facts = (
        r"unknown +vms/db +LiveMigrate, but its guest is paused by an I/O error for 56 min",
        r"make room in Ceph",
    )
    return Incident("drain-without-storage", URL, full(), UNKNOWN, facts)


def storage_that_says_nothing() -> Incident:
    items = [
        *stopped_by_storage(),
        ceph("HEALTH_WARN", OSD_NEARFULL={"message": "x", "severity": "HEALTH_WARN"}),
    ]
    facts = (
        (
            r"reads or writes of volume db fail, and nothing that was read says why\. It goes on "
            r"by itself"
        ),
        r"\n  see why the storage of volume db does not answer: kubectl",
    )
    return Incident("storage-says-nothing", URL, items, YES, facts, ("explain", "vm/db"))


def paused_by_a_user() -> Incident:
    items = plain() + guest("golden", "w1")
    paused(items, "golden", "PausedByUser", days=3)
    facts = (
        (
            r"migrates +vms/golden +LiveMigrate, and it can migrate; its guest is paused by a "
            r"user, and stays so"
        ),
    )
    return Incident("paused-by-user", URL, items, YES, facts)


def incidents() -> list[Incident]:
    paused_ones = [full_storage(), drain_of_a_guest_without_storage(), paused_by_a_user()]
    return [*paused_ones, storage_that_says_nothing(), hanging()]
