"""An update of OpenShift that is not accepted, or does not get past an operator,
reaches no node.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.advice import risky
from tests.healthy.openshift import config_notes
from tests.healthy.parts import Object as Raw
from tests.healthy.parts import ago, obj, pod, snapshot
from tests.incidents_platform.case import only
from tests.incidents_platform.cluster_updates import (
    KEY,
    REFUSED,
    at_rest,
    condition,
    operator,
    version,
)
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, Stop, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of
from virt_admit.reports.drain.text import text as drain_text
from virt_admit.reports.upgrade.text import text

BEHIND = operator("machine-config", "4.20.1")
REACHED = operator("machine-config", "4.20.6")
FAILING = condition(
    "Failing", True, "ClusterOperatorDegraded", "Cluster operator ingress is degraded", hours=4
)
LOADED = condition(
    "ReleaseAccepted", True, "PayloadLoaded", 'Payload loaded version="4.20.6" image="x:old"'
)
REFUSES = ("ReleaseAccepted", False, "PreconditionChecks")


def rehearsed(
    *more: Raw, options: Options | None = None, unreadable: tuple[str, ...] = ()
) -> Rehearsal:
    found = snapshot([*at_rest(), *more])
    items = map(Object, found["items"])
    cluster = Snapshot(items, ["*"], unreadable, time=found["time"])
    return rehearse(cluster, options or Options(), forecast_only=True)


def test_a_plan_of_all_drains_knows_that_the_update_is_held() -> None:
    ingress = operator("ingress", "4.20.1", Degraded="one router is Pending")
    found = snapshot([*at_rest(), applying(FAILING), BEHIND, ingress])
    cluster = Snapshot(map(Object, found["items"]), ["*"], time=found["time"])
    said = drain_text(drain_plan.plan(cluster))
    assert "upgraded today? No: the update to 4.20.6 waits for ClusterOperator ingress" in said


def applying(*conditions: Raw) -> Raw:
    return version("4.20.6", "4.20.6", LOADED, *conditions, state="Partial")


WAITS = {
    "refused": ([version("4.18.20", "4.19.9", condition(*REFUSES, REFUSED))], False),
    "being loaded": (
        [version("4.18.20", "4.19.9", LOADED | {"status": "Unknown", "message": "Retrieving"})],
        None,
    ),
    "of an earlier update": (
        [version("4.18.20", "4.19.9", condition(*REFUSES, REFUSED.replace("4.19.9", "4.19.8")))],
        None,
    ),
    "accepted before, and not looked at since": ([version("4.18.20", "4.19.9", LOADED)], None),
    "no condition": ([version("4.18.20", "4.19.9")], None),
    "an image that cannot be pulled": (
        [
            version(
                "4.18.20",
                "4.19.9",
                condition("ReleaseAccepted", False, "RetrievePayload", "no route", hours=2),
            )
        ],
        False,
    ),
    "an image that could not be pulled just now": (
        [
            version(
                "4.18.20",
                "4.19.9",
                condition("ReleaseAccepted", False, "RetrievePayload", "no route", minutes=2),
            )
        ],
        None,
    ),
    "not valid": (
        [
            version(
                "4.18.20",
                "4.19.9",
                condition(
                    "Invalid",
                    True,
                    "I",
                    "The cluster version is invalid: spec.desiredUpdate.version",
                ),
            )
        ],
        False,
    ),
    "another field is not valid": (
        [
            version(
                "4.20.6",
                "4.20.6",
                LOADED,
                condition("Invalid", True, "I", "The cluster version is invalid: spec.clusterID"),
            )
        ],
        True,
    ),
    "no updates can be retrieved": (
        [version("4.20.6", "4.20.6", condition("RetrievedUpdates", False, "NoChannel"))],
        True,
    ),
    "on its way": ([applying(condition("Failing", False)), BEHIND], True),
    "fails for hours": (
        [applying(FAILING), BEHIND, operator("ingress", "4.20.1", Degraded="why")],
        False,
    ),
    "fails, no operator is known": ([applying(FAILING)], None),
    "fails for minutes": (
        [applying(FAILING | {"lastTransitionTime": "2026-11-20T11:50:00Z"}), BEHIND],
        None,
    ),
    "fails after the nodes": ([applying(FAILING), REACHED], True),
    "slow": (
        [
            applying(
                condition("Failing", False) | {"status": "Unknown", "reason": "SlowClusterOperator"}
            ),
            BEHIND,
        ],
        None,
    ),
    "nothing is asked for": (
        [version("4.20.6", None, FAILING, condition("Upgradeable", False, "X"))],
        True,
    ),
    "no ClusterVersion": ([], True),
}


@pytest.mark.parametrize("name", WAITS)
def test_verdict(name: str) -> None:
    objects, possible = WAITS[name]
    found = rehearsed(*objects)
    assert found.possible is possible, found
    assert bool(found.waves) is (possible is True)
    assert len(found.stops) == (possible is False)


def test_a_release_with_the_same_name_and_another_image_is_another_one() -> None:
    own = version("4.20.6", "4.20.6")
    own["spec"]["desiredUpdate"]["image"] = "quay.io/multi"
    assert rehearsed(own).possible is None


def test_an_update_by_its_version_alone() -> None:
    own = version("4.20.6", "4.20.6")
    del own["spec"]["desiredUpdate"]["image"]
    assert rehearsed(own).possible is True


def test_what_the_next_update_would_meet() -> None:
    own = version(
        "4.20.6", None, condition("Upgradeable", False, "MultipleReasons", "two operators refuse")
    )
    found = rehearsed(
        own,
        operator("dns", "4.20.6", Degraded="slow"),
        operator("etcd", "4.20.6", Available="none"),
    )
    assert found.refused is not None
    assert [each.reason for each in found.refused.by] == [
        "ClusterVersion version is not Upgradeable: two operators refuse"
    ]
    assert found.possible is None
    assert any(
        each.startswith(
            "whether an update gets past ClusterOperator etcd, which is not available, dns, which "
            "is degraded for 44 h: none. Repair etcd first: kubectl describe clusteroperator etcd"
        )
        for each in found.unseen
    )


def test_an_operator_that_is_sick_for_a_moment_only_delays_the_next_update() -> None:
    sick = operator("dns", "4.20.6")
    sick["status"]["conditions"] = [condition("Degraded", True, "Slow", "slow", minutes=5)]
    found = rehearsed(version("4.20.6", None), sick)
    assert found.possible is True
    waits = "an update first waits for ClusterOperator dns, which is degraded, and no time is"
    assert any(each.startswith(waits) for each in found.rests_on)


def test_an_update_that_is_at_its_operators() -> None:
    own = applying(
        condition("Failing", False),
        condition("Progressing", True, "", "Working towards 4.20.6: 14% complete"),
        condition("Upgradeable", False, "ClusterVersionOverridesSet", "Please remove overrides"),
    )
    own["status"]["history"][0]["startedTime"] = ago(minutes=14)
    found = rehearsed(own, BEHIND)
    said = text(found)
    assert (
        "The update to 4.20.6 has been under way for 14 min: Working towards 4.20.6: 14% "
        "complete. The nodes"
    ) in said
    assert "begins after the operators" in said
    assert "begins now" not in said
    assert "only a later update to another minor release is refused" in said
    assert (found.refused, found.possible) == (None, True)


@pytest.mark.parametrize("others", [[], [REACHED]])
def test_an_update_at_its_nodes_does_not_wait_for_operators(others: list[Raw]) -> None:
    found = rehearsed(applying(condition("Failing", False)), *others)
    assert bool(found.before_nodes) is not bool(others)


def test_another_minor_release_is_refused_in_the_first_line() -> None:
    own = version(
        "4.20.6",
        None,
        condition("Upgradeable", False, "X", "Cluster operator dns should not: wait"),
    )
    own["status"]["availableUpdates"] = [{"version": "4.20.7"}, {"version": "4.21.0"}]
    first, second, remedy, *_ = text(
        rehearsed(own, operator("dns", "4.20.6", Upgradeable="wait"))
    ).splitlines()
    assert first.startswith("Yes for 4.20.7, no for 4.21.0: 6 nodes")
    assert (
        second == "No for 4.21.0: ClusterOperator dns is not Upgradeable (UpgradeableReason): wait."
    )
    assert remedy == (
        "  to do: Resolve what ClusterOperator dns asks for: kubectl describe clusteroperator dns"
    )


def test_nodes_that_are_updated_go_on_while_the_next_update_is_refused() -> None:
    own = [*at_rest(), version("4.18.20", "4.19.9", condition(*REFUSES, REFUSED))]
    only(own, "MachineConfigPool", "worker")["spec"]["configuration"]["name"] = "rendered-worker-2"
    begun = only(own, "Node", "n1")
    begun["metadata"]["annotations"] = config_notes(
        "worker", desiredConfig="rendered-worker-2", state="Working"
    )
    found = rehearse(
        Snapshot(map(Object, own), ["*"], time=snapshot([])["time"]), Options(), forecast_only=True
    )
    assert found.possible is True
    assert "the update to 4.19.9 is not accepted" in "; ".join(found.rests_on)


def test_nodes_that_wait_in_a_paused_pool_are_not_being_updated() -> None:
    own = [*at_rest(), version("4.18.20", "4.19.9", condition(*REFUSES, REFUSED))]
    only(own, "MachineConfigPool", "worker")["spec"] |= {
        "paused": True,
        "configuration": {"name": "rendered-worker-2"},
    }
    found = rehearse(
        Snapshot(map(Object, own), ["*"], time=snapshot([])["time"]), Options(), forecast_only=True
    )
    assert [str(stop.problem) for stop in found.stops] == [
        "UpdateNotAccepted:version",
        "PoolPaused:worker",
    ]


def test_a_pool_with_an_obstacle_of_its_own_does_not_hide_it() -> None:
    own = [*at_rest(), version("4.18.20", "4.19.9", condition(*REFUSES, REFUSED))]
    for name in ("worker", "master"):
        only(own, "MachineConfigPool", name)["spec"]["paused"] = True
    found = rehearse(
        Snapshot(map(Object, own), ["*"], time=snapshot([])["time"]), Options(), forecast_only=True
    )
    assert [str(stop.problem) for stop in found.stops] == [
        "UpdateNotAccepted:version",
        "PoolPaused:master",
        "PoolPaused:worker",
    ]


def test_it_may_be_unread() -> None:
    found = rehearsed(unreadable=("clusterversions.config.openshift.io",))
    assert (found.possible, "clusterversions.config.openshift.io" in found.unseen) == (None, True)


def test_another_updater_does_not_ask_for_it() -> None:
    own = version("4.18.20", "4.19.9", condition(*REFUSES, REFUSED))
    assert rehearsed(own, options=Options(driver=Driver.PLAIN)).possible is True


def gates(**data: str) -> Raw:
    return obj("ConfigMap", "v1", "admin-gates", "openshift-config-managed", data=data)


REASON = condition("Upgradeable", False, "AdminAckRequired", "see the article")
ACK = f'admin-acks -n openshift-config --type=merge -p \'{{"data":{{"{KEY}":"true"}}}}\''
REMEDIES: dict[str, tuple[list[Raw], str, str]] = {
    "the key is in the gates": ([gates(**{KEY: "see", "ack-4.17-old": "see"})], REFUSED, ACK),
    "the key is in the words": ([], f"{REFUSED} {KEY}: see", ACK),
    "the key is nowhere": (
        [],
        REFUSED,
        "kubectl get configmap admin-gates -n openshift-config-managed -o yaml",
    ),
    "it is acknowledged": (
        [
            gates(**{KEY: "see"}),
            obj("ConfigMap", "v1", "admin-acks", "openshift-config", data={KEY: "true"}),
        ],
        REFUSED,
        "kubectl get configmap admin-gates",
    ),
    "an operator refuses": (
        [operator("dns", "4.18.20", Upgradeable="see")],
        REFUSED.replace("AdminAckRequired", "DNSNotUpgradeable"),
        "Resolve what ClusterOperator dns asks for: kubectl describe clusteroperator dns",
    ),
    "two operators refuse": (
        [
            operator("dns", "4.18.20", Upgradeable="see"),
            operator("etcd", "4.18.20", Upgradeable="see"),
        ],
        REFUSED.replace("AdminAckRequired", "ClusterOperatorsNotUpgradeable"),
        "Resolve what ClusterOperator dns, etcd asks for: kubectl describe clusteroperator dns",
    ),
    "overrides": (
        [],
        REFUSED.replace("AdminAckRequired", "ClusterVersionOverridesSet"),
        "Remove spec.overrides",
    ),
    "another check": (
        [],
        REFUSED.replace("ClusterVersionUpgradeable", "EtcdRecentBackup"),
        "Resolve what the check names",
    ),
}


@pytest.mark.parametrize("name", REMEDIES)
def test_remedy(name: str) -> None:
    more, words, remedy = REMEDIES[name]
    conditions: list[Any] = [condition(*REFUSES, words)]
    if "AdminAckRequired" in words:
        conditions.append(REASON)
    (stop,) = rehearsed(version("4.18.20", "4.19.9", *conditions), *more).stops
    assert remedy in stop.remedy
    assert "ack-4.17-old" not in stop.remedy
    assert not risky(stop.remedy)


@pytest.mark.parametrize(
    "overrides", [[], [{"kind": "Deployment", "name": "x", "unmanaged": True}]]
)
def test_overrides_also_hold_a_release_of_the_same_minor(overrides: list[Raw]) -> None:
    words = REFUSED.replace("AdminAckRequired", "ClusterVersionOverridesSet")
    words = words.replace("4.19.9", "4.20.8")
    upgradeable = condition("Upgradeable", False, "ClusterVersionOverridesSet", "Please remove")
    own = version("4.20.6", "4.20.8", condition(*REFUSES, words), upgradeable)
    own["status"]["availableUpdates"] = [{"version": "4.20.8"}]
    own["spec"]["overrides"] = overrides
    (stop,) = rehearsed(own).stops
    assert ("Upgradeable=False does not hold 4.20.8" in stop.reason) is not bool(overrides)


def test_a_check_that_may_pass_by_itself() -> None:
    words = REFUSED.replace("ClusterVersionUpgradeable", "EtcdRecentBackup")
    young = condition(*REFUSES, words, minutes=1)
    found = rehearsed(version("4.18.20", "4.19.9", young))
    assert (found.possible, found.stops) == (None, ())


def router(space: str = "openshift-ingress", **selector: str) -> Raw:
    """Return a pod that only the node n2 takes, and that has none yet."""
    found = pod(
        "router-1",
        space,
        "n2",
        {},
        None,
        spec={"nodeSelector": selector or {"kubernetes.io/hostname": "n2"}},
    )
    del found["spec"]["nodeName"]
    return found | {"status": {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("space", "related", "joined"),
    [
        ("openshift-ingress", [], True),
        ("routers", ["routers"], True),
        ("routers", [], False),
        ("routers", ["x"], False),
    ],
)
def test_the_pod_of_an_operator_waits_for_a_cordoned_node(
    space: str, related: list[str], joined: bool
) -> None:
    sick = operator("ingress", "4.20.1", Degraded="one router is Pending")
    sick["status"]["relatedObjects"] = [
        {"resource": "namespaces", "name": name} for name in related
    ]
    items = [*at_rest(), applying(FAILING), BEHIND, sick, router(space)]
    only(items, "Node", "n2")["metadata"]["labels"]["kubernetes.io/hostname"] = "n2"
    only(items, "Node", "n2")["spec"]["unschedulable"] = True
    stop = stops(items)[0]
    assert (f"Its pod {space}/router-1 finds no node while n2 is cordoned" in stop.reason) is joined
    uncordon = "Uncordon n2, after which the update goes on by itself: kubectl uncordon n2"
    assert stop.remedy == (uncordon if joined else CLUSTER_OPERATOR_REMEDY)


def test_a_pod_that_starts_by_itself_is_not_named() -> None:
    sick = operator("ingress", "4.20.1", Degraded="one router is Pending")
    items = [*at_rest(), applying(FAILING), BEHIND, sick, router()]
    only(items, "Node", "n2")["metadata"]["labels"]["kubernetes.io/hostname"] = "n2"
    assert stops(items)[0].remedy == CLUSTER_OPERATOR_REMEDY


CLUSTER_OPERATOR_REMEDY = (
    "Resolve what ClusterOperator ingress reports, after which the update goes on by itself: "
    "kubectl describe clusteroperator ingress"
)


def stops(items: list[Raw]) -> tuple[Stop, ...]:
    found = snapshot(items)
    cluster = Snapshot(map(Object, found["items"]), ["*"], time=found["time"])
    return rehearse(cluster, Options(), forecast_only=True).stops


def test_a_signature_that_no_key_verifies() -> None:
    digest = f"sha256:{'c51a' * 16}"
    cause = f"The update cannot be verified: unable to verify {digest} against keyrings: public-key"
    words = f'Retrieving payload failed version="4.19.9" image="x@{digest}" failure={cause}'
    refused = condition("ReleaseAccepted", False, "RetrievePayload", words, hours=19)
    asked = version("4.18.20", "4.19.9", refused)
    asked["spec"]["desiredUpdate"]["image"] = f"x@{digest}"
    (stop,) = rehearsed(asked).stops
    assert stop.reason.endswith(f"is not accepted (RetrievePayload) for 19 h: {cause}")
    assert "its signature by public-key, as a ConfigMap in openshift-config-managed" in stop.remedy
    forced = f"(oc adm upgrade --force --allow-explicit-upgrade --to-image x@{digest})"
    stays = "to stay at 4.18.20, cancel it: none of it is loaded (oc adm upgrade --clear)"
    assert stop.remedy.endswith(f"{forced}; {stays}")
    assert command_of(stop.remedy).startswith("kubectl get configmaps -n openshift-config-managed")
    asked["status"]["history"][0]["state"] = "Partial"  # another update is under way
    (stop,) = rehearsed(asked).stops
    assert stop.remedy.endswith(forced)
    assert not risky(stop.remedy)
