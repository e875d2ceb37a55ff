"""Nodes that look healthy or lost and wait for something else: a lock, a volume, a certificate."""

import base64
import json

from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import ago, deployment, namespaces, obj

from .machines import YES, Incident, find, guest

KURED = "https://github.com/kubereboot/kured"


def locked(holder: str, seconds: int = 0) -> list[dict]:
    """Return a cluster whose workers kured is to reboot; seconds: how long its lock lives, 0:
    for good.
    """
    items = plain((1, 6)) + guest("web", "w1")
    for name in ("w1", "w2", "w3"):
        find(items, "Node", name)["metadata"]["annotations"][
            "weave.works/kured-reboot-in-progress"
        ] = ago(days=6)
    lock = {
        "nodeID": holder,
        "metadata": {"unschedulable": False},
        "created": ago(days=12),
        "TTL": seconds * 10**9,
    }
    daemon = deployment(
        "kured", "kube-system", ["w1", "w2", "w3"], {"name": "kured"}, kind="DaemonSet"
    )
    daemon[0]["metadata"]["annotations"] = {"weave.works/kured-node-lock": json.dumps(lock)}
    return items + daemon


def lock_of_a_node_that_is_gone(*ask: str) -> Incident:
    facts = (
        r"[Kk]ured reboots no node: w9, which does not exist, has held its lock for 12 days",
        r"w1, w2, w3 wait for a reboot, and that does not end by itself",
        r"kubectl annotate daemonset kured -n kube-system weave.works/kured-node-lock-",
        r"(?s)\A(?!.*Yes:)(?!.*possible  yes)",
    )
    return Incident(
        "-".join(("lock-left", *ask)), f"{KURED}/issues/137", locked("w9"), YES, facts, ask
    )


def lock_in_the_scan() -> Incident:
    facts = (
        (
            r"Node/w1 and 2 more: warn: .*w9, which does not exist, holds its "
            r"lock.*\[node-reboot-held\]"
        ),
    )
    return Incident("lock-in-scan", f"{KURED}/issues/137", locked("w9"), YES, facts, ("scan",))


def lock_of_a_blocked_node(*ask: str, says: tuple[str, ...]) -> Incident:
    """A pod blocks the reboot of the node with the lock, which kured 1.13 keeps."""
    items = locked("w1")
    daemon = find(items, "DaemonSet", "kured")
    daemon["spec"]["template"]["spec"]["containers"] = [
        {
            "name": "kured",
            "image": "ghcr.io/kubereboot/kured:1.13.2",
            "args": ["--blocking-pod-selector=name=kured", "--annotate-nodes=true"],
        }
    ]
    for condition in find(items, "Node", "w1")["status"]["conditions"]:
        condition["lastTransitionTime"] = ago(days=30)
    source = f"{KURED}/issues/792"
    return Incident("-".join(("lock-blocked", *ask)), source, items, YES, says, ask)


def locked_in_use(*arguments: str, seconds: int = 0, needed: bool = False) -> list[dict]:
    """Return the cluster with a lock of yesterday and the marks that kured writes with these
    arguments.
    """
    items = locked("w9", seconds)
    daemon = find(items, "DaemonSet", "kured")
    lock = json.loads(daemon["metadata"]["annotations"]["weave.works/kured-node-lock"]) | {
        "created": ago(hours=20)
    }
    daemon["metadata"]["annotations"]["weave.works/kured-node-lock"] = json.dumps(lock)
    daemon["spec"]["template"]["spec"]["containers"][0]["args"] = list(arguments)
    for name in ("w1", "w2", "w3"):
        notes = find(items, "Node", name)["metadata"]["annotations"]
        del notes["weave.works/kured-reboot-in-progress"]
        if needed:
            for mark in ("kured-most-recent-reboot-needed", "kured-reboot-in-progress"):
                notes[f"weave.works/{mark}"] = ago(hours=18)
    return items


def lock_and_nodes_that_need_a_reboot(*ask: str) -> Incident:
    facts: tuple[str, ...] = (r"w9, which does not exist",)
    if ask[0] == "scan":
        facts += (
            (
                r"\[node-reboot-held\]\n +to do: kubectl annotate daemonset kured -n kube-system "
                r"weave.works/kured-node-lock-"
            ),
        )
    else:
        facts += (
            r"w1, w2, w3 wait for a reboot, and that does not end by itself",
            r"No: |possible  no",
        )
    items = locked_in_use("--annotate-nodes=true", needed=True)
    return Incident("-".join(("lock-needed", *ask)), f"{KURED}/issues/137", items, YES, facts, ask)


def lock_and_nodes_without_marks(*ask: str) -> Incident:
    """Without its argument kured marks no node, so that those which wait are not known."""
    facts: tuple[str, ...] = (r"w9, which does not exist", r"weave.works/kured-node-lock")
    if ask[0] == "scan":
        facts += (
            r"Kured never reboots any node",
            r"(?s)\A(?!.*node-reboot-held.*node-reboot-held)",
        )
    else:
        facts += (
            r"Each node that needs a reboot waits for it",
            r"(?s)\A(?!.*Yes: )(?!.*possible  yes)",
        )
    return Incident(
        "-".join(("lock-unmarked", *ask)), f"{KURED}/issues/137", locked_in_use(), YES, facts, ask
    )


def lock_and_nodes_that_need_no_reboot() -> Incident:
    """kured would mark nodes: an upgrade by other means passes."""
    items = locked_in_use("--annotate-nodes")
    return Incident("lock-unneeded", f"{KURED}/issues/137", items, YES, (r"Yes: ",), ("upgrade",))


def lock_that_still_lasts() -> Incident:
    facts = (
        r"Yes: ",
        (
            r"w1, w2, w3 wait for the lock of kured \(DaemonSet kube-system/kured\), which w9 has "
            r"for 20 h\. That node does not exist any more\. Its lock expires at"
        ),
        r"(?s)\A(?!.*reboots no node)",
    )
    items = locked_in_use("--annotate-nodes=true", seconds=86400, needed=True)
    return Incident("lock-lasts", f"{KURED}/issues/137", items, YES, facts, ("upgrade",))


def lock_that_expires() -> Incident:
    facts = (r"(?s)\A(?!.*kured)(?!.*Kured)", r"Yes: ")
    return Incident(
        "lock-expires", f"{KURED}/issues/63", locked("w9", 3600), YES, facts, ("upgrade",)
    )


def lock_of_a_node() -> Incident:
    """One node after the other: w3 has its turn."""
    facts = (r"(?s)\A(?!.*reboots no node)", r"Yes: ")
    return Incident("lock-of-w3", f"{KURED}/issues/63", locked("w3"), YES, facts, ("upgrade",))


def volume_of_a_fenced_node(*ask: str) -> Incident:
    """The node is back, but a pod that tolerates every taint came back, too,
    and keeps its volume attached.
    """
    items = plain((1, 6)) + guest("web", "w2") + namespaces("edge")
    keys = ("medik8s.io/remediation", "node.kubernetes.io/out-of-service")
    back = find(items, "Node", "w1")
    back["spec"] |= {
        "unschedulable": True,
        "taints": [{"key": key, "effect": "NoExecute"} for key in keys],
    }
    for each in back["status"]["conditions"]:
        each["lastTransitionTime"] = ago(minutes=139)
    agent = deployment(
        "agent", "edge", ["w1"], {"app": "agent"}, spec={"tolerations": [{"operator": "Exists"}]}
    )
    agent[-1]["spec"]["volumes"] = [
        {"name": "spool", "persistentVolumeClaim": {"claimName": "spool"}}
    ]
    spool = claim("spool")
    volume = next(each for each in spool if each["kind"] == "PersistentVolume")
    volume["spec"]["claimRef"] = {"namespace": "edge", "name": "spool"}
    spec = {
        "attacher": "csi",
        "nodeName": "w1",
        "source": {"persistentVolumeName": volume["metadata"]["name"]},
    }
    items += [
        *agent,
        *spool,
        obj("VolumeAttachment", "storage.k8s.io/v1", "csi-1", spec=spec, status={"attached": True}),
    ]
    source = "https://github.com/medik8s/self-node-remediation/pull/270"
    facts = (r"remediator waits for the volume of pod edge/agent-5d8f-x0 \(claim edge/spool\)",)
    if ask[0] == "scan":
        facts += (
            (
                r"See virt-admit explain node/w1\. \[node-fence-taint-left\]\n +to do: virt-admit "
                r"explain node/w1\n"
            ),
        )
    if ask[0] == "explain":
        facts += (
            r"taints medik8s.io/remediation, node.kubernetes.io/out-of-service",
            (
                r"which does not end by itself\. Scale Deployment edge/agent to 0 for this time, "
                r"after which the remediator"
            ),
            r"kubectl scale deployment agent -n edge --replicas=0",
            r"(?s)\A(?!.*kubectl drain w1 )",
        )
    return Incident("-".join(("volume-of-fenced", *ask)), source, items, YES, facts, ask)


def request(name: str, node: str, late: float, **status: object) -> dict:
    """Return the request of a kubelet for its client certificate, as short as its subject."""
    subject = f"system:node:{node}".encode()
    text = base64.b64encode(b"\x30\x20\x0c" + bytes([len(subject)]) + subject + b"\x30\x59\x30\x13")
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\n" + text + b"\n-----END CERTIFICATE REQUEST-----\n"
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "username": "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
    }
    metadata = {"creationTimestamp": ago(minutes=late)}
    kind = "CertificateSigningRequest"
    return obj(kind, "certificates.k8s.io/v1", name, metadata=metadata, spec=spec, status=status)


def powered_on(*requests: dict) -> list[dict]:
    items = plain((1, 6)) + guest("web", "w2")
    node = find(items, "Node", "w1")
    for each in node["status"]["conditions"]:
        each |= {
            "status": "Unknown",
            "lastTransitionTime": ago(days=35),
            "lastHeartbeatTime": ago(days=35),
        }
    node["metadata"]["annotations"]["kubevirt.io/heartbeat"] = ago(days=35)
    return [*items, *requests]


def certificate_that_expired(*ask: str) -> Incident:
    items = powered_on(
        request("csr-a", "w1", 50), request("csr-b", "w1", 5), request("csr-c", "w9", 1)
    )
    facts = (r"csr-b", r"[Dd]o not fence|do not fence it", r"(?s)\A(?!.*csr-c)(?!.*or fence it)")
    if ask[0] == "explain":
        facts += (
            (
                r"runs, but its kubelet has no valid certificate and cannot report: its "
                r"CertificateSigningRequests csr-a, csr-b"
            ),
            r"pending for 50 min. That does not end by itself",
            r"kubectl certificate approve csr-b",
        )
    source = "https://github.com/okd-project/okd/issues/285"
    return Incident("-".join(("certificate", *ask)), source, items, YES, facts, ask)


def certificate_that_came() -> Incident:
    """The request was approved, and the node does not report for another reason."""
    done = request("csr-a", "w1", 50, conditions=[{"type": "Approved", "status": "True"}])
    facts = (r"(?s)\A(?!.*csr-a)", r"[Rr]epair the node, or fence it")
    source = "https://github.com/okd-project/okd/issues/285"
    return Incident("certificate-came", source, powered_on(done), YES, facts, ("scan",))


def certificate_that_was_renewed() -> Incident:
    """The kubelet asked while it still reported, so its request does not say that the node runs."""
    facts = (r"(?s)\A(?!.*csr-a)", r"[Rr]epair the node, or fence it")
    source = "https://github.com/okd-project/okd/issues/285"
    items = powered_on(request("csr-a", "w1", 60 * 24 * 36))
    return Incident("certificate-renewed", source, items, YES, facts, ("scan",))


def incidents() -> list[Incident]:
    return [
        certificate_that_was_renewed(),
        lock_of_a_node_that_is_gone("upgrade"),
        lock_of_a_node_that_is_gone("explain", "node/w1"),
        lock_in_the_scan(),
        lock_of_a_blocked_node(
            "scan",
            says=(
                (
                    r"Node/w2 and 1 more: warn: Kured does not reboot this node: w1, whose reboot "
                    r"pod kube-system/kured.* blocks, has its lock for 12 days\. Update kured"
                ),
            ),
        ),
        lock_of_a_blocked_node(
            "upgrade", says=(r"stops: kured reboots no node: w1 has held its lock for 12 days",)
        ),
        lock_and_nodes_that_need_a_reboot("scan"),
        lock_and_nodes_that_need_a_reboot("upgrade"),
        lock_and_nodes_that_need_a_reboot("explain", "node/w2"),
        lock_and_nodes_without_marks("scan"),
        lock_and_nodes_without_marks("upgrade"),
        lock_and_nodes_without_marks("explain", "node/w2"),
        lock_and_nodes_that_need_no_reboot(),
        lock_that_still_lasts(),
        lock_that_expires(),
        lock_of_a_node(),
        volume_of_a_fenced_node("explain", "node/w1"),
        volume_of_a_fenced_node("scan"),
        certificate_that_expired("explain", "node/w1"),
        certificate_that_expired("scan"),
        certificate_that_came(),
    ]
