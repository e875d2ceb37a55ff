"""What the objects around some others report, beside what is said already."""

from __future__ import annotations

import pytest

from tests.builders import manifest, warning
from virt_admit.kube.cache import ClusterCache, KindStore
from virt_admit.model.evidence import reported
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-11-26T12:00:00Z"
WHY = "insufficient storage on all three disks of the pool"
VM = manifest("kubevirt.io/v1", "VirtualMachine", "db", "shop", spec={"claim": "db-root"})


def volume(name="db-root", message=WHY):
    ready = {"type": "Ready", "status": "False", "message": message, "lastTransitionTime": NOW}
    return manifest(
        "storage.example.com/v1", "Volume", name, "shop", status={"conditions": [ready]}
    )


def around(*others, said=()):
    return reported.around([VM], Snapshot([VM, *others], ["*"], time=NOW), said)


def test_kind_name_words_and_time_of_what_is_reported():
    (found,) = around(volume())
    assert str(found) == f"Volume shop/db-root reports: Ready is False: {WHY} (at {NOW})"


def test_what_is_said_already_is_left_out():
    assert around(volume(), said=[f"it does not start: {WHY}."]) == ()


def test_the_same_error_after_another_beginning_is_left_out():
    said = (
        "volume pvc-1 cannot be attached: rpc error: code = NotFound desc = node worker-3 was not "
        "found"
    )
    message = f"AttachVolume.Attach failed for volume pvc-1 : {said.partition(': ')[2]}"
    assert around(volume(message=message), said=[said]) == ()
    assert around(volume(message=f"{message} in zone-7"), said=[said]) != ()


def test_two_objects_do_not_say_the_same():
    owned = manifest(
        "storage.example.com/v1", "Copy", "copy-1", "shop",
        spec={"of": "db-root"}, status={"error": WHY},
    )  # fmt: skip
    assert len(around(volume(), owned)) == 1


def test_at_most_six():
    words = ("alpha", "bravo", "charlie", "delta", "echoes", "foxtrot", "golfs", "hotel")
    many = [volume(f"db-{word}", f"{word * 3} {word * 4}") for word in words]
    holder = manifest(
        "example.com/v1", "Set", "db-root", "shop", spec={"of": [each.name for each in many]}
    )
    assert len(around(holder, *many)) == reported.MOST


def test_a_healthy_neighbourhood_reports_nothing():
    fine = manifest(
        "storage.example.com/v1", "Volume", "db-root", "shop",
        status={"conditions": [{"type": "Ready", "status": "True", "message": "fine"}],
                "state": "attached"},
    )  # fmt: skip
    assert around(fine) == ()


def test_events_are_read_for_what_is_near():
    asked: list[str] = []
    cluster = Snapshot([VM, volume()], ["*"], time=NOW)
    reported.around([VM], cluster, (), lambda objects: asked.extend(each.name for each in objects))
    assert asked == ["db", "db-root"]


def test_a_live_cluster_makes_a_new_view_of_an_object_at_each_look_up():
    claim = manifest("v1", "PersistentVolumeClaim", "db-root", "shop", spec={"volumeName": "pv-1"})
    lost = manifest("v1", "PersistentVolume", "pv-1", status={"phase": "Failed", "message": WHY})
    stores = [KindStore(kind, packed=True) for kind in (kinds.VM, kinds.PVC, kinds.PV)]
    for store, obj in zip(stores, (VM, claim, lost), strict=True):
        store.upsert(obj.data)
    cluster = ClusterCache(stores)
    (found,) = reported.around([cluster.get(kinds.VM, "shop", "db")], cluster, ())
    assert str(found) == f"PersistentVolume pv-1 reports: phase Failed: {WHY}"


def test_objects_that_a_text_names():
    found = reported.around_named(
        Snapshot([volume()], ["*"], time=NOW), ["stuck: Volume shop/db-root is not ready"]
    )
    assert [each.name for each in found] == ["db-root"]


def condition(since, message=WHY):
    return {
        "conditions": [
            {"type": "Ready", "status": "False", "message": message, "lastTransitionTime": since}
        ]
    }


OLD, NEW = "2026-11-26T11:00:00Z", "2026-11-26T11:40:00Z"


def test_of_a_cluster_what_lasts_the_newest_first():
    older = manifest(
        "example.com/v1", "Plan", "a", "shop", status=condition(OLD, "tracking is not enabled")
    )
    newer = manifest("example.com/v1", "Chart", "b", "shop", status=condition(NEW))
    just = manifest(
        "example.com/v1",
        "Chart",
        "c",
        "shop",
        status=condition("2026-11-26T11:59:00Z", "one moment"),
    )
    guest = manifest(
        "kubevirt.io/v1", "VirtualMachine", "d", "shop", status=condition(OLD, "judged by rules")
    )
    cluster = Snapshot([older, newer, just, guest], ["*"], time=NOW)
    assert [each.name for each in reported.of_cluster(cluster, ())] == ["b", "a"]
    assert reported.of_cluster(cluster, [f"b: {WHY}", "a: tracking is not enabled"]) == ()


def test_of_some_objects_alone():
    cluster = Snapshot(
        [manifest("example.com/v1", "Chart", "b", "shop", status=condition(NEW))], ["*"], time=NOW
    )
    assert reported.of_cluster(cluster, (), lambda obj: obj.group == "example.com")
    assert not reported.of_cluster(cluster, (), lambda obj: obj.group == "example.org")


def test_around_a_node_is_what_names_it():
    node = manifest("v1", "Node", "w-1")
    machine = manifest(
        "cluster.x-k8s.io/v1beta1", "Machine", "m-1", "fleet",
        metadata={"deletionTimestamp": OLD, "finalizers": ["machine.cluster.x-k8s.io"]},
        status={"nodeRef": {"kind": "Node", "name": "w-1"}},
    )  # fmt: skip
    other = manifest("cluster.x-k8s.io/v1beta1", "Machine", "m-2", "fleet", status=condition(OLD))
    (found,) = reported.around([node], Snapshot([node, machine, other], ["*"], time=NOW), ())
    assert found.name == "m-1"
    assert "kept by finalizer machine.cluster.x-k8s.io" in found.text


def chart(name, message=WHY, kind="Chart", since=OLD):
    return manifest("example.com/v1", kind, name, "shop", status=condition(since, message))


def of_cluster(*objects, said=()):
    return list(map(str, reported.of_cluster(Snapshot(objects, ["*"], time=NOW), said)))


def test_objects_of_a_kind_that_report_the_same_are_counted():
    (found,) = reported.of_cluster(Snapshot(map(chart, "abcde"), ["*"], time=NOW), ())
    assert found.also == ("shop/b", "shop/c", "shop/d", "shop/e")
    assert str(found).startswith("Chart shop/a and 4 more report: ")


def test_a_second_object_is_named():
    (found,) = reported.of_cluster(Snapshot(map(chart, "ab"), ["*"], time=NOW), ())
    assert str(found).startswith("Chart shop/a and shop/b report: ")


MAINTENANCE = manifest(
    "nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance", "dimm", spec={"nodeName": "n1"}
)


@pytest.mark.parametrize(
    ("spec", "others", "words"),
    [
        ({"unschedulable": True}, [MAINTENANCE], "; it runs on n1 alone, which is in "
         "NodeMaintenance dimm"),
        ({"unschedulable": True}, [], "; it runs on n1 alone, which is cordoned"),
        ({}, [], ""),
    ],
    ids=["maintenance", "cordoned", "open"],
)  # fmt: skip
def test_the_only_node_of_a_workload(spec, others, words):
    mon = chart("mon", kind="Deployment")
    mon.data["spec"] = {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}}}
    assert of_cluster(mon, manifest("v1", "Node", "n1", spec=spec), *others) == [
        f"Deployment shop/mon reports: Ready is False: {WHY}{words} (at {OLD})"
    ]


def test_an_owner_that_repeats_its_object_is_left_out():
    assert of_cluster(chart("a"), chart("owner", kind="ChartSet")) == [
        f"Chart shop/a reports: Ready is False: {WHY} (at {OLD})"
    ]


def test_words_of_several_texts_hide_nothing():
    said = ["chart a: insufficient storage on all", "the three disks of the other pool"]
    assert of_cluster(chart("a"), said=said)


def test_what_is_said_of_another_object_hides_nothing():
    assert of_cluster(chart("chart-7"), said=[f"chart-8: {WHY}"])
    assert not of_cluster(chart("chart-7"), said=[f"chart-7: {WHY}"])


def test_an_object_that_a_finding_names_with_its_kind_is_left_out():
    assert not of_cluster(
        chart("chart-7"), said=["n1: it waits for Chart shop/chart-7, which is broken"]
    )
    assert of_cluster(chart("chart-7"), said=["chart-7: a setting of the Chart is not good"])


def test_short_words_are_said():
    assert of_cluster(chart("a", "disk full"))


def test_the_second_complaint_is_said_if_the_first_one_is_told():
    two = chart("a")
    two.data["status"]["conditions"].append(
        {
            "type": "Degraded",
            "status": "True",
            "message": "no space left",
            "lastTransitionTime": OLD,
        }
    )
    assert of_cluster(two, said=[f"a: {WHY}"]) == [
        f"Chart shop/a reports: Degraded is True: no space left (at {OLD})"
    ]


def test_a_node_is_reported():
    status = condition(OLD, "kubelet stopped")
    assert of_cluster(manifest("longhorn.io/v1beta2", "Node", "n2", "longhorn", status=status))
    assert of_cluster(manifest("v1", "Node", "n2", status=status))


def test_a_repetition_may_end_a_sentence() -> None:
    said = ["ErrApplied: another operation (install/upgrade) is in progress. It was left behind"]
    message = "ErrApplied(1) [Cluster local: another operation (install/upgrade) is in progress]"
    assert around(volume(message=message), said=said) == ()


def test_a_workload_whose_pods_pod_security_forbids():
    message = (
        'Error creating: pods "agent-x" is forbidden: violates PodSecurity "baseline:latest": '
        "host namespaces (hostNetwork=true)"
    )
    daemon = manifest("apps/v1", "DaemonSet", "agent", "tools")
    said, first = f"(combined from similar events): {message}", "2026-11-26T11:00:00Z"
    event = warning(daemon, "FailedCreate", said, NOW, count=20, firstTimestamp=first)
    (found,) = reported.of_cluster(Snapshot([daemon, event], ["*"], time=NOW), ())

    assert message in found.text
    allow = "kubectl label namespace tools pod-security.kubernetes.io/enforce=privileged"
    words = f"; let namespace tools enforce Pod Security privileged: {allow} --overwrite"
    assert found.text.endswith(words)
    assert "combined" not in found.text


def deployment(name, ready="False"):
    """Return a Deployment with a pod that is not ready, or is."""
    few = {"type": "Available", "status": ready, "reason": "MinimumReplicasUnavailable"}
    few |= {"message": "no minimum availability", "lastTransitionTime": "2026-11-26T10:00:00Z"}
    own = manifest("apps/v1", "Deployment", name, "shop", status={"conditions": [few]})
    made = manifest("apps/v1", "ReplicaSet", f"{name}-r", "shop")
    pod = manifest("v1", "Pod", f"{name}-r-1", "shop", spec={"nodeSelector": {"disk": "fast"}})
    pod.data["status"] = {"conditions": [{"type": "Ready", "status": ready}]}
    for obj, kind, owner in ((made, "Deployment", name), (pod, "ReplicaSet", f"{name}-r")):
        obj.data["metadata"]["ownerReferences"] = [
            {"kind": kind, "name": owner, "controller": True}
        ]
    return own, made, pod


def test_a_deployment_names_a_pod_and_many_of_them_one():
    items = [*deployment("web"), *deployment("api"), *deployment("ok", "True")]
    (found,) = reported.of_cluster(Snapshot(items, ["*"], time=NOW), ())
    assert (found.name, found.also) == ("api", ("shop/web",))
    assert found.text == (
        "0 of 1 ready, pod api-r-1 demands label disk=fast (nodeSelector), which no node has"
    )


ONE, TWO = (f"{digit * 8}-1111-4111-8111-111111111111" for digit in "ab")


@pytest.mark.parametrize(("other", "shown"), [(TWO, "…"), (ONE, ONE)])
def test_what_only_one_of_several_objects_names_is_left_out(other, shown):
    first, second = (f"snapshot {each} of site-1 not found" for each in (ONE, other))
    said = of_cluster(chart("a", first), chart("b", second))

    assert len(said) == 1
    assert said[0].startswith("Chart shop/a and shop/b report: ")
    assert f": snapshot {shown} of site-1 not found" in said[0]


NO_NODE = "0/3 nodes are available: 3 Insufficient memory"


def waiting(name="web-1", made="2026-11-26T11:48:00Z", scaled="web-1"):
    """A pod that no node takes, its Deployment, and for which pod the autoscaler adds a node."""
    owner = [{"kind": "ReplicaSet", "name": "web-7", "controller": True}]
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = manifest(
        "v1", "Pod", name, "shop",
        metadata={"creationTimestamp": made, "ownerReferences": owner},
        status={"phase": "Pending", "conditions": [said]},
    )  # fmt: skip
    about = {"kind": "Pod", "name": scaled, "namespace": "shop"}
    scale = manifest(
        "v1", "Event", "scale", "shop", involvedObject=about, reason="TriggeredScaleUp",
        lastTimestamp="2026-11-26T11:49:00Z",
    )  # fmt: skip
    return [pod, scale, warning(pod, "FailedScheduling", NO_NODE, "2026-11-26T11:59:00Z", count=4)]


@pytest.mark.parametrize(
    ("objects", "told"),
    [(waiting(), 0), (waiting(scaled="other"), 1), (waiting(made="2026-11-26T11:20:00Z"), 1)],
    ids=["a node comes", "for another pod", "for too long"],
)
def test_a_pod_for_which_the_autoscaler_adds_a_node(objects, told):
    found = reported.of_cluster(Snapshot(objects, ["*"], time=NOW), ())
    assert sum("FailedScheduling" in str(each) for each in found) == told


def test_a_pod_whose_owner_has_its_words_is_not_told_twice():
    labels = {"app": "web"}
    minimum = {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"}
    minimum |= {"message": "no minimum availability", "lastTransitionTime": "2026-11-26T11:00:00Z"}
    owner = [{"kind": "Deployment", "name": "web", "controller": True, "uid": "d"}]
    objects = [
        *waiting(made="2026-11-26T11:00:00Z", scaled="other"),
        manifest(
            "apps/v1", "ReplicaSet", "web-7", "shop", metadata={"ownerReferences": owner}
        ),
        manifest(
            "apps/v1", "Deployment", "web", "shop", metadata={"uid": "d"},
            spec={"replicas": 1, "selector": {"matchLabels": labels}},
            status={"conditions": [minimum]},
        ),
    ]  # fmt: skip
    found = reported.of_cluster(Snapshot(objects, ["*"], time=NOW), ())

    assert [each.kind for each in found if NO_NODE in each.text] == ["Deployment"]
