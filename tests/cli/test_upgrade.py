"""``virt-admit upgrade``: verdict, waves, moves and bad input, over snapshots."""

import json

import jsonschema
import pytest
from click.testing import CliRunner

from tests.builders import manifest
from tests.cli.rehearsals import upgrade
from tests.paths import DOCS
from virt_admit.cli.main import virt_admit
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot

KUBEVIRT = "kubevirt.io/v1"
LABELS = {"kubevirt.io/schedulable": "true"}
ROOM = {"cpu": "16", "memory": "64Gi", "pods": "100", "ephemeral-storage": "100Gi"} | {
    f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net")
}
SCHEMA = json.loads((DOCS / "upgrade.schema.json").read_text())


def node(name, labels=None, memory="64Gi", **spec):
    return manifest(
        "v1",
        "Node",
        name,
        metadata={"labels": LABELS | (labels or {})},
        spec=spec,
        status={
            "allocatable": ROOM | {"memory": memory},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    )


def vm(name, on, strategy="LiveMigrate", run="Always", memory="4Gi", migratable="True", seconds=40):
    state = {
        "completed": True,
        "startTimestamp": "2026-01-01T00:00:00Z",
        "endTimestamp": f"2026-01-01T00:00:{seconds}Z",
    }
    return [
        manifest(KUBEVIRT, "VirtualMachine", name, "shop", spec={"runStrategy": run}),
        manifest(
            KUBEVIRT,
            "VirtualMachineInstance",
            name,
            "shop",
            metadata={"uid": name, "ownerReferences": [{"kind": "VirtualMachine", "name": name}]},
            spec={
                "evictionStrategy": strategy,
                "terminationGracePeriodSeconds": 60,
                "domain": {"memory": {"guest": memory}, "devices": {}},
            },
            status={
                "phase": "Running",
                "nodeName": on,
                "migrationState": state,
                "conditions": [
                    {
                        "type": "LiveMigratable",
                        "status": migratable,
                        "reason": "DisksNotLiveMigratable",
                    }
                ],
            },
        ),
    ]


def kubevirt(**migrations):
    return manifest(
        KUBEVIRT,
        "KubeVirt",
        "kubevirt",
        "kubevirt",
        spec={"configuration": {"migrations": migrations}},
    )


def pool(name="worker", selector="worker", **spec):
    chosen = {"matchLabels": {f"node-role.kubernetes.io/{selector}": ""}}
    return manifest(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        name,
        spec={"nodeSelector": chosen, **spec},
    )


def rehearse(*groups, complete=("*",), unreadable=(), **options):
    objects = [item for group in groups for item in (group if isinstance(group, list) else [group])]
    rendered, code = upgrade(Snapshot(objects, complete, unreadable), Options(**options), "json")
    data = json.loads(rendered)
    jsonschema.validate(data, SCHEMA)
    assert code == {True: 0, False: 1, None: 2}[data["possible"]]
    return data


def test_one_migration_at_a_time():
    data = rehearse(
        [node("a"), node("b"), node("c")],
        *[vm(f"v{number}", "b") for number in range(6)],
        kubevirt(parallelOutboundMigrationsPerNode=1),
        node_minutes=0,
    )

    assert data["possible"] is True
    assert [wave["nodes"] for wave in data["waves"]][-1] == ["b"] or data["waves"]
    assert data["duration"]["low"] >= 6 * 40
    assert data["duration"]["low"] % 40 == 0
    assert data["faster"][0]["setting"] == "parallelOutboundMigrationsPerNode"
    assert {saving["to"] for saving in data["faster"]} >= {2}


@pytest.mark.parametrize(
    ("limits", "seconds"), [((5, 1), 240), ((5, 2), 120), ((1, 6), 240), ((3, 6), 80), ((6, 6), 40)]
)
def test_the_limits_of_the_queue(limits, seconds):
    per_cluster, per_node = limits
    data = rehearse(
        [node("a"), node("b")],
        *[vm(f"v{number}", "a") for number in range(6)],
        kubevirt(
            parallelMigrationsPerCluster=per_cluster, parallelOutboundMigrationsPerNode=per_node
        ),
        node_minutes=0,
        driver=Driver.PLAIN,
    )

    assert data["duration"]["low"] == seconds  # b is empty, a moves to it


def test_a_vm_that_blocks_stops_the_upgrade_and_is_named():
    data = rehearse([node("a"), node("b")], vm("db", "a", migratable="False"), kubevirt())

    assert data["possible"] is False
    assert data["duration"] is None
    assert {stop["node"] for stop in data["stops"]} == {"a"}
    assert [stop["problem"] for stop in data["stops"]] == [
        "DisksNotLiveMigratable:shop/db",
        "InterfaceNotLiveMigratable:shop/db",
    ]
    assert all("shop/db" in stop["reason"] and stop["remedy"] for stop in data["stops"])


def test_a_cluster_without_room():
    data = rehearse([node("a"), node("b", memory="8Gi")], vm("big", "a", memory="40Gi"), kubevirt())

    assert data["possible"] is False
    assert "memory" in data["stops"][0]["reason"]


def test_room_that_appears_while_nodes_come_back():
    """b is full of VMs that fit on the empty c, so the big one waits for b."""
    data = rehearse(
        [node("a"), node("b"), node("c")],
        vm("big", "a", memory="50Gi"),
        *[vm(f"s{number}", "b", memory="8Gi") for number in range(5)],
        kubevirt(),
        max_unavailable="1",
    )

    assert data["possible"] is True


def test_an_end_that_depends_on_who_goes_first():
    """Two nodes of two VMs are drained at once, and the third has room for two:
    one node has to be emptied first.
    """
    data = rehearse(
        [node(name, memory="18Gi") for name in "abc"],
        *[vm(f"{name}{number}", name, memory="7Gi") for name in "ab" for number in range(2)],
        kubevirt(parallelMigrationsPerCluster=1),
        driver=Driver.PLAIN,
        max_unavailable="3",
    )

    assert data["possible"] is None
    assert data["duration"] is None
    assert "depends on which VMs KubeVirt moves first" in data["unseen"][0]
    assert {stop["node"] for stop in data["stops"]} == {"a", "b"}


def test_one_node():
    data = rehearse([node("a")], vm("db", "a"), kubevirt())
    assert data["possible"] is False


@pytest.mark.parametrize(
    "limit", ["parallelMigrationsPerCluster", "parallelOutboundMigrationsPerNode"]
)
def test_a_limit_of_zero(limit):
    data = rehearse([node("a"), node("b")], vm("db", "a"), kubevirt(**{limit: 0}))

    assert data["possible"] is False
    assert f"{limit} is 0" in data["stops"][0]["reason"]


def test_vms_that_stay_off_do_not_stop_it():
    data = rehearse(
        [node("a"), node("b")], vm("batch", "a", strategy="None", run="Manual"), kubevirt()
    )

    assert data["possible"] is True
    assert [(one["name"], one["moves"], one["outcome"]) for one in data["vms"]] == [
        ("batch", 0, "stops for good")
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"paused": True}, "paused"),
        ({"maxUnavailable": "50%"}, None),
        ({}, None),
        ({"maxUnavailable": "x"}, "not valid"),
    ],
)
def test_machine_config_pools(spec, said):
    worker = {"node-role.kubernetes.io/worker": ""}
    data = rehearse([node(name, worker) for name in "abcd"], pool(**spec), kubevirt(), driver=None)

    assert data["by"] == "machineconfig"
    if said:
        assert data["possible"] is False
        assert said in data["stops"][0]["reason"]
    else:
        assert [len(wave["nodes"]) for wave in data["waves"]] == (
            [2, 2] if spec.get("maxUnavailable") == "50%" else [1] * 4
        )


def test_nodes_go_by_zone_and_then_by_age():
    worker = {"node-role.kubernetes.io/worker": ""}
    zones = {"a": "z2", "b": "z1", "c": "z1"}
    nodes = [
        node(name, worker | {"topology.kubernetes.io/zone": zone}) for name, zone in zones.items()
    ]
    data = rehearse(nodes, pool(), kubevirt())

    assert [wave["nodes"] for wave in data["waves"]] == [["b"], ["c"], ["a"]]


@pytest.mark.parametrize(
    "kind", ["nodes", "pods", "virtualmachineinstances.kubevirt.io", "kubevirts.kubevirt.io"]
)
def test_what_could_not_be_read_leaves_the_answer_open(kind):
    data = rehearse([node("a"), node("b")], vm("db", "a"), unreadable=[kind])

    assert data["possible"] is None
    assert data["duration"] is None
    assert any(kind in what for what in data["unseen"])


POOLS = "machineconfigpools.machineconfiguration.openshift.io"
DEPLOYMENTS = "machinedeployments.cluster.x-k8s.io"
CAPI_MACHINES = "machines.cluster.x-k8s.io"


@pytest.mark.parametrize("kind", [POOLS, DEPLOYMENTS])
def test_unread_drivers_leave_the_answer_open(kind):
    data = rehearse([node("a"), node("b")], vm("db", "a"), kubevirt(), unreadable=[kind])

    assert data["possible"] is None
    assert data["unseen"] == [kind]


def test_a_paused_pool_out_of_sight():
    nodes = [node(name, {"node-role.kubernetes.io/worker": ""}) for name in "abcd"]

    assert rehearse(nodes, pool(paused=True), kubevirt())["possible"] is False
    assert rehearse(nodes, kubevirt(), unreadable=[POOLS])["possible"] is None


@pytest.mark.parametrize(
    ("driver", "unread", "possible"),
    [
        (Driver.PLAIN, (POOLS, DEPLOYMENTS, CAPI_MACHINES), True),
        (Driver.MACHINE_CONFIG, (DEPLOYMENTS, CAPI_MACHINES), True),
        (Driver.MACHINE_CONFIG, (POOLS,), None),
        (Driver.CLUSTER_API, (POOLS,), True),
        (Driver.CLUSTER_API, (CAPI_MACHINES,), None),
        (None, (DEPLOYMENTS, CAPI_MACHINES), True),  # the pools decide first
    ],
)
def test_a_driver_needs_its_own_kinds_alone(driver, unread, possible):
    worker = {"node-role.kubernetes.io/worker": ""}
    labels = {"labels": {"cluster.x-k8s.io/deployment-name": "workers"}}
    machines = [
        manifest(
            "cluster.x-k8s.io/v1beta1",
            "Machine",
            name,
            "capi",
            metadata=labels,
            status={"nodeRef": {"name": name}},
        )
        for name in "ab"
    ]
    deployment = manifest(
        "cluster.x-k8s.io/v1beta1", "MachineDeployment", "workers", "capi", spec={}
    )
    groups = (
        [node(name, worker) for name in "ab"],
        vm("db", "a"),
        kubevirt(),
        pool(),
        deployment,
        machines,
    )

    assert rehearse(*groups, unreadable=unread, driver=driver)["possible"] is possible


def test_an_empty_snapshot():
    assert rehearse(complete=())["possible"] is None


def test_the_same_input_gives_the_same_bytes():
    cluster = [node("a"), node("b"), node("c"), *vm("x", "a"), *vm("y", "b"), kubevirt()]
    runs = {
        upgrade(Snapshot(cluster, ["*"]), Options(), output)[0]
        for output in ("text", "json")
        for _ in range(3)
    }
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--max-unavailable", "many"], "--max-unavailable"),
        (["--node-minutes", "-1"], "--node-minutes"),
        (["--start", "tomorrow"], "tomorrow"),
        (["--start", "9999-12-31T23:59"], "9999-12-31T23:59 is after the year 9000"),
        (["--by", "magic"], "--by"),
    ],
)
def test_bad_options(tmp_path, args, said):
    (tmp_path / "cluster.json").write_text(
        json.dumps(
            {
                "apiVersion": "virt-admit.io/v1alpha1",
                "kind": "Snapshot",
                "complete": ["*"],
                "items": [node("a").data, pool(selector="none").data, kubevirt().data],
            }
        )
    )
    result = CliRunner().invoke(
        virt_admit, ["upgrade", "--cluster", str(tmp_path / "cluster.json"), *args]
    )

    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_the_text_says_the_verdict_first(tmp_path):
    cluster = Snapshot([node("a"), node("b"), *vm("x", "a"), kubevirt()], ["*"])
    text, code = upgrade(cluster, Options(), "text")

    assert code == 0
    assert text.startswith("Yes: 2 nodes in 20 min to ")
    assert "The estimate rests on: parallelMigrationsPerCluster" in text


@pytest.mark.parametrize(
    ("objects", "driver", "verdict"),
    [
        ([], None, "Cannot be determined: the nodes of the cluster: none is known."),
        ([node("a")], None, "Yes: 1 node in 10 min."),
        (
            [node("a", {"node-role.kubernetes.io/worker": ""}), pool()],
            None,
            "Yes: 1 node in the order of the MachineConfigPools in 10 min.",
        ),
        (
            [node("a")],
            Driver.CLUSTER_API,
            (
                "Cannot be determined: no node belongs to a pool that cluster-api updates. Use "
                "--by plain."
            ),
        ),
    ],
)
def test_verdicts(objects, driver, verdict):
    text, _ = upgrade(Snapshot(objects, ["*"]), Options(driver=driver), "text")
    assert verdict in text.splitlines()


def test_what_is_not_available():
    text, code = upgrade(
        Snapshot([node("a")], ["*"], ["nodes", "resourcequotas"]), Options(), "text"
    )
    assert code == 2
    assert "Not available: nodes. There may be more VMs." in text.splitlines()


@pytest.mark.parametrize("form", ["text", "html=page.html"])
def test_an_end_after_the_last_year_of_the_calendar(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    objects = [node("a"), node("b"), *vm("x", "a")]
    objects[-1].data["status"]["migrationState"]["endTimestamp"] = "8000-01-01T00:00:00Z"
    items = {"complete": ["*"], "items": [one.data for one in objects]}
    (tmp_path / "c.json").write_text(
        json.dumps({"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot"} | items)
    )
    args = ["upgrade", "--cluster", "c.json", "--start", "8999-12-31T23:59", "-o", form]
    done = CliRunner().invoke(virt_admit, args, standalone_mode=False)
    assert done.exception is None
    assert done.return_value == 0
    assert "after the year 9999" in (done.stdout or (tmp_path / "page.html").read_text())


def test_without_a_kubevirt_object_its_defaults_count():
    data = rehearse(
        [node("a"), node("b")], *[vm(f"v{number}", "a") for number in range(4)], node_minutes=0
    )

    assert data["possible"] is True
    assert "KubeVirt's defaults" in " ".join(data["duration"]["rests_on"])
    assert data["duration"]["low"] >= 2 * 40  # two at a time


def test_the_control_plane_is_updated_first_where_no_pool_decides():
    master = {"node-role.kubernetes.io/control-plane": ""}
    data = rehearse(
        [node("a"), node("b"), node("y", master), node("z", master)],
        vm("db", "y"),
        kubevirt(),
        max_unavailable="2",
    )

    assert [wave["nodes"] for wave in data["waves"]] == [["z"], ["y"], ["a", "b"]]


def test_huge_limits():
    huge = kubevirt(
        parallelMigrationsPerCluster=2**31 - 1, parallelOutboundMigrationsPerNode=2**31 - 1
    )
    data = rehearse(
        [node("a"), node("b")],
        *[vm(f"v{number}", "a") for number in range(4)],
        huge,
        node_minutes=0,
    )

    assert data["possible"] is True
    assert data["faster"] == [] or data["faster"][0]["setting"] == "nodes at the same time"


def test_a_node_that_is_not_ready_is_a_stop_of_its_pool():
    worker = {"node-role.kubernetes.io/worker": ""}
    away = node("b", worker)
    away.data["status"]["conditions"][0]["status"] = "Unknown"
    data = rehearse([node("a", worker), away], vm("db", "a"), pool(), kubevirt())

    assert data["possible"] is False
    assert (
        "updates no other node: b, not Ready, uses up its maxUnavailable 1"
        in data["stops"][0]["reason"]
    )
    assert data["stops"][0]["remedy"] == "Repair b: kubectl describe node b"


@pytest.mark.parametrize("driver", [Driver.MACHINE_CONFIG, Driver.CLUSTER_API])
def test_nodes_without_a_pool_are_not_called_updated(driver):
    data = rehearse([node("a"), node("b")], vm("db", "a"), kubevirt(), driver=driver)

    assert data["possible"] is None
    assert f"no node belongs to a pool that {driver} updates" in data["unseen"][0]
