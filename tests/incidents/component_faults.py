"""Reports in which a component of another product fails on a node, or refuses writes:
its pod is the cause.
"""

import json

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, storage_class
from tests.healthy.parts import Object, ago, deployment, namespaces, obj, service, webhook

from .machines import (
    NO,
    UNKNOWN,
    YES,
    Incident,
    draining,
    event,
    find,
    guest,
    launcher_of,
    migration,
    target_pod,
)
from .starts import starting

LONGHORN = "driver.longhorn.io"


def crashing(pod: Object, *, minutes: int, ended: Object, limit: str = "") -> None:
    """Let the container of a pod end again and again."""
    for each in pod["status"]["conditions"]:
        if each["type"] in ("Ready", "ContainersReady"):
            each |= {"status": "False", "lastTransitionTime": ago(minutes=minutes)}
    name = pod["spec"]["containers"][0]["name"]
    if limit:
        pod["spec"]["containers"][0]["resources"]["limits"] = {"memory": limit}
    waiting = {
        "reason": "CrashLoopBackOff",
        "message": f"back-off 5m0s restarting failed container={name}",
    }
    status = {"name": name, "ready": False, "restartCount": 18, "image": "x", "imageID": "x"}
    pod["status"]["containerStatuses"] = [
        status | {"state": {"waiting": waiting}, "lastState": {"terminated": ended}}
    ]


def drivers(*without: str) -> list[Object]:
    """Return Longhorn with the CSINode of each worker.

    ``without``: the nodes on which its driver is not registered.
    """
    items = namespaces("longhorn-system") + storage_class("longhorn", LONGHORN)
    items += deployment(
        "longhorn-csi-plugin",
        "longhorn-system",
        ["w1", "w2", "w3"],
        {"app": "longhorn-csi-plugin"},
        kind="DaemonSet",
    )
    for name in ("w1", "w2", "w3"):
        registered = (
            [] if name in without else [{"name": LONGHORN, "nodeID": name, "topologyKeys": None}]
        )
        items.append(obj("CSINode", "storage.k8s.io/v1", name, spec={"drivers": registered}))
    for pod in items:
        if pod["kind"] == "Pod" and pod["spec"]["nodeName"] in without:
            crashing(
                pod,
                minutes=69,
                ended={"exitCode": 1, "reason": "Error", "finishedAt": ago(minutes=4)},
            )
    return items


def with_disk(name: str, items: list[Object]) -> list[Object]:
    """Return the objects of a VM, with its disk in Longhorn."""
    kept = [each for each in items if not each["kind"].startswith("PersistentVolume")]
    return kept + claim(name, driver=LONGHORN, storage_class="longhorn")


def not_attached(name: str, on: str) -> list[Object]:
    """Return a VM whose pod waits for a volume, as the node has no driver for it."""
    items = with_disk(name, starting(name, "Scheduling"))
    launcher = launcher_of(items, name)
    launcher["spec"]["nodeName"] = on
    launcher["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    find(items, "VirtualMachineInstance", name)["status"]["activePods"] = {
        launcher["metadata"]["uid"]: on
    }
    source = {"persistentVolumeName": f"pvc-vms-{name}"}
    error = {"message": f"CSINode {on} does not contain driver {LONGHORN}", "time": ago(minutes=1)}
    spec = {"attacher": LONGHORN, "nodeName": on, "source": source}
    items.append(
        obj(
            "VolumeAttachment",
            "storage.k8s.io/v1",
            "csi-1",
            spec=spec,
            status={"attached": False, "attachError": error},
        )
    )
    return items


SOURCE = "https://github.com/longhorn/longhorn/issues/6435"


def driver_not_registered() -> Incident:
    items = plain() + drivers("w2") + not_attached("db", "w2")
    facts = (
        (
            r"CSINode w2 does not contain driver driver.longhorn.io \(pod longhorn-csi-plugin-\S+ "
            r"is not ready for 69 min: CrashLoopBackOff, it ends with exit code 1\)"
        ),
        r"could start on +w1, w3, after the steps to do below",
        (
            r": kubectl logs longhorn-csi-plugin-\S+ -n longhorn-system --previous; or, to run the "
            r"VM elsewhere without that, cordon w2, then stop the VM and start it again"
        ),
    )
    return Incident("driver-not-registered", SOURCE, items, YES, facts, ("explain", "vm/db"))


def driver_behind_another_root() -> Incident:
    """Without a cordon, kube-scheduler may choose the same node for the new pod again."""
    items = plain() + drivers() + not_attached("db", "w2")
    find(items, "CSINode", "w2")["spec"]["drivers"] = []
    for pod in items:
        if pod["kind"] == "Pod" and pod["metadata"]["name"].startswith("longhorn-csi-plugin"):
            path = "/var/lib/kubelet/plugins_registry"
            pod["spec"]["volumes"] = [{"name": "r", "hostPath": {"path": path}}]
    find(items, "Node", "w2")["metadata"]["annotations"] = {
        "k3s.io/node-args": '["agent", "--kubelet-arg", "root-dir=/data/kubelet"]'
    }
    facts = (
        (
            r"kubectl cordon w2; or, to run the VM elsewhere without that, cordon w2, then stop "
            r"the VM and start it again"
        ),
    )
    source = "https://github.com/longhorn/longhorn/issues/7685"
    return Incident("driver-behind-another-root", source, items, YES, facts, ("explain", "vm/db"))


def loss_of_a_node_with_starts() -> Incident:
    """A VM whose pod waits for its volume is known, and its pod ends as little as others do."""
    items = plain() + drivers("w2") + not_attached("db", "w2")
    facts = (
        r"loss of w2: not every VM runs again; 1 VM: 1 never restarts",
        r"never restarts +vms/db: by hand",
        r"1 VM starts on w2 and no guest runs yet: vms/db\. The end of its pod there comes before",
        r"(?s)\A(?!.*more VMs or pods than are known)(?!.*has no node yet)",
    )
    return Incident("loss-with-starts", SOURCE, items, YES, facts, ("explain", "node/w2"))


def target_without_driver() -> Incident:
    items = plain() + drivers("w2") + with_disk("mail", guest("mail", "w1"))
    facts = (
        (
            r"unknown +vms/mail +LiveMigrate, but kube-scheduler may choose w2, and CSI driver "
            r"driver.longhorn.io is not registered on w2"
        ),
        r"repair pod longhorn-csi-plugin-\S+ on w2; or cordon w2 until then: kubectl cordon w2",
    )
    return Incident("target-without-driver", SOURCE, items, UNKNOWN, facts)


def no_target_with_driver() -> Incident:
    items = plain() + drivers("w2", "w3") + with_disk("mail", guest("mail", "w1"))
    facts = (
        (
            r"no node that could take it is schedulable now: w2, w3 \(CSI driver "
            r"driver.longhorn.io is not registered on w2"
        ),
        r"to do: repair pod longhorn-csi-plugin-x1, whose last log says why it ends: kubectl logs",
    )
    return Incident("no-target-with-driver", SOURCE, items, NO, facts)


def drivers_everywhere() -> Incident:
    items = plain() + drivers() + with_disk("mail", guest("mail", "w1"))
    return Incident("drivers-everywhere", SOURCE, items, YES, (r"A drain of w1 ends",))


def kubemacpool() -> list[Object]:
    """Return the webhooks of kubemacpool, whose only pod is ended for lack of memory: one of them
    selects no namespace.
    """
    items = namespaces("hco")
    items += deployment("kubemacpool", "hco", ["w2"], {"control-plane": "mac"})
    items += service("kubemacpool-service", "hco", {"control-plane": "mac"}, ["w2"])
    for endpoint in find(items, "EndpointSlice", "kubemacpool-service-abc")["endpoints"]:
        endpoint["conditions"] |= {"ready": False, "serving": False}
    pod = next(each for each in items if each["kind"] == "Pod")
    crashing(pod, minutes=312, ended={"exitCode": 137, "reason": "OOMKilled"}, limit="300Mi")
    rules = {"pods.kubemacpool.io": ("", ["pods"], ["CREATE"])}
    rules |= {"vms.kubemacpool.io": ("kubevirt.io", ["virtualmachines"], ["CREATE", "UPDATE"])}
    found = webhook("Mutating", "kubemacpool-mutator", ("hco", "kubemacpool-service"), rules)
    for entry, operator, value in zip(
        found["webhooks"], ("In", "NotIn"), ("allocate", "ignore"), strict=True
    ):
        selected = {"key": entry["name"], "operator": operator, "values": [value]}
        entry["namespaceSelector"] = {"matchExpressions": [selected]}
    return [*items, found]


MACS = "https://github.com/kubevirt/monitoring/pull/60"


def refused_start() -> Incident:
    items = plain() + kubemacpool() + guest("erp", "w1", run="Halted")
    items = [
        each
        for each in items
        if each["kind"] != "VirtualMachineInstance" and each != launcher_of(items, "erp")
    ]
    find(items, "VirtualMachine", "erp")["status"] |= {"printableStatus": "Stopped", "ready": False}
    facts = (
        r"it is not running, and virtctl start fails\n",
        (
            r"virtctl start fails, because webhook vms.kubemacpool.io refuses each change of a VM "
            r"in namespace vms: Service hco/kubemacpool-service has no ready endpoint \(pod \S+ is "
            r"not ready for 5 h 12: CrashLoopBackOff, container main OOMKilled at its limit of "
            r"300Mi\)\. It does not end by itself"
        ),
        r"give container main of pod \S+ more memory.*: kubectl logs \S+ -n hco --previous",
        (
            r"as a decision, leave namespace vms out of that webhook until then: kubectl label "
            r"namespace vms vms.kubemacpool.io=ignore"
        ),
        r"Commands\n  kubectl describe vm erp",
    )
    return Incident("refused-start", MACS, items, YES, facts, ("explain", "vm/erp"))


def refused_changes_in_a_drain() -> Incident:
    items = plain() + kubemacpool() + guest("web", "w1")
    return Incident(
        "refused-changes-in-a-drain",
        MACS,
        items,
        YES,
        (r"migrates +vms/web", r"A drain of w1 ends"),
    )


def refused_changes() -> Incident:
    items = plain() + kubemacpool() + guest("web", "w1")
    facts = (
        (
            r"webhooks\[1\].*no ready endpoint \(.*OOMKilled at its limit of 300Mi\): changes of "
            r"VMs \(virtctl start, stop\) fail"
        ),
        r"\[webhook-without-endpoint\]\n +to do: kubectl describe pod \S+ -n hco\n",
    )
    return Incident("refused-changes", MACS, items, YES, facts, ("scan",))


def refused_changes_behind_a_long_name() -> Incident:
    """The state of the pod is said although little else fits into a warning."""
    items = plain() + kubemacpool() + guest("web", "w1")
    text = json.dumps(items).replace(
        "kubemacpool-service", "kubemacpool-service-of-the-mac-addresses-of-all-vms"
    )
    facts = (
        (
            r"webhooks\[1\].*no ready endpoint \(.*OOMKilled at its limit of 300Mi\): changes of "
            r"VMs \(virtctl start, stop\) fail"
        ),
    )
    return Incident("refused-changes-long-name", MACS, json.loads(text), YES, facts, ("scan",))


NO_PORT = "configure nic failed ovs interface 99974c1c66d8_h is not ready after 30s"


def without_network(plugin: str, error: str, **fields: list[str]) -> list[Object]:
    """Return a drain whose migrations are given up, as no target pod of db gets a network, while
    web came to w2 meanwhile.
    """
    items = draining(name="db", **fields)
    for minutes in (48, 32, 16):
        times = {"Pending": 60.0 * minutes, "Failed": 60.0 * minutes - 906}
        items.append(migration("db", times, name=f"kubevirt-evacuation-db-{minutes}"))
    move = migration("db", {"Pending": 372})
    items.append(move)
    pod = target_pod(
        items,
        "db",
        "w2",
        move,
        360,
        ready=False,
        waiting={"waiting": {"reason": "ContainerCreating"}},
    )
    said = (
        "Failed to create pod sandbox: failed to setup network for sandbox: plugin "
        f'type="{plugin}" failed (add): {error}'
    )
    items.append(event(pod, "FailedCreatePodSandBox", said, "kubelet"))
    other = guest("web", "w2")
    launcher_of(other, "web")["metadata"]["creationTimestamp"] = ago(minutes=40)
    daemons = deployment(
        f"{plugin}-cni", "kube-system", ["w1", "w2", "w3"], {"app": "cni"}, kind="DaemonSet"
    )
    return [*items, *other, *daemons]


def port_that_waits_for_the_migration() -> Incident:
    items = without_network("kube-ovn", NO_PORT, hotplugged=["data"]) + claim("data")
    facts = (
        (
            r"its ovs interface is not ready after 30s\. Kube-OVN prepares it only after the phase "
            r"Pending of the migration.* because of hotplugged volume data: on every node they "
            r"wait for each other"
        ),
        r"virtctl removevolume db --volume-name=data -n vms",
    )
    return Incident(
        "port-waits-for-migration",
        "https://github.com/kubeovn/kube-ovn/issues/7416",
        items,
        NO,
        facts,
    )


def nodes_that_wait_for_the_migration() -> Incident:
    found = port_that_waits_for_the_migration()
    facts = (r"could go to +w2, w3, after the steps to do below",)
    return Incident(
        "nodes-wait-for-migration", found.url, found.items, NO, facts, ("explain", "vm/db")
    )


def nodes_of_a_port_that_is_passed_over() -> Incident:
    """The node of the target pod is as good as another: the controller is the cause."""
    items = [
        each
        for each in without_network("kube-ovn", NO_PORT)
        if "web" not in each["metadata"]["name"]
    ]
    items += deployment("kube-ovn-controller", "kube-system", ["w1"], {"app": "controller"})
    for each in items:
        if each["metadata"]["name"].startswith("kube-ovn-controller") and each["kind"] == "Pod":
            image = "docker.io/kubeovn/kube-ovn:v1.15.13"
            each["spec"]["containers"] = [{"name": "controller", "image": image}]
        if "kubevirt.io/migrationJobUID" in each["metadata"].get("labels", {}):
            each["metadata"]["creationTimestamp"] = ago(minutes=11)
    move = find(items, "VirtualMachineInstanceMigration", "kubevirt-evacuation-db")
    times = {"Pending": 662.0, "Scheduling": 661.0}
    move |= {"status": migration("db", times)["status"]}
    facts = (
        r"could go to +w2, w3, after the steps to do below",
        r"kube-ovn-controller 1\.15\.13 prepares it only if the target pod has a node",
    )
    return Incident(
        "port-passed-over",
        "https://github.com/kubeovn/kube-ovn/issues/6823",
        items,
        NO,
        facts,
        ("explain", "vm/db"),
    )


def plugin_that_serves_others() -> Incident:
    items = without_network("calico", "no policy for this endpoint")
    facts = (
        (
            r"network plugin calico works on w2 for pod vms/virt-launcher-web-\w+, so see what it "
            r"lacks for this one"
        ),
    )
    return Incident(
        "plugin-serves-others", "https://github.com/kubeovn/kube-ovn/issues/7416", items, NO, facts
    )


def incidents() -> list[Incident]:
    return [
        port_that_waits_for_the_migration(),
        nodes_that_wait_for_the_migration(),
        nodes_of_a_port_that_is_passed_over(),
        plugin_that_serves_others(),
        refused_start(),
        refused_changes_in_a_drain(),
        refused_changes(),
        refused_changes_behind_a_long_name(),
        driver_not_registered(),
        driver_behind_another_root(),
        loss_of_a_node_with_starts(),
        target_without_driver(),
        no_target_with_driver(),
        drivers_everywhere(),
    ]
