"""What the webhook of Harvester refuses before an upgrade: waits, changes and look-alikes."""

from __future__ import annotations

import pytest

from tests.builders import manifest, node, vm, vmi
from tests.cli.test_upgrade import kubevirt
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.pools import refusing_vms
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.scheduler.node_selectors import NodeSelector
from virt_admit.reports.explain import judged_rules
from virt_admit.reports.explain.node import collect
from virt_admit.reports.explain.node import text as node_text
from virt_admit.reports.upgrade import html, text
from virt_admit.rules import Rules

NO_RULES = judged_rules.Opinion(Rules(()), None)
NOW = "2027-03-01T12:00:00Z"
OLD = "2027-02-01T12:00:00Z"
MANAGED = {"harvesterhci.io/managed": "true"}
NODES = tuple(node(name, MANAGED) for name in "abc")
SPACE = "harvester-system"


def setting(name, value):
    return manifest("harvesterhci.io/v1beta1", "Setting", name, value=value)


def own(kind, name, namespace="default", **fields):
    return manifest("harvesterhci.io/v1beta1", kind, name, namespace, **fields)


def longhorn(kind, name, **fields):
    return manifest("longhorn.io/v1beta2", kind, name, "longhorn-system", **fields)


def volume(name="pvc-1", robustness="healthy", replicas=3, state="attached", since=None):
    known = {"namespace": "shop", "pvcName": f"{name}-disk"}
    status = {"state": state, "robustness": robustness, "kubernetesStatus": known}
    status |= {"lastDegradedAt": since} if since else {}
    return longhorn("Volume", name, spec={"numberOfReplicas": replicas}, status=status)


def engine(name="pvc-1"):
    spec, status = {"volumeName": name}, {"currentState": "running", "replicaModeMap": {"r": "WO"}}
    return longhorn("Engine", f"{name}-e-0", spec=spec, status=status)


def cluster(*objects, release="v1.7.1", restores=False, nodes=NODES, **known):
    every = [*nodes, kubevirt(), *objects]
    if restores is not None:
        every.append(setting("upgrade-config", f'{{"restoreVM":{str(restores).lower()}}}'))
    every += [setting("server-version", release)] if release else []
    return Snapshot(every, complete=["*"], time=NOW, **known)


def judged(*objects, **known):
    return rehearse(cluster(*objects, **known), Options())


# --- waits ----------------------------------------------------------------------------------------

BACKUP = own("VirtualMachineBackup", "b", status={"progress": 37})
ADDON = own("Addon", "vm-import", spec={"enabled": True}, status={"status": "AddonEnabling"})


def machine(metadata, **status):
    status["nodeRef"] = {"name": "a"}
    kind = ("cluster.x-k8s.io/v1beta1", "Machine")
    return manifest(*kind, "m", "fleet-local", metadata=metadata, status=status)


CLUSTER = manifest(
    "cluster.x-k8s.io/v1beta1",
    "Cluster",
    "local",
    "fleet-local",
    metadata={"creationTimestamp": OLD},
    status={
        "phase": "Provisioning",
        "conditions": [{"type": "Ready", "lastTransitionTime": "2027-03-01T11:50:00Z"}],
    },
)
STATE = "harvesterhci.io/upgradeState"
CLEANUP = {"labels": {"harvesterhci.io/upgradeCleanup": "Pending", STATE: "Succeeded"}}
MINUTES = {"creationTimestamp": "2027-03-01T11:55:00Z"}


@pytest.mark.parametrize(
    ("objects", "until"),
    [
        (
            [volume(robustness="degraded"), volume("pvc-0", "degraded"), engine()],
            "Longhorn has rebuilt 2 degraded volumes (1 of them now: shop/pvc-1-disk, "
            "shop/pvc-0-disk)",
        ),
        (
            [volume("pvc-0", "degraded", since="2027-03-01T10:00:00Z"), engine()],
            "Longhorn has rebuilt 1 degraded volume (shop/pvc-0-disk)",
        ),
        (
            [
                volume("pvc-0", "degraded", since="2027-03-01T10:00:00Z"),
                longhorn("Setting", "replica-replenishment-wait-interval", value="7200"),
            ],
            "Longhorn has rebuilt 1 degraded volume (shop/pvc-0-disk)",
        ),
        ([BACKUP], "VirtualMachineBackup default/b is ready to use (37% done)"),
        ([ADDON], "Addon default/vm-import is deployed"),
        ([machine(MINUTES, phase="Provisioning")], "Machine fleet-local/m is Running"),
        ([CLUSTER], "Cluster fleet-local/local of Cluster API is Provisioned"),
        ([machine(MINUTES)], "Machine fleet-local/m is Running"),
        ([own("Upgrade", "u", SPACE, metadata=MINUTES)], "Upgrade harvester-system/u has ended"),
        (
            [own("Upgrade", "u", SPACE, metadata=CLEANUP)],
            "the cleanup of Upgrade harvester-system/u has ended",
        ),
    ],
    ids=[
        *("degraded", "its turn", "late replenishment", "backup", "addon", "machine", "cluster"),
        *("new machine", "new upgrade", "cleanup"),
    ],
)
def test_what_ends_by_itself_is_a_wait(objects, until):
    result = judged(*objects)
    lines = text.text(result)

    assert (result.possible, result.stops) == (True, ())
    assert result.before_nodes == f"Harvester refuses to start an upgrade until {until}"
    assert "begins after that" in lines
    assert "begins now" not in lines
    explained = collect.report("a", cluster(*objects), NO_RULES).report
    assert ("begins after", "that") in node_text.upgrade(explained)


def test_a_maintenance_is_a_wait_and_a_cordon_needs_an_uncordon():
    mode = {"annotations": {"harvesterhci.io/maintain-status": "completed"}}
    away = node("a", MANAGED, unschedulable=True)
    away.data["metadata"] |= mode
    kept = judged(nodes=(away, *NODES[1:]))
    (stop,) = judged(nodes=(node("a", MANAGED, unschedulable=True), *NODES[1:])).stops

    assert kept.before_nodes.endswith("until the maintenance of a is over")
    lines = text.text(kept)
    assert lines.startswith("Yes: 3 nodes in ")  # it is updated, too
    assert "not counted" not in lines
    assert kept.waves[0].start == Range(0, 0)
    assert stop.reason == "Harvester refuses to start an upgrade while a is cordoned"
    assert stop.remedy == "Uncordon a: kubectl uncordon a"


# --- steps and repairs ----------------------------------------------------------------------------

LATE = {"creationTimestamp": OLD}
LABEL = {"labels": {STATE: "UpgradingNodes"}}
FAILED = {"conditions": [{"type": "Completed", "status": "False"}]}


def guest(**spec):
    return vmi(status={"nodeName": "a", "phase": "Running"}, **spec)


def hotplugged():
    source = {"claimName": "x", "hotpluggable": True}
    return guest(volumes=[{"name": "x", "persistentVolumeClaim": source}])


CD = {"domain": {"devices": {"disks": [{"name": "iso", "cdrom": {"bus": "sata"}}]}}}
DEVICE = {"domain": {"devices": {"hostDevices": [{"name": "gpu", "deviceName": "nvidia.com/A2"}]}}}
PINNED = {"nodeSelector": {"kubernetes.io/hostname": "a"}}


@pytest.mark.parametrize(
    ("objects", "release", "until"),
    [
        (
            [own("ScheduleVMBackup", "daily", status={"suspended": False})],
            "v1.4.0",
            "until ScheduleVMBackup default/daily is suspended",
        ),
        (
            [guest(**PINNED)],
            "v1.7.1",
            "until VM shop/db is shut down (virtctl stop db -n shop, or restoreVM in Setting "
            "upgrade-config, which stops and starts such VMs in the upgrade), as it migrates no VM "
            "with a node selector",
        ),
        (
            [guest(**DEVICE)],
            "v1.5.1",
            "(virtctl stop db -n shop), as it migrates no VM with a host",
        ),
        ([guest(**CD)], "v1.7.1", "migrates no VM with a CD-ROM or a container disk"),
        (
            [volume(replicas=1, state="detached")],
            "v1.5.0",
            "until the Upgrade is made with annotation harvesterhci.io/skipSingleReplicaDetachedVol"
            ': "true", as 1 detached Longhorn volume has a single replica (shop/pvc-1-disk)',
        ),
    ],
    ids=["schedule", "selector", "device", "cd", "detached"],
)
def test_a_step_at_the_start_of_each_upgrade_is_not_a_stop(objects, release, until):
    result = judged(*objects, release=release)

    assert until in result.before_nodes
    assert not any("refuses" in stop.reason for stop in result.stops)


DAILY = own("ScheduleVMBackup", "daily", status={"suspended": False})


@pytest.mark.parametrize(
    ("objects", "waits"),
    [((DAILY,), "The times below count from then."), ((DAILY, BACKUP), "37% done")],
    ids=["alone", "beside a backup that runs"],
)
def test_what_only_an_administrator_ends_is_a_no(objects, waits):
    result = judged(*objects, release="v1.4.0")
    lines = text.text(result).splitlines()
    begin = (
        "Harvester refuses to start an upgrade until ScheduleVMBackup default/daily is suspended"
    )

    assert (result.possible, result.nodes_complete, result.stops) == (False, True, ())
    assert lines[0] == f"No: {begin}."
    assert lines[1].startswith("  to do: Suspend it, and resume it (spec.suspend false) once the")
    assert any(waits in line for line in lines)
    assert sum("is suspended" in line for line in lines) == 1
    assert "begins after that" in "\n".join(lines)
    assert html.page(result).verdict.word == "No"


@pytest.mark.parametrize(
    ("objects", "release", "reason", "remedy"),
    [
        (
            [own("VirtualMachineBackup", "b", metadata=LATE)],
            "v1.4.0",
            "VirtualMachineBackup default/b is not ready to use for 28 days",
            "See what keeps it",
        ),
        (
            [volume(replicas=1)],
            "v1.4.3",
            "1 Longhorn volume has a single replica (shop/pvc-1-disk)",
            "Give it a second one: kubectl patch volumes.longhorn.io pvc-1",
        ),
        (
            [volume(replicas=1), volume("pvc-0", replicas=1, state="detached")],
            "v1.5.0",
            "1 Longhorn volume has a single replica (shop/pvc-1-disk)",
            "or shut the VMs that use them down meanwhile, and give the Upgrade annotation "
            "harvesterhci.io/skipSingleReplicaDetachedVol",
        ),
        (
            [hotplugged(), vm()],
            "v1.8.2",
            "volume x of VM shop/db is plugged in, and not in its spec",
            "Remove it, or add it to the VM",
        ),
        (
            [
                volume(robustness="degraded"),
                longhorn("Setting", "concurrent-replica-rebuild-per-node-limit", value="0"),
            ],
            "v1.7.1",
            "concurrent-replica-rebuild-per-node-limit 0 lets it rebuild none",
            "Set the limit that Longhorn has by default: kubectl patch settings.longhorn.io",
        ),
        (
            [volume(robustness="degraded", since="2027-03-01T10:45:00Z"), volume("pvc-0")],
            "v1.7.1",
            "shop/pvc-1-disk has been degraded for 75 min, and no copy of it is rebuilt",
            "See why it does not become healthy: kubectl describe volumes.longhorn.io pvc-1",
        ),
        (
            [volume(robustness="degraded", since=OLD), engine()],
            "v1.7.1",
            "for 28 days, and a copy of it is being rebuilt all the same",
            "See why it does not become healthy",
        ),
        (
            [own("Upgrade", "u", SPACE, metadata=CLEANUP | LATE)],
            "v1.7.1",
            "Upgrade harvester-system/u cleans up after itself for 28 days",
            "See why its cleanup does not end: kubectl describe upgrades.harvesterhci.io u",
        ),
        (
            [
                manifest(
                    "cluster.x-k8s.io/v1beta1",
                    "Cluster",
                    "local",
                    "fleet-local",
                    metadata=LATE,
                    status={"phase": "Provisioning"},
                )
            ],
            "v1.7.1",
            "Cluster fleet-local/local of Cluster API is Provisioning for 28 days",
            "See why it is not: kubectl describe clusters.cluster.x-k8s.io local",
        ),
        (
            [own("Upgrade", "u", SPACE, metadata=LATE)],
            "v1.7.1",
            "harvester-system/u has not ended (without label harvesterhci.io/upgradeState)",
            "Finish it, or delete it",
        ),
        (
            [own("Upgrade", "u", SPACE, metadata=LATE | LABEL, status=FAILED)],
            "v1.7.1",
            "harvester-system/u counts as not ended (harvesterhci.io/upgradeState UpgradingNodes)",
            "Delete it, as it has ended: kubectl describe upgrades.harvesterhci.io u",
        ),
        (
            [machine(LATE)],
            "v1.7.1",
            "Machine fleet-local/m is without a phase",
            "See why it is not Running",
        ),
    ],
    ids=[
        *("old backup", "one replica", "one replica since 1.5", "hotplug", "no rebuilds"),
        *("never rebuilt", "rebuilt again and again", "old cleanup", "old cluster"),
        *("without label", "label left", "without phase"),
    ],
)
def test_what_has_to_be_repaired_is_a_stop(objects, release, reason, remedy):
    result = judged(*objects, release=release)
    (stop,) = (each for each in result.stops if reason in each.reason)

    assert result.possible is False
    assert stop.reason.startswith("Harvester refuses to start an upgrade while ")
    assert remedy in stop.remedy


@pytest.mark.parametrize(
    ("objects", "release", "restores"),
    [
        ([BACKUP, own("ScheduleVMBackup", "daily")], "v1.3.2", False),
        ([own("VirtualMachineBackup", "b", status={"error": {"message": "no"}})], "v1.7.1", False),
        ([own("VirtualMachineBackup", "b", status={"readyToUse": True})], "v1.7.1", False),
        ([own("ScheduleVMBackup", "daily", status={"suspended": True})], "v1.7.1", False),
        ([ADDON], "v1.6.1", False),
        ([own("Addon", "a", spec={"enabled": False})], "v1.7.1", False),
        ([volume(replicas=1, state="detached")], "v1.4.3", False),
        ([volume(state="detached", robustness="unknown")], "v1.7.1", False),
        ([guest(**PINNED)], "v1.6.0", True),
        ([guest(**CD)], "v1.8.0", False),
        ([hotplugged(), vm()], "v1.8.1", False),
    ],
    ids=[
        *("before 1.4", "failed backup", "backup", "suspended", "addons before 1.7", "addon off"),
        *("detached before 1.5", "detached", "restored", "cd since 1.8", "hotplug before 1.8.2"),
    ],
)
def test_what_its_release_does_not_refuse(objects, release, restores):
    result = judged(*objects, release=release, restores=restores)

    assert not any("refuses" in stop.reason for stop in result.stops)
    assert result.before_nodes == ""


def test_an_unknown_release_or_setting_is_told_as_a_condition_or_a_doubt():
    steps = judged(own("ScheduleVMBackup", "daily"), release="")
    blind = judged(guest(**PINNED), restores=None)
    idle = judged(volume(replicas=1, state="detached"), release="")
    (repair,) = judged(hotplugged(), vm(), release="").unseen
    other = "other releases or settings of Harvester refuse to start it until "

    assert (steps.possible, steps.before_nodes, blind.before_nodes) == (True, "", "")
    assert f"{other}ScheduleVMBackup default/daily is suspended" in "; ".join(steps.conditions)
    assert f"{other}the Upgrade is made with annotation" in "; ".join(idle.conditions)
    assert repair.startswith("whether Harvester refuses to start an upgrade while volume x")


def test_kinds_that_were_not_read_are_conditions():
    said = judged(unreadable=["addons.harvesterhci.io"]).conditions

    assert "no Addon that was not read refuses the start of the upgrade" in said
    assert not any("Addon" in each for each in judged().conditions)


def test_a_cluster_that_does_not_exist_is_a_condition():
    own = "Cluster fleet-local/local of Cluster API, which was not found, is Provisioned"

    assert own in judged().conditions
    assert own not in judged(CLUSTER).conditions


def test_the_release_is_read_from_the_webhook_too():
    container = {"name": "w", "image": "rancher/harvester-webhook:v1.3.2"}
    spec = {"template": {"spec": {"containers": [container]}}}
    webhook = manifest("apps/v1", "Deployment", "harvester-webhook", SPACE, spec=spec)

    assert judged(webhook, BACKUP, release="").before_nodes == ""


@pytest.mark.parametrize(
    "hidden",
    [
        *("volumes.longhorn.io", "machines.cluster.x-k8s.io", "clusters.cluster.x-k8s.io"),
        *("upgrades.harvesterhci.io", "virtualmachines.kubevirt.io"),
        "upgradeplans.management.harvesterhci.io",
    ],
)
def test_kinds_that_were_not_read(hidden):
    assert judged(unreadable=[hidden], release="v1.8.2").possible is None


@pytest.mark.parametrize(
    ("hidden", "release", "restores"),
    [
        ("upgradeplans.management.harvesterhci.io", "v1.7.1", False),
        ("virtualmachines.kubevirt.io", "v1.8.1", False),
        ("virtualmachines.kubevirt.io", "v1.8.2", True),
    ],
)
def test_kinds_that_its_release_does_not_ask(hidden, release, restores):
    assert judged(unreadable=[hidden], release=release, restores=restores).possible is True


def test_two_nodes_and_clusters_without_harvester_are_not_asked():
    sick = volume(robustness="degraded")

    assert judged(sick, nodes=NODES[:2]).before_nodes == ""
    assert judged(sick, nodes=tuple(map(node, "abc"))).before_nodes == ""


def test_an_upgrade_that_is_under_way_is_not_refused():
    status = {"conditions": [{"type": "Completed", "status": "Unknown"}]}
    label = {"labels": {"harvesterhci.io/latestUpgrade": "true"}, "creationTimestamp": NOW}
    upgrade = own("Upgrade", "u", SPACE, metadata=label, status=status)

    assert "refuses" not in judged(upgrade, BACKUP).before_nodes


def test_the_nodes_of_an_affinity_are_looked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(
        NodeSelector, "matches", lambda self, name, _: asked.append(name) or name == "a"
    )
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    place = {"nodeName": "a"}
    guests = [
        vmi(metadata={"name": name}, status=place, affinity={"nodeAffinity": wanted})
        for name in "wxyz"
    ]
    (found,) = refusing_vms.refusals(cluster(*guests))

    assert found.why.endswith("runs with a node affinity that no other node meets")
    assert asked == [*"abc"]


def test_rancher_takes_the_nodes_by_role_and_by_the_name_of_their_machine():
    server = {
        "node-role.kubernetes.io/etcd": "true",
        "node-role.kubernetes.io/control-plane": "true",
    }
    known = [node(name, MANAGED | (server if name in "bd" else {})) for name in "abcd"]
    machines = [
        manifest(
            "cluster.x-k8s.io/v1beta1",
            "Machine",
            f"custom-{number}",
            "fleet-local",
            status={"phase": "Running", "nodeRef": {"name": name}},
        )
        for number, name in enumerate("dcba")
    ]
    waves = judged(*machines, nodes=known).waves

    assert [name for wave in waves for name in wave.nodes] == ["d", "b", "c", "a"]
