"""No health check rule raises, whatever value a field has."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.remediation.health_check_reviews import (
    CAPI_V1BETA1,
    CAPI_V1BETA2,
    HANDLER,
    MHC,
    NHC,
    changed,
    review,
)
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot
from virt_admit.model.kubernetes.objects import Object

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
MACHINE = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "kind": "Machine",
    "metadata": {"name": "m"},
    "spec": {},
}
MACHINE_SET = {**MACHINE, "kind": "MachineSet", "spec": {"replicas": 3}}
TEMPLATE = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
    "metadata": {"name": "auto"},
    "spec": {"template": {"spec": {}}},
}
PATHS = [
    *(
        (base, path)
        for base in (MHC, CAPI_V1BETA1, CAPI_V1BETA2, NHC)
        for path in ("metadata", "metadata.annotations", "spec", "spec.selector",
                     "spec.selector.matchLabels",
                     "spec.selector.matchExpressions", "spec.unhealthyConditions",
                     "spec.maxUnhealthy", "spec.checks",
                     "spec.checks.unhealthyMachineConditions", "spec.remediation",
                     "spec.remediation.triggerIf",
                     "spec.nodeStartupTimeout", "spec.remediationTemplate",
                     "spec.escalatingRemediations",
                     "spec.clusterName", "spec.minHealthy")
    ),
    *((MACHINE, path) for path in ("metadata", "metadata.annotations", "metadata.ownerReferences",
                                   "spec.lifecycleHooks",
                                   "spec.lifecycleHooks.preDrain", "status", "status.nodeRef")),
    *((MACHINE_SET, path) for path in ("metadata", "spec", "spec.replicas", "spec.selector",
                                       "spec.template",
                                       "spec.template.metadata.labels", "spec.deletePolicy")),
    *((TEMPLATE, path) for path in ("spec", "spec.template.spec",
                                    "spec.template.spec.remediationStrategy")),
]  # fmt: skip
RICH = Snapshot(
    [Object(data) for data in (MHC, CAPI_V1BETA1, NHC, HANDLER)]
    + [
        Object(
            {
                "apiVersion": group,
                "kind": "Machine",
                "metadata": {"name": "m", "namespace": namespace, "labels": {"pool": "blue"}},
            }
        )
        for group, namespace in (
            ("machine.openshift.io/v1beta1", "openshift-machine-api"),
            ("cluster.x-k8s.io/v1beta1", "tenants"),
        )
    ]
)


@settings(max_examples=300)
@given(st.sampled_from(PATHS), JSON, st.sampled_from([NOTHING, RICH]))
def test_no_rule_raises(location, value, cluster):
    base, path = location
    data = changed(base, path, value)
    review(data, cluster=cluster, kind=kinds.of(Object(base)))
    review(base, data, cluster=cluster)
    review(data, base, cluster=cluster, kind=kinds.of(Object(base)))
