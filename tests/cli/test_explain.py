"""``virt-admit explain``, as people and as programs read it."""

import json

import pytest

from tests.cli.explain_cases import SNR, data_of, lines, vm
from tests.forecasts.drain import vm_motion as motion
from tests.health_checks import (
    CAPI,
    FAR,
    FENCES,
    capi,
    ladder,
    machine,
    make,
    mhc,
    nhc,
    node,
    template,
)
from virt_admit.cli.commands.explain import KINDS, LOOKS_UP, explain, find, text
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.explain.check import html

FENCE = make(
    FAR, "FenceAgentsRemediationTemplate", "auto", "wa", spec={"template": {"spec": FENCES}}
)


def world():
    check = ladder((5, "6m", SNR.api_version), (15, "15m", FAR))
    check.data["spec"] |= {
        "minHealthy": 1,
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "2m"}],
    }
    objects = [node("n0"), node("n1", Ready="Unknown"), node("n2"), SNR, FENCE, nhc("again"),
               *vm("db", "Manual", "n0"), *vm("web", "Always", "n1"),
               *vm("api", "Always", "n2")]  # fmt: skip
    return check, objects


def test_text():
    check, objects = world()
    assert lines(explain(check, Snapshot(objects, complete=["*"]))) == [
        "NodeHealthCheck workers",
        "selects 3 nodes: n0, n1, n2",
        "limit minHealthy 1: acts while no more than 2 of 3 are unhealthy",
        "unhealthy if Ready=Unknown for 2m",
        "unhealthy now 1: n1 (Ready=Unknown)",
        "VMs restart after 5m50s = 50s until noticed + 2m Ready=Unknown + 3m remediator",
        "overlaps with again: both watch n0, n1, n2",
        "",
        "Remediation of a node",
        "remediator takes next step after",
        "1. SelfNodeRemediation wa/auto 3m 6m",
        "2. FenceAgentsRemediation wa/auto up to 5m20s 15m",
        "",
        "When a node stops reporting, and the limit lets the check act",
        "0s the node stops reporting",
        "50s Ready becomes Unknown, at the end of the grace period",
        "2m50s NodeHealthCheck workers acts: Ready was Unknown for 2m",
        "2m50s SelfNodeRemediation wa/auto",
        "5m50s the node is confirmed down and its pods are deleted; its VMs can start elsewhere",
        "8m50s step 2, if the node is still unhealthy: FenceAgentsRemediation wa/auto",
        (
            "8m50s to 14m10s the node is confirmed down and its pods are deleted; its VMs can "
            "start elsewhere"
        ),
        "23m50s no step is left",
        "",
        "VMs after their node is confirmed down",
        "restarted runStrategy Always 2 VMs: shop/api, shop/web",
        "stays off runStrategy Manual 1 VM: shop/db",
    ]


def test_vms_that_never_restart_are_not_counted_as_restarted():
    check = mhc(unhealthyConditions=[{"type": "Ready", "status": "False", "timeout": "5m"}])
    objects = [
        node("n0"),
        node("n1"),
        machine("m0", nodeRef={"name": "n0"}),
        *vm("db", "Always", "n0"),
    ]
    found = explain(check, Snapshot(objects, complete=["*"]))
    assert "VMs if an administrator confirms that their node is down" in lines(found)
    facts = {"name": "workers", "facts": (), "stages": (), "obstacles": (), "unseen": ()}
    shown = html.page([html.Check(**facts, timeline=found.timeline, fates=found.fates)])
    assert shown.verdict.word == "Never"
    assert [(tile.number, tile.label) for tile in shown.tiles if tile.number] == [
        (1, "VMs never restart")
    ]
    assert [cause.word for cause in shown.causes] == ["never restarts"]


def test_data():
    check, objects = world()
    data = data_of(explain(check, Snapshot(objects, complete=["*"])))
    assert json.loads(json.dumps(data)) == data
    assert data["object"] == {
        "apiVersion": check.api_version,
        "kind": "NodeHealthCheck",
        "namespace": "",
        "name": "workers",
    }
    assert data["selected"] == {
        "kind": "Node",
        "count": 3,
        "complete": True,
        "names": ["n0", "n1", "n2"],
    }
    assert data["limit"] == {"text": "minHealthy 1", "least": 1, "most": 2, "never": False,
                             "everything": False,
                             "controlPlaneOneByOne": False}  # fmt: skip
    assert data["conditions"] == [{"type": "Ready", "status": "Unknown", "seconds": 120}]
    assert (data["machineConditions"], data["startup"]) == ([], None)
    assert data["unhealthy"] == [{"name": "n1", "why": "Ready=Unknown"}]
    assert data["overlaps"] == [{"name": "again", "shared": ["n0", "n1", "n2"]}]
    assert data["steps"][1] == {
        "name": "FenceAgentsRemediation wa/auto", "takes": {"least": 0, "most": 320},
        "timeout": 900, "cancelled": False,
        "fails": None,
    }  # fmt: skip
    assert [(moment["event"], moment["at"]["least"]) for moment in data["timeline"]][2] == (
        "acts",
        170,
    )
    assert data["restart"] == {
        "least": 350, "most": 350, "grace": 50, "patience": 120, "wasted": 0,
        "remediator": {"least": 180, "most": 180}
    }  # fmt: skip
    assert [(each["name"], each["node"], each["restarted"]) for each in data["vms"]] == [
        ("db", "n0", False), ("web", "n1", True), ("api", "n2", True)
    ]  # fmt: skip
    assert data["obstacles"] == data["unseen"] == []
    assert (data["unhealthyComplete"], data["never"]) == (True, None)


ON_NODE = machine("m0", nodeRef={"name": "n0"})


@pytest.mark.parametrize(
    ("run_strategy", "memory", "level", "word"),
    [
        ("Always", "8Gi", "good", "VMs restart"),
        ("Manual", "8Gi", "severe", "Not all VMs restart"),
        ("Always", "1Mi", "severe", "Not all VMs restart"),
        (None, "8Gi", "unknown", "Not certain"),
    ],
)
def test_the_page_is_green_only_where_every_vm_restarts(run_strategy, memory, level, word):
    check = ladder((5, "6m", SNR.api_version))
    check.data["spec"] |= {
        "minHealthy": 1,
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "2m"}],
    }
    owner, vmi = vm("db", run_strategy, "n0")
    if run_strategy is None:
        del owner.data["spec"]
    nodes = [node(name) for name in ("n0", "n1", "n2")]
    for each in nodes:
        each.data["metadata"].setdefault("labels", {})["kubevirt.io/schedulable"] = "true"
        each.data["status"]["allocatable"] = motion.ROOM | {"memory": memory}
    vmi.data["spec"] = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}
    found = explain(check, Snapshot([check, *nodes, SNR, owner, vmi], complete=["*"]))
    page = html.page([
        html.Check(name="workers", facts=(), stages=(), timeline=found.timeline, fates=found.fates,
                   obstacles=found.obstacles, unseen=found.unseen)
    ])  # fmt: skip
    assert (page.verdict.level, page.verdict.word) == (level, word), (
        page.verdict,
        found.unseen,
        found.fates,
    )


def test_missing_data_is_named():
    check, _ = world()
    explanation = explain(check, NOTHING)
    assert "selects cannot be determined" in lines(explanation)
    assert "unhealthy now cannot be determined" in lines(explanation)
    assert "limit minHealthy 1: cannot be determined" in lines(explanation)
    assert "limit maxUnhealthy 100%: sets no limit, may remediate all at once" in lines(
        explain(mhc(), NOTHING)
    )
    assert explanation.unseen == (
        "nodes",
        "machinehealthchecks.machine.openshift.io",
        "selfnoderemediationtemplates.self-node-remediation.medik8s.io wa/auto",
        "fenceagentsremediationtemplates.fence-agents-remediation.medik8s.io wa/auto",
        "clusterversions.config.openshift.io",
        "nodes.config.openshift.io cluster",
    )
    data = data_of(explanation)
    assert (data["selected"]["complete"], data["unhealthyComplete"]) == (False, False)


@pytest.mark.parametrize(
    ("objects", "complete", "selects", "unhealthy"),
    [
        (
            [machine("m0")],
            [],
            "1 machine that can be read: m0",
            "1 that can be read: m0 (has no node)",
        ),
        ([ON_NODE], ["machines.machine.openshift.io"], "1 machine: m0", "cannot be determined"),
        (
            [ON_NODE],
            ["machines.machine.openshift.io", "nodes"],
            "1 machine: m0",
            "1: m0 (its node does not exist)",
        ),
        ([ON_NODE, node("n0")], ["machines.machine.openshift.io"], "1 machine: m0", "none"),
        ([ON_NODE, node("n0")], [], "1 machine that can be read: m0", "cannot be determined"),
        ([], ["machines.machine.openshift.io"], "0 machines", "none"),
    ],
)
def test_unseen_is_not_absent(objects, complete, selects, unhealthy):
    found = lines(explain(mhc(), Snapshot(objects, complete=complete)))
    assert f"selects {selects}" in found
    assert f"unhealthy now {unhealthy}" in found


def test_why_never_as_data():
    check, cluster = (
        mhc(maxUnhealthy="40%", unhealthyConditions=TIMES),
        [machine("m0"), machine("m1")],
    )
    data = data_of(explain(check, Snapshot(cluster, complete=["*"])))
    assert data["limit"]["never"]
    assert (data["restart"], data["never"]) == (
        None,
        "maxUnhealthy 40% allows 0 of 2 to be unhealthy",
    )


FAILED = machine("m0")
FAILED.data["status"] = {"phase": "Failed"}


def other_master(name):
    return make("v1", "Node", name, labels={"pool": "a", "node-role.kubernetes.io/master": ""})


def under_remediation(name):
    obj = machine(name)
    obj.data["metadata"]["annotations"] = {"host.metal3.io/external-remediation": ""}
    return obj


MASTER = other_master("n0")

TIMES = [
    {"type": "Ready", "status": "Unknown", "timeout": "5m"},
    {"type": "Ready", "status": "False", "timeout": "soon"},
]


@pytest.mark.parametrize(
    ("check", "objects", "expected"),
    [
        (mhc(unhealthyConditions=TIMES, maxUnhealthy="30%"), [machine("m0"), machine("m1")], [
            (
                "limit maxUnhealthy 30%: never acts, because it allows 0 of 2 to be unhealthy. Set "
                "1, or at least 50%"
            ),
            "unhealthy if Ready=Unknown for 5m; Ready=False for a duration that is not valid",
            "or a machine is Failed, or its node does not exist; has no node for 10m",
            "unhealthy now 2: m0 (has no node), m1 (has no node)",
            "VMs restart never: maxUnhealthy 30% allows 0 of 2 to be unhealthy",
            (
                "1. the Machine is deleted and MachineSet set creates a new one depends on the "
                "platform"
            ),
        ]),
        (mhc(unhealthyConditions=TIMES), [machine("m0")], [
            "limit maxUnhealthy 100%: sets no limit, may remediate all 1 at once",
            (
                "VMs restart after 5m50s or later = 50s until noticed + 5m Ready=Unknown + the "
                "time that the platform needs"
            ),
        ]),
        (mhc(unhealthyConditions=TIMES), [], ["selects 0 machines", "unhealthy now none"]),
        (mhc(), [], ["unhealthy if (no condition is listed)"]),
        (mhc(nodeStartupTimeout="0"), [], ["or a machine is Failed, or its node does not exist"]),
        (mhc(nodeStartupTimeout="soon"), [], [
            (
                "or a machine is Failed, or its node does not exist; has no node for a duration "
                "that is not valid"
            ),
        ]),
        (capi(unhealthyMachineConditions=[{"type": "Worn", "status": "True", "timeout": "1h"}]), [],
         [
            "or a machine reports Worn=True for 1h; its node does not exist; has no node for 10m",
        ]),
        (mhc(maxUnhealthy=1), [FAILED, machine("m1")], [
            "unhealthy now 2: m0 (Failed), m1 (has no node)",
            "does nothing 2 are unhealthy or soon will be: more than 1",
        ]),
        (capi(unhealthyRange="[2-3]"), [machine(f"m{i}", CAPI, "c") for i in range(4)], [
            "limit unhealthyRange [2-3]: acts while 2 to 3 of 4 are unhealthy",
            "VMs restart never: no condition Ready=Unknown with a valid time is listed",
        ]),
        (capi(unhealthyRange="[5-6]", unhealthyConditions=TIMES), [machine("m0", CAPI, "c")], [
            (
                "limit unhealthyRange [5-6]: never acts, because it requires 5 unhealthy, but "
                "selects only 1"
            ),
            "VMs restart never: unhealthyRange [5-6] requires 5 unhealthy, but selects only 1",
        ]),
        (nhc(maxUnhealthy="100%"), [MASTER, other_master("n1")], [
            (
                "limit maxUnhealthy 100%: acts while no more than 2 of 2 are unhealthy, on one "
                "control-plane node at a time"
            ),
        ]),
        (mhc(maxUnhealthy=1), [under_remediation("m0"), machine("m1")], [
            "unhealthy now 2: m0 (waits for external remediation), m1 (has no node)",
            "does nothing 2 are unhealthy or soon will be: more than 1",
        ]),
        (nhc(remediationTemplate=template()), [], [
            "does nothing SelfNodeRemediationTemplate wa/auto does not exist",
        ]),
        (ladder((1, "1m", SNR.api_version)), [SNR],
         ["1. SelfNodeRemediation wa/auto 3m 1m: too short"]),
        (ladder((1, "1m", SNR.api_version), (2, "1h", SNR.api_version)), [SNR, node("n0")], [
            (
                "VMs restart after 9m50s = 50s until noticed + 5m Ready=Unknown + 1m wasted + 3m "
                "remediator"
            ),
            "6m50s cancelled before it finishes: it needs 3m",
        ]),
    ],
)  # fmt: skip
def test_lines(check, objects, expected):
    found = lines(explain(check, Snapshot(objects, complete=["*"])))
    for line in expected:
        assert line in found


def test_other_kinds_are_refused():
    with pytest.raises(ValueError, match="VirtualMachine shop/db cannot be explained"):
        explain(make("kubevirt.io/v1", "VirtualMachine", "db", "shop"), NOTHING)
    with pytest.raises(ValueError, match="MachineHealthCheck md cannot be explained"):
        explain(
            make("machineremediation.kubevirt.io/v1alpha1", "MachineHealthCheck", "md"), NOTHING
        )


@pytest.mark.parametrize(
    ("target", "namespace", "group"),
    [
        ("nhc/workers", None, "remediation.medik8s.io"),
        ("nhc/workers", "elsewhere", "remediation.medik8s.io"),
        ("NodeHealthCheck/workers", None, "remediation.medik8s.io"),
        ("nodehealthchecks.remediation.medik8s.io/workers", None, "remediation.medik8s.io"),
        ("mhc/workers", None, "machine.openshift.io"),
        ("mhc/md", "c", "cluster.x-k8s.io"),
        ("machinehealthcheck.cluster.x-k8s.io/c/md", None, "cluster.x-k8s.io"),
        ("mhc/c/md", "elsewhere", "cluster.x-k8s.io"),
    ],
)
def test_find(target, namespace, group):
    cluster = Snapshot([nhc(), mhc(), mhc("md"), capi()], complete=["*"])
    assert find(target, cluster, namespace).group == group


@pytest.mark.parametrize(
    ("target", "complete", "says"),
    [
        ("mhc/md", ["*"], "cluster.x-k8s.io/v1beta1 c/md"),
        ("nhc/other", ["*"], "nhc/other does not exist"),
        (
            "nhc/other",
            [],
            "nhc/other cannot be found: nodehealthchecks.remediation.medik8s.io are not available",
        ),
        ("vm/db", ["*"], "write nhc/NAME"),
        ("nhc", ["*"], "write nhc/NAME"),
        ("nhc/", ["*"], "write nhc/NAME"),
    ],
)
def test_what_is_not_found(target, complete, says):
    with pytest.raises(LookupError, match=says):
        find(target, Snapshot([nhc(), mhc("md"), capi()], complete=complete))


def test_every_kind_that_is_looked_up_is_declared():
    check, objects = world()
    looked_up = set()

    class Recorder(Snapshot):
        def sees_all(self, kind):
            looked_up.add(kind)
            return super().sees_all(kind)

    for each in (check, mhc(remediationTemplate=template()), capi()):
        explain(each, Recorder(objects))
    assert looked_up <= set(LOOKS_UP)
    assert kinds.VMI in looked_up


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_empty_check(kind):
    obj = Object({"apiVersion": kind.api_version, "kind": kind.kind})
    assert text(explain(obj, Snapshot(complete=["*"])))
