"""``make sandbox``: a real kube-apiserver that asks the webhook, left running.

Ctrl-C stops all of it.

With ``SCHEDULER=1`` kube-scheduler runs too, so that a forecast of ``virt-admit drain`` can be
compared with what happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import yaml

from tests.apiserver.binaries import Unavailable, binaries
from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import VIRT_ADMIT, Webhook, register
from tests.paths import EXAMPLES

NAMESPACES = ("shop", "kubevirt", "openshift-machine-api")
CLUSTER = EXAMPLES / "cluster.yaml"

GREETING = """
A real API server asks virt-admit about every virtual machine and health check. It holds the small cluster of
examples/cluster.yaml. In another terminal:

  export KUBECONFIG={kubeconfig}
  {kubectl} apply -f examples/03-both-keys.yaml           # refused, with what to write instead
  {kubectl} apply -f examples/02-unshared-disk.yaml       # gets the eviction strategy that is safe for it
  {virt_admit} certs status --certs {certs}

The webhook's log: {log}
{scheduler}Ctrl-C stops everything.
"""  # noqa: E501


SCHEDULER = """\
kube-scheduler binds Pods to the nodes that their objects describe; no kubelet runs them:

  {virt_admit} drain --all                                 # the forecast
  {kubectl} drain worker-1 --dry-run=server --ignore-daemonsets --delete-emptydir-data --force

"""
NOT_READY = "node.kubernetes.io/not-ready:NoSchedule-"


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # a shell that starts us in the background ignores it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found = binaries()
    except (Unavailable, FileNotFoundError) as missing:
        print(missing, file=sys.stderr)
        return 2
    print("starting etcd and kube-apiserver …", flush=True)
    try:
        with ControlPlane(found) as plane:
            install_crds(plane)
            for namespace in NAMESPACES:
                plane.kubectl("create", "namespace", namespace, check=True)
            items = yaml.safe_load(CLUSTER.read_text())["items"]
            plane.kubectl(
                "apply", "--validate=false", "-f", "-", input=yaml.safe_dump_all(items), check=True
            )
            with contextlib.ExitStack() as stack:
                programs = {"kubectl": found.kubectl, "virt_admit": VIRT_ADMIT}
                scheduler = _start_scheduler(plane, stack).format(**programs)
                flags = ("--live", "--kubeconfig", plane.kubeconfig, "--log-format", "text")
                webhook = stack.enter_context(Webhook(plane.folder, *flags))
                register(plane, webhook)
                places = {
                    "kubeconfig": plane.kubeconfig,
                    "log": webhook.log,
                    "certs": webhook.ca.parent,
                }
                print(GREETING.format(scheduler=scheduler, **programs, **places), flush=True)
                while webhook.running:
                    time.sleep(0.2)
                print(
                    f"the webhook has stopped:\n{webhook.log.read_text()[-3000:]}", file=sys.stderr
                )
                return 1
    except KeyboardInterrupt:
        print("\nstopped")
        return 0


def _start_scheduler(plane: ControlPlane, stack: contextlib.ExitStack) -> str:
    """Start kube-scheduler if it was asked for, and return what to try with it."""
    if os.environ.get("SCHEDULER") != "1":
        return ""
    print("starting kube-scheduler …", flush=True)
    plane.kubectl("taint", "nodes", "--all", NOT_READY, check=True)  # no controller removes it here
    stack.enter_context(plane.scheduler())
    return SCHEDULER


if __name__ == "__main__":
    sys.exit(main())
