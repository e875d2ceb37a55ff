"""A token of Multus that the API server refuses is a fault of its DaemonSet, not of a node."""

from itertools import chain

import pytest

from tests.builders import manifest, warning
from tests.forecasts.drain.vm_motion import ago
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object

SHORT = "--service-account-extend-token-expiration=false"
SAID = 'Failed to create pod sandbox: plugin type="{}" name="m" failed (add): Multus: [x]: {}'
WATCH = "--cleanup-config-on-exit=true"
RESTART = "kubectl rollout restart daemonset/rke2-multus -n kube-system"
DELETE = "kubectl delete pod multus-a -n kube-system"


def server(name, *args):
    metadata = {"labels": {"component": "kube-apiserver"}}
    spec = {"nodeName": "m", "containers": [{"name": "s", "args": list(args)}]}
    return manifest("v1", "Pod", name, "kube-system", metadata=metadata, spec=spec)


def agent(on, *args, age=7200, restarted=None, ready="True"):
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "rke2-multus"}
    started = {"startedAt": ago(age if restarted is None else restarted)}
    return manifest(
        *("v1", "Pod", f"multus-{on}", "kube-system"),
        metadata={"ownerReferences": [owner | {"controller": True}], "creationTimestamp": ago(age)},
        spec={"nodeName": on, "containers": [{"name": "m", "args": list(args)}]},
        status={
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "m", "state": {"running": started}}],
        },
    )


def waiting(on, said="error waiting for pod: Unauthorized", plugin="multus", age=10):
    metadata = {"labels": {"kubevirt.io": "virt-launcher"}, "creationTimestamp": ago(900)}
    spec, status = {"nodeName": on}, {"phase": "Pending"}
    pod = manifest("v1", "Pod", f"db-{on}", "shop", metadata=metadata, spec=spec, status=status)
    return [pod, warning(pod, "FailedCreatePodSandBox", SAID.format(plugin, said), ago(age))]


def fault(*objects, plugin="multus", complete=("*",), **other):
    pod, said = waiting("a", plugin=plugin, **other)
    return pod_starts.fault(pod, Snapshot([pod, said, *objects], complete, time=ago(0)))


def test_tokens_of_an_hour_end_on_every_node():
    found = fault(agent("a"), agent("b"), server("kube-apiserver-m", SHORT))

    assert found.words.endswith(
        "Unauthorized: the API server refuses the token that DaemonSet kube-system/rke2-multus "
        "wrote to every node as its pods started; it lasts an hour, as kube-system/"
        f"kube-apiserver-m has {SHORT}"
    )
    assert f": {RESTART}; to keep them from ending again" in found.remedy
    assert "--cleanup-config-on-exit=true (HelmChartConfig rke2-multus in" in found.remedy
    assert (found.of_node, found.lasts) == (False, True)


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([agent("a"), agent("b", age=600)], id="another pod started just now"),
        pytest.param([agent("a"), agent("b", restarted=60)], id="its container did"),
        pytest.param([agent("a", WATCH), agent("b", WATCH)], id="they renew their tokens"),
        pytest.param([agent("a"), server("s", SHORT), server("t")], id="an API server extends"),
    ],
)
def test_one_refused_token_is_that_of_its_node(objects):
    servers = [] if any(each.name == "t" for each in objects) else [server("s", SHORT)]
    found = fault(*objects, *servers)

    assert found.remedy.endswith(f": {DELETE}")
    assert (found.of_node, found.lasts) == (True, False)


def test_pods_that_cannot_be_read_may_have_a_new_token():
    found = fault(agent("a"), server("s", SHORT), complete=())
    assert (found.of_node, found.lasts) == (True, False)


def test_two_nodes_with_a_refused_token_have_the_same_fault():
    found = fault(agent("a"), agent("b"), *waiting("b"))

    assert "wrote to a, b as its pods started" in found.words
    assert found.remedy.endswith(f": {RESTART}")
    assert (found.of_node, found.lasts) == (False, False)


def test_an_old_error_of_another_node_may_be_over():
    assert fault(agent("a"), agent("b"), *waiting("b", age=900)).remedy.endswith(DELETE)


@pytest.mark.parametrize(
    "other", [{"plugin": "multus-shim"}, {"said": "error waiting for pod: pod not found"}]
)
def test_other_errors_are_not_of_a_token(other):
    found = fault(agent("a"), agent("b"), server("s", SHORT), **other)
    assert found.remedy.startswith(f"repair the network plugin {other.get('plugin', 'multus')} on")


CALICO = "error getting ClusterInformation: connection is unauthorized: {}"


def calico():
    made = agent("a")
    owner = made.data["metadata"]["ownerReferences"][0] | {"name": "calico-node"}
    more = {"name": "calico-node-a", "namespace": "calico-system", "ownerReferences": [owner]}
    return Object(made.data | {"metadata": made.data["metadata"] | more})


@pytest.mark.parametrize("called", ["", 'plugin type="calico" failed (add): '])
def test_a_refused_token_of_calico_is_not_that_of_multus(called):
    network = 'error adding container to network "k8s-pod-network": '
    said = network + called + CALICO.format("Unauthorized")
    others = agent("a"), agent("b"), server("s", SHORT)
    found, unknown = fault(*others, calico(), said=said), fault(*others, said=said)

    assert "kubectl delete pod calico-node-a -n calico-system" in found.remedy
    assert (found.of_node, found.lasts) == (True, False)
    assert not any(
        "rke2-multus" in each.remedy or DELETE in each.remedy for each in (found, unknown)
    )


def test_a_token_of_calico_that_lacks_a_right_is_not_made_again():
    said = CALICO.format('clusterinformations "default" is forbidden: User cannot get it')
    assert "kubectl delete" not in fault(calico(), plugin="calico", said=said).remedy


def test_a_pod_that_has_got_its_network_since_has_another_cause():
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    (pod, _) = waiting("a")
    pod.data["metadata"] |= {"name": "web", "creationTimestamp": ago(60)}
    pod.data["status"] = ready
    found = fault(agent("a"), agent("b"), server("s", SHORT), pod)
    assert found.remedy.startswith("network plugin multus works on a for pod shop/web")


def test_an_agent_that_does_not_run_is_repaired_first():
    down = agent("a", ready="False")
    down.data["status"]["containerStatuses"] = [
        {"name": "m", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ]
    found = fault(down, agent("b"), server("s", SHORT))
    assert RESTART not in found.remedy


def test_the_pods_of_the_cluster_are_gone_through_once_for_all_that_wait():
    class Counting(Snapshot):
        walks = 0

        def known(self, kind, namespace=None):
            self.walks += kind is POD
            return super().known(kind, namespace)

    nodes = [f"n{number}" for number in range(20)]
    pods = [waiting(node) for node in nodes]
    objects = [*map(agent, nodes), *chain.from_iterable(pods), server("s", SHORT)]
    cluster = Counting(objects, ("*",), time=ago(0))

    assert all(pod_starts.fault(pod, cluster).lasts for pod, _ in pods)
    assert cluster.walks < len(nodes)
