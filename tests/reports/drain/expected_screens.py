"""What ``--follow`` shows of each recorded sequence: by the time in seconds,
words of one line each.

Words that begin with ``screen:`` are in a line of the screen, others in a line that is new at that
time.
"""

from __future__ import annotations

from collections.abc import Mapping

Expected = Mapping[int, tuple[str, ...]]

DONE = "is empty: nothing is left that a drain evicts"

VMS: Mapping[str, Expected] = {
    "three VMs behind a limit of one": {
        0: ("a, cordoned. 3 VMs and 0 pods left", "shop/vm1 marked: migrates", "a: a drain ends"),
        5: (
            "shop/vm1 marked → target-pending to b",
            "shop/vm2 marked → queued",
            "a may send 1 at a time",
            "screen: shop/vm3: migrates: ",
            "screen: Ends in 0 to 20 min.",
        ),
        20: (
            "shop/vm1 target-pending → running to b",
            "screen: shop/vm2  queued   16 s   one of 2",
        ),
        90: (
            "shop/vm1 running → arrived to b",
            "shop/vm2 queued → still",
            "screen: 2 of 3 VMs and 0 pods left",
        ),
        95: ("shop/vm2 still → target-pending", "shop/vm1 has left to b; 2 VMs and 0 pods left"),
        105: (
            "shop/vm2 target-pending → running to b",
            "screen: shop/vm3  queued   101 s  1st of 1",
        ),
        170: ("shop/vm3 queued → running to b", "shop/vm2 has left to b; 1 VM and 0 pods left"),
        240: ("shop/vm3 has left to b; 0 VMs and 0 pods left", DONE),
    },
    "unschedulable, with growing pauses": {
        0: ("shop/db marked: blocks the drain", "a: a drain does not end"),
        65: (
            "shop/db marked → unschedulable",
            "0/3 nodes are available: 3 cpu",
            "KubeVirt gives the migration up at 11:05 UTC, then repeats it",
        ),
        307: ("shop/db unschedulable → backoff", "screen: shop/db  backoff  1 s    11:05 UTC"),
        385: ("shop/db backoff → unschedulable", "gives the migration up at 11:10 UTC"),
        627: ("shop/db unschedulable → backoff", "screen: shop/db  backoff  1 s    11:11 UTC"),
        967: ("screen: shop/db  backoff  1 s    11:17 UTC",),
        1347: ("screen: shop/db  backoff  1 s    11:25 UTC",),
        1807: ("screen: shop/db  backoff  1 s    11:35 UTC",),
        2427: (
            "screen: shop/db  backoff  1 s    11:45 UTC",
            "screen: no node that could take it is schedulable now: b, c",
            "screen: to do: uncordon or repair one of them: kubectl uncordon b",
        ),
    },
    "CPU features, all nodes tried": {
        60: (
            "shop/db marked → backoff: migrates: 1 attempt failed",
            "missing features: vmx-vmfunc",
        ),
        140: (
            "shop/db backoff: blocks the drain",
            "b, c: it lacks vmx-vmfunc",
            "screen: restart the VM: kubectl edit vm db -n shop",
        ),
    },
    "time-out at the deadline, repeated": {
        10: (
            "shop/db marked → running to b",
            "if it has not ended at 11:12 UTC",
            "screen: Ends in 0 to 13 min.",
        ),
        400: (
            "shop/db running to b: unknown",
            "whether a drain ends cannot be determined",
            "screen: give migrations",
        ),
        760: ("shop/db running → backoff: unknown", "cancelled after 12 min: timed out"),
        1540: (
            "shop/db backoff: blocks the drain",
            "screen: its last 2 migrations were cancelled after 12 min each: timed out",
            "screen: kubectl edit kubevirt kubevirt -n kubevirt",
        ),
    },
    "post-copy": {
        10: ("switches to post-copy at 11:12 UTC",),
        700: ("screen: Ends in 0 to 60 s.",),
        760: ("shop/db running → post-copy to b: migrates: runs on b already, its memory follows",),
        900: ("shop/db post-copy → arrived to b", "screen: Ends in 0 to 35 s."),
        905: ("shop/db has left to b", DONE),
    },
    "paused": {
        10: ("shop/db marked → running to b", "screen: Ends in 0 to 13 min."),
        760: ("shop/db running → paused to b: migrates", "at most until 11:25 UTC"),
        800: ("shop/db has left to b", DONE),
    },
    "attachment pod never ready": {
        20: (
            "shop/db marked → target-not-ready to b",
            "screen: kubectl describe pod hp-volume-db -n shop",
        ),
        200: ("screen: the pod that attaches its volumes on b has not been ready for 3 min",),
        310: (
            "shop/db target-not-ready → backoff: migrates: 1 attempt failed (Target pod is down)",
        ),
    },
    "virt-handler of the target dies": {
        20: ("shop/db marked → preparing to b", "virt-handler", "screen: Ends in 0 to 8 min."),
        200: ("screen: shop/db  preparing  3 min",),
        330: (
            "shop/db preparing → backoff: migrates: 1 attempt failed (Target pod is down)",
            "starts at 11:05 UTC",
        ),
    },
    "quota, then raised": {
        10: ("shop/db marked → quota: blocks the drain", "a: a drain does not end"),
        1900: ("screen: resourcequota", "screen: A drain does not end."),
        2000: ("shop/db quota → target-pending to b", "a: a drain ends"),
        2020: ("shop/db target-pending → running to b",),
        2090: ("shop/db has left to b", DONE),
    },
    "drain given up, mark left": {
        10: ("shop/db marked → running to b",),
        60: (
            "a, not cordoned: nothing drains it. 1 VM and 0 pods left",
            "still marked for eviction",
        ),
        120: ("shop/db running → backoff", "still marked for eviction"),
    },
    "stale mark": {
        0: (
            (
                "shop/db stale-mark: blocks the drain: is marked for the evacuation of c, which it "
                "has left"
            ),
        ),
        600: (
            "screen: every eviction is refused",
            "screen: to do: virtctl evacuate-cancel vmi db -n shop",
        ),
        700: ("shop/db stale-mark → still: migrates", "a: a drain ends"),
    },
    "an arriving VM": {
        0: (
            "shop/web running to a: migrates",
            "it arrives from b in a moment, then has to leave again",
        ),
        60: ("shop/web running → marked", "screen: 1 VM and 0 pods left"),
        140: ("shop/web has left; 0 VMs and 0 pods left", DONE),
    },
    "a migration that stays open and holds the place": {
        0: ("shop/db running to b", "shop/web queued: migrates: waits for a place"),
        60: (
            "shop/db running → not-closed to b: migrates: has migrated, but its migration",
            "HotVCPUChange",
        ),
        1200: (
            "screen: shop/db   not-closed  19 min",
            "screen: shop/web: unknown: waits for a place",
            "screen: (has migrated, but its migration is still open: HotVCPUChange)",
            "screen: kubectl describe vmi db -n shop",
        ),
    },
    "two drains at once": {
        10: ("shop/db still → queued: migrates", "shop/web for 5 s", "screen: Ends in 0 to 3 min."),
        90: ("shop/db queued → target-pending to b",),
        100: ("shop/db target-pending → running to b",),
        170: ("shop/db has left to b", DONE),
    },
    "two drains at once, the other node": {
        0: ("c, cordoned. 1 VM and 0 pods left", "shop/web marked: migrates"),
        10: ("shop/web marked → running to b", "screen: Ends in 0 to "),
        90: ("shop/web has left to b", DONE),
    },
}

NODES: Mapping[str, Expected] = {
    "the node becomes Unknown": {
        10: ("shop/db marked → running to b",),
        70: (
            "shop/db running to b: blocks the drain: its node does not report",
            "a: a drain does not end; Node a",
        ),
        400: (
            "screen: Node a: its kubelet does not report",
            "screen: fence the node: kubectl describe node a",
        ),
    },
    "the only virt-controller leaves with the node": {
        0: (
            "whether a drain ends cannot be determined: virt-controller runs on a alone",
            "screen: Move it first",
        ),
        30: (
            "pod kubevirt/virt-controller-a has left",
            "Deployment kubevirt/virt-controller: virt-controller has no",
        ),
        300: ("screen: kubectl describe deployment virt-controller -n kubevirt",),
        330: ("shop/db marked: migrates", "a: a drain ends"),
        400: ("shop/db has left", DONE),
    },
    "pool half done, one node cordoned by hand": {
        0: ("a, not cordoned: nothing drains it. 1 VM and 0 pods left",),
        30: (
            "a, drained by MachineConfigPool worker. 1 VM and 0 pods left",
            "screen: Ends in 6 to 87 s.",
        ),
        60: ("shop/db marked → running to b",),
        130: ("shop/db has left to b", DONE),
    },
    "a Machine whose drain time-out passes": {
        0: (
            "a, drained by Machine worker-a for 0 s",
            "shop/db refused: blocks the drain",
            "a: a drain does not end",
        ),
        300: (
            "screen: Cluster API ends the drain for Machine worker-a at 11:10 UTC",
            "screen: kubectl patch vm db -n shop",
        ),
        900: ("node a was deleted",),
    },
    "a Machine whose pre-drain hook stays": {
        0: (
            (
                "a: a drain ends; its end is not known: when the owner removes the pre-drain hook "
                "move-data of storage-team of Machine machines/worker-a"
            ),
            (
                "screen: a, drained by Machine worker-a for 0 s. 1 VM and 0 pods left. Its end is "
                "not known: when the owner"
            ),
        ),
        3000: ("screen: kubectl describe machines.cluster.x-k8s.io worker-a -n machines",),
        3010: ("a: a drain ends", "screen: Ends in 6 to 87 s."),
        3060: (DONE,),
    },
    "Longhorn with an engine": {
        0: (
            "a: a drain ends",
            "screen: waits for: PodDisruptionBudget longhorn-system/instance-manager-a",
        ),
        60: ("shop/db has left; 0 VMs and 3 pods left",),
        90: ("pod longhorn-system/instance-manager-a has left; 0 VMs and 2 pods left",),
    },
    "Longhorn with the last replica": {
        0: ("the only healthy copy of Longhorn volume v1 is on node a", "screen: Add a replica"),
        600: ("a: a drain ends",),
    },
    "Rook, this node first": {
        0: ("screen: Rook lets all OSDs of node a go about 1 minute after the first one is down",),
        20: ("pod rook-ceph/rook-ceph-osd-0 has left; 0 VMs and 1 pod left",),
        60: ("pod rook-ceph/rook-ceph-osd-1 has left; 0 VMs and 0 pods left", DONE),
    },
    "Rook while another node drains": {
        0: ("a: a drain ends",),
        10: ("a: a drain does not end", "Ceph waits until b is back and its data is clean"),
        600: ("screen: repair b if it does not come back", "screen: -n rook-ceph"),
    },
    "CloudNativePG primary with a replica": {
        0: (
            "a: a drain ends",
            "screen: CloudNativePG moves the primary of Cluster pg to a replica on another node",
        ),
        40: ("pod shop/pg-1 has left; 0 VMs and 0 pods left", DONE),
    },
    "CloudNativePG primary alone": {
        0: (
            "a: a drain does not end",
            "Cluster pg has one instance, which CloudNativePG cannot move",
        ),
        1200: ("screen: Set instances: 2 in the Cluster", "screen: -n shop"),
    },
    "Harvester with one failed evacuation": {
        0: ("a, drained by Harvester. 2 VMs and 0 pods left", "shop/web marked: migrates"),
        90: ("shop/db has left to b; 1 VM and 0 pods left",),
        150: ("shop/web marked → stopping: stays stopped", "screen: virtctl start web -n shop"),
        200: ("shop/web has left; 0 VMs and 0 pods left", DONE),
    },
    "update of KubeVirt itself": {
        0: ("shop/db marked: migrates",),
        60: (
            "shop/db marked: blocks the drain",
            "virt-handler serves none of the nodes that could take it: b, c",
            "screen: kubectl get pods -A -l kubevirt.io=virt-handler",
        ),
        120: ("shop/db marked: migrates", "a: a drain ends"),
        130: ("shop/db marked → running to b",),
        200: ("shop/db has left to b", DONE),
    },
    "node-local disk": {
        0: (
            "shop/db still: waits for its node",
            "a: a drain ends",
            "screen: plan for its downtime until a is back",
        ),
        20: ("shop/db still → stopping: waits for its node",),
        60: ("shop/db has left; 0 VMs and 0 pods left", DONE),
    },
    "node-local disk, the node is back": {
        20: ("a, not cordoned: nothing drains it", "shop/db starting: waits for its node"),
        60: ("shop/db starting → still: waits for its node",),
    },
}
