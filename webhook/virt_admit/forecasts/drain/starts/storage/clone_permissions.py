"""Disks of a VM that KubeVirt does not create,
as the VM's service account may not copy their source.

For a template of a VM, virt-controller asks for the right of the service account that a volume of
the VM names, else of ``default``: what its user may do does not count. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#authorizeDataVolume, issue #10011;
kubevirt/containerized-data-importer:staging/src/kubevirt.io/containerized-data-importer-api/pkg/
apis/core/v1beta1/authorize_utils.go#sendSubjectAccessReviewsPvc, doc/RBAC.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem, ProblemCause

_SAID: Final = re.compile(
    r"User (\S{1,320}) has insufficient permissions in clone source namespace ([\w-]{1,63})"
)
_ACCOUNT: Final = re.compile(r"system:serviceaccount:([\w-]{1,63}):([\w.-]{1,253})\Z")
_CLUSTER_ROLE: Final = Kind("rbac.authorization.k8s.io", ("v1",), "clusterroles", "ClusterRole")
"""Only snapshot files have them."""
_GROUP: Final = "cdi.kubevirt.io"
_SOURCE: Final = "datavolumes/source"
_NEW_ROLE: Final = "cdi-cloner"


def problem(vm: Object, said: str, lasts: str, cluster: Cluster) -> Problem | None:
    """Return who may not copy the source of a disk, and what permits it; None:
    the message says something else.
    """
    found = _SAID.search(said)
    if found is None:
        return None
    user, source = found[1], found[2]
    account = _ACCOUNT.match(user)
    who = f"ServiceAccount {account[1]}/{account[2]}" if account is not None else f"user {user}"
    disk = next(_disks(vm, source, cluster), "")
    what = f"its DataVolume {disk}" if disk else "a DataVolume of it"
    right = f"{who} may not clone from namespace {source} (create {_SOURCE} there)"
    of_account = (
        ", and KubeVirt asks for the right of the VM's service account, not of its user"
        if account
        else ""
    )
    reason = f"KubeVirt does not create {what}{f' {lasts}' if lasts else ''}: {right}{of_account}"
    brief = f"{what} is not created: {who} may not clone from namespace {source}"
    return Problem(
        reason, _remedy(user, source, who, cluster), ProblemCause.NOT_REPORTED, brief=brief
    )


def _remedy(user: str, source: str, who: str, cluster: Cluster) -> str:
    """Return what permits the copy: a RoleBinding in the namespace of the source, with a role that
    has this right alone.
    """
    account = _ACCOUNT.match(user)
    role = min((each.name for each in cluster.known(_CLUSTER_ROLE) if _permits(each)), default="")
    subject = (
        f"--serviceaccount={account[1]}:{account[2]}" if account is not None else f"--user={user}"
    )
    name = f"clone-{account[1]}-{account[2]}" if account is not None else "clone-sources"
    create = ("kubectl", "create", "rolebinding", argument(name), "-n", source)
    bound = shell(*create, f"--clusterrole={role or _NEW_ROLE}", subject)
    right = ("--verb=create", f"--resource=datavolumes.{_GROUP}/source")
    made = shell("kubectl", "create", "clusterrole", _NEW_ROLE, *right)
    by = f"ClusterRole {role}" if role else f"a ClusterRole with {_SOURCE} ({made})"
    return typed(
        f"bind {by} to {who} in namespace {source}; KubeVirt then creates the disk by itself", bound
    )


def _permits(role: Object) -> bool:
    """Return whether a role gives the right to copy, and no other one."""
    rules = list(role["rules"].items())
    if not all(
        _only(rule, "apiGroups", _GROUP) and _only(rule, "resources", _SOURCE) for rule in rules
    ):
        return False
    free = (rule for rule in rules if not rule["resourceNames"].present)
    return any({"create", "*"} & {verb.text for verb in rule["verbs"].items()} for rule in free)


def _only(rule: Field, key: str, value: str) -> bool:
    return [each.text for each in rule[key].items()] == [value]


def _disks(vm: Object, source: str, cluster: Cluster) -> Iterator[str]:
    """Yield the templates that copy from a namespace and whose DataVolume does not exist,
    as far as is known.
    """
    for template in vm.at("spec", "dataVolumeTemplates").items():
        name, spec = template.at("metadata", "name").text or "", template["spec"]
        places = (spec.at("source", "pvc"), spec.at("source", "snapshot"), spec["sourceRef"])
        copies = spec["sourceRef"].is_map or any(
            each["namespace"].text == source for each in places
        )
        if name and copies and find(cluster, DATA_VOLUME, vms.namespace_of(vm), name) is None:
            yield name
