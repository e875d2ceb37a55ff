"""{subject} uses a field that does not exist.

**Why.** The API server drops a field that the schema does not define, so the setting has no effect.
``kubectl`` rejects such a file by default. Other clients and GitOps tools lose the setting without
an error. Only ``virt-admit check`` can find this, because the API server drops the field before it
calls the webhook.

**Fix.** Use the field that the message names, or remove it. A field counts as unknown only if no
API version and no release that virt-admit has a table of defines it. A newer release may define
it.{more}
"""

from collections.abc import Callable, Iterator

from virt_admit.model import unknown_fields
from virt_admit.model.kubernetes.kinds import (
    CAPI_MHC,
    CDI,
    FAR_TEMPLATE,
    HCO,
    KUBEVIRT,
    MHC,
    NHC,
    NM,
    NM_KUBEVIRT,
    POOL,
    SNR_CONFIG,
    VM,
    VMI,
    VMIRS,
)
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Kind, Rule, rule


def no_other_version(_: Object) -> Iterator[Path]:
    """Most kinds have the same fields in every API version."""
    return iter(())


def other_capi_version(check: Object) -> Iterator[Path]:
    """Yield what capi-mhc-field-wrong-version reports."""
    # the other kinds do without
    from virt_admit.model.remediation import capi_versions  # noqa: PLC0415

    return (field.path for field, _ in capi_versions.foreign_fields(check))


def other_hco_version(hco: Object) -> Iterator[Path]:
    """Yield what hco-field-wrong-version reports."""
    # the other kinds do without
    from virt_admit.model.kubevirt.settings import hco_versions  # noqa: PLC0415

    return (field.path for field in hco_versions.foreign_fields(hco))


def unknown_field(
    rule_id: str,
    kinds: tuple[Kind, ...],
    subject: str,
    definition: str,
    other_version: Callable[[Object], Iterator[Path]] = no_other_version,
    more: str = "",
) -> Rule:
    """Declare the rule of one custom resource.

    Args:
        definition: the source of its fields.
        other_version: yields the fields of another API version, which another rule reports.
        more: the end of the page.
    """

    @rule(
        id=rule_id,
        doc=(__doc__ or "").format(subject=subject, more=more),
        kinds=kinds,
        action=Action.WARN,
        at_admission=False,
        in_scan=False,
        sources=(definition,),
    )
    def check(obj: Object, _context: Context) -> Findings:
        wrong_version = set(other_version(obj))
        for unknown in unknown_fields.find(obj):
            if unknown.path[:2] not in wrong_version:
                yield Finding(
                    unknown.path,
                    check.first_that_fits(unknown.path, *unknown.messages),
                    cause=Cause.FORBIDDEN,
                )

    return check


RULES = (
    unknown_field(
        "capi-mhc-field-unknown",
        (CAPI_MHC,),
        "A Cluster API MachineHealthCheck",
        "kubernetes-sigs/cluster-api:core/config/crd/bases/"
        "cluster.x-k8s.io_machinehealthchecks.yaml",
        other_capi_version,
        " The rule capi-mhc-field-wrong-version\nreports the fields of the other version.",
    ),
    unknown_field(
        "cdi-field-unknown",
        (CDI,),
        "CDI",
        "kubevirt/containerized-data-importer:pkg/operator/resources/crds_generated.go",
    ),
    unknown_field(
        "far-field-unknown",
        (FAR_TEMPLATE,),
        "A FenceAgentsRemediationTemplate",
        "medik8s/fence-agents-remediation:config/crd/bases/"
        "fence-agents-remediation.medik8s.io_fenceagentsremediationtemplates.yaml",
    ),
    unknown_field(
        "hco-field-unknown",
        (HCO,),
        "HyperConverged",
        "kubevirt/hyperconverged-cluster-operator:deploy/crds/hco00.crd.yaml",
        other_hco_version,
        " The rule hco-field-wrong-version\nreports the fields of another API version.",
    ),
    unknown_field(
        "kubevirt-field-unknown",
        (KUBEVIRT,),
        "KubeVirt",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#KubeVirtSpec",
    ),
    unknown_field(
        "mhc-field-unknown",
        (MHC,),
        "A MachineHealthCheck",
        "openshift/machine-api-operator:install/"
        "0000_30_machine-api-operator_07_machinehealthcheck.crd.yaml",
    ),
    unknown_field(
        "nhc-field-unknown",
        (NHC,),
        "A NodeHealthCheck",
        "medik8s/node-healthcheck-operator:config/crd/bases/"
        "remediation.medik8s.io_nodehealthchecks.yaml",
    ),
    unknown_field(
        "nm-field-unknown",
        (NM, NM_KUBEVIRT),
        "A NodeMaintenance",
        "medik8s/node-maintenance-operator:config/crd/bases/"
        "nodemaintenance.medik8s.io_nodemaintenances.yaml",
    ),
    unknown_field(
        "pool-field-unknown",
        (POOL,),
        "A VirtualMachinePool",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/pool/v1beta1/types.go#VirtualMachinePoolSpec",
    ),
    unknown_field(
        "snrc-field-unknown",
        (SNR_CONFIG,),
        "A SelfNodeRemediationConfig",
        "medik8s/self-node-remediation:config/crd/bases/"
        "self-node-remediation.medik8s.io_selfnoderemediationconfigs.yaml",
    ),
    unknown_field(
        "vm-field-unknown",
        (VM,),
        "A VirtualMachine",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#VirtualMachineSpec",
    ),
    unknown_field(
        "vmi-field-unknown",
        (VMI,),
        "A VirtualMachineInstance",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#VirtualMachineInstanceSpec",
    ),
    unknown_field(
        "vmirs-field-unknown",
        (VMIRS,),
        "A VirtualMachineInstanceReplicaSet",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/"
        "types.go#VirtualMachineInstanceReplicaSetSpec",
    ),
)
