"""The panels of the Grafana dashboard: their queries, in sections."""

from __future__ import annotations

from typing import Final, NamedTuple

OURS: Final = 'name=~".+[.]virt-admit[.]io"'
"""Our entries among all webhooks that an API server calls."""


class Panel(NamedTuple):
    """A time series panel: its queries with the legend of each."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    description: str = ""


_ESTIMATED: Final = ("upgrade", "failover")


def _quantile(share: str, metric: str, by: str, only: str = "") -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket{only}[5m])))"


SECTIONS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Reviews",
        (
            Panel(
                "Reviews by outcome",
                "reqps",
                (("sum by (outcome) (rate(virt_admit_requests_total[5m]))", "{{outcome}}"),),
            ),
            Panel(
                "Time to decide",
                "s",
                tuple(
                    (
                        _quantile(share, "virt_admit_request_duration_seconds", "endpoint"),
                        f"{name} {{{{endpoint}}}}",
                    )
                    for share, name in (("0.99", "p99"), ("0.5", "p50"))
                ),
            ),
            Panel(
                "Under way",
                "short",
                (("sum by (endpoint) (virt_admit_requests_in_flight)", "{{endpoint}}"),),
            ),
            Panel(
                "Findings in an hour, the ten commonest",
                "short",
                (
                    (
                        "topk(10, sum by (rule, action) (increase(virt_admit_findings_total[1h])))",
                        "{{action}} {{rule}}",
                    ),
                ),
            ),
            Panel(
                "Rules that are blind or crash",
                "short",
                (
                    (
                        "sum by (rule) (increase(virt_admit_rule_unseen_total[1h])) > 0",
                        "blind {{rule}}",
                    ),
                    (
                        "sum by (rule) (increase(virt_admit_rule_not_judged_total[1h])) > 0",
                        "not judged {{rule}}",
                    ),
                    (
                        "sum by (rule) (increase(virt_admit_rule_errors_total[1h])) > 0",
                        "crash {{rule}}",
                    ),
                ),
                "A rule lacked data. This never denies a request.",
            ),
            Panel(
                "Policy",
                "s",
                (
                    (
                        "time() - max by (pod) (virt_admit_policy_loaded_timestamp_seconds)",
                        "age {{pod}}",
                    ),
                    (
                        "sum(increase(virt_admit_policy_reload_errors_total[1h]))",
                        "refused in an hour",
                    ),
                    ("min by (pod) (virt_admit_policy_current)", "current {{pod}}"),
                ),
            ),
        ),
    ),
    (
        "What API servers see",
        (
            Panel(
                "Time until the answer, p99",
                "s",
                (
                    (
                        _quantile(
                            "0.99",
                            "apiserver_admission_webhook_admission_duration_seconds",
                            "name",
                            f"{{{OURS}}}",
                        ),
                        "{{name}}",
                    ),
                ),
                "With the network and TLS; what exceeds timeoutSeconds is let through, or refused "
                "under Fail.",
            ),
            Panel(
                "Calls",
                "reqps",
                (
                    (
                        (
                            "sum by (name, code) "
                            f"(rate(apiserver_admission_webhook_request_total{{{OURS}}}[5m]))"
                        ),
                        "{{name}} {{code}}",
                    ),
                ),
            ),
            Panel(
                "Refused, and let through without a review",
                "reqps",
                (
                    (
                        (
                            "sum by (name) "
                            f"(rate(apiserver_admission_webhook_rejection_count{{{OURS}}}[5m]))"
                        ),
                        "refused {{name}}",
                    ),
                    (
                        (
                            "sum by (name) "
                            f"(rate(apiserver_admission_webhook_fail_open_count{{{OURS}}}[5m]))"
                        ),
                        "failed open {{name}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "The cluster",
        (
            Panel(
                "What would stop a drain: VMs, budgets, pods",
                "short",
                (("max by (node) (virt_admit_drain_blockers)", "{{node}}"),),
            ),
            Panel(
                "Whether a node can be drained: 1 yes, 0 no, -1 unknown",
                "short",
                (("min by (node) (virt_admit_node_drainable)", "{{node}}"),),
            ),
            Panel(
                "Whether a loss is survived: 1 yes, 0 no, -1 unknown",
                "short",
                (
                    ("min by (node) (virt_admit_node_survivable)", "{{node}}"),
                    ("min by (zone) (virt_admit_zone_survivable)", "zone {{zone}}"),
                ),
            ),
            Panel(
                "VMs without failover",
                "short",
                (
                    ("max by (cause) (virt_admit_vms_without_failover) > 0", "{{cause}}"),
                    (
                        "max by (zone) (virt_admit_zone_vms_without_failover) > 0",
                        "loss of zone {{zone}}",
                    ),
                    ("max(virt_admit_failover_spare_nodes)", "spare nodes"),
                ),
            ),
            Panel(
                "Memory that can still start with one node lost",
                "bytes",
                (
                    (
                        'max by (resource) (virt_admit_failover_capacity{resource="memory"})',
                        "{{resource}}",
                    ),
                    ("max(virt_admit_failover_largest_vm_bytes)", "largest VM now"),
                ),
            ),
            Panel(
                "Estimated: an upgrade, the slowest restart after the loss of a node",
                "s",
                tuple(
                    (f"max by (bound) (virt_admit_{name}_seconds)", f"{name} {{{{bound}}}}")
                    for name in _ESTIMATED
                ),
            ),
            Panel(
                "Time until CA bundles of KubeVirt, CDI, HyperConverged and medik8s end",
                "s",
                (
                    (
                        (
                            "max by (kind, name) "
                            "(virt_admit_webhook_bundle_expiry_timestamp_seconds) - time()"
                        ),
                        "{{kind}} {{name}}",
                    ),
                ),
            ),
            Panel(
                "Findings of the last scan",
                "short",
                (("sum by (action, rule) (virt_admit_scan_findings)", "{{action}} {{rule}}"),),
            ),
            Panel(
                "Age and length of the last scan",
                "s",
                (
                    ("time() - max(virt_admit_scan_last_success_timestamp_seconds)", "age"),
                    ("max(virt_admit_scan_duration_seconds)", "length"),
                ),
            ),
        ),
    ),
    (
        "Drains under way",
        (
            Panel(
                "VMs left, by what they are doing",
                "short",
                (("max by (node, state) (virt_admit_drain_vms)", "{{node}} {{state}}"),),
            ),
            Panel(
                "VMs that are stuck",
                "short",
                (("max by (node) (virt_admit_drain_stuck_vms)", "{{node}}"),),
                "They take much longer than they should, or never leave.",
            ),
            Panel(
                "Since the beginning, and since the last progress",
                "s",
                (
                    (
                        "time() - max by (node, by) (virt_admit_drain_started_timestamp_seconds)",
                        "{{node}} by {{by}}",
                    ),
                    (
                        "time() - max by (node) (virt_admit_drain_last_progress_timestamp_seconds)",
                        "{{node}} without progress",
                    ),
                ),
            ),
            Panel(
                "Duration of drains in a day",
                "s",
                tuple(
                    (
                        f"histogram_quantile({share}, sum by (by, le) "
                        "(increase(virt_admit_drain_duration_seconds_bucket[1d])))",
                        f"{name} {{{{by}}}}",
                    )
                    for share, name in (("0.95", "p95"), ("0.5", "p50"))
                ),
            ),
            Panel(
                "Ends of drains in a day",
                "short",
                (
                    (
                        (
                            "sum by (by, result) "
                            "(increase(virt_admit_drain_duration_seconds_count[1d])) > 0"
                        ),
                        "{{result}} {{by}}",
                    ),
                ),
            ),
            Panel(
                "Forecast of a drain: the ten longest, high bound",
                "s",
                (
                    (
                        'topk(10, max by (node) (virt_admit_node_drain_seconds{bound="high"}))',
                        "{{node}}",
                    ),
                ),
            ),
            Panel(
                "Nodes of roll-outs by phase",
                "short",
                (("max by (pool, phase) (virt_admit_upgrade_nodes)", "{{pool}} {{phase}}"),),
            ),
            Panel(
                "Downtime of VMs in an hour",
                "s",
                (
                    (
                        (
                            "sum by (namespace) "
                            "(increase(virt_admit_vm_downtime_seconds_total[1h])) > 0"
                        ),
                        "{{namespace}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "The webhook itself",
        (
            Panel(
                "Certificates: left",
                "s",
                (
                    (
                        (
                            "min by (certificate) (virt_admit_certificate_expiry_timestamp_seconds "
                            "- time())"
                        ),
                        "{{certificate}}",
                    ),
                ),
            ),
            Panel(
                "Rotation in an hour",
                "short",
                (
                    (
                        "sum by (step) (increase(virt_admit_certificate_rotations_total[1h])) > 0",
                        "{{step}}",
                    ),
                    (
                        "sum by (reason) (increase(virt_admit_certificate_errors_total[1h])) > 0",
                        "error {{reason}}",
                    ),
                    ("sum(increase(virt_admit_certificate_conflicts_total[1h]))", "conflicts"),
                    (
                        (
                            "sum by (reason) "
                            "(increase(virt_admit_tls_handshake_failures_total[1h])) > 0"
                        ),
                        "TLS {{reason}}",
                    ),
                    (
                        "min by (configuration) (virt_admit_certificate_bundle_injected)",
                        "bundle in {{configuration}}",
                    ),
                ),
            ),
            Panel(
                "Clock, and last look at the certificates",
                "s",
                (
                    (
                        "max by (pod) (virt_admit_certificate_clock_offset_seconds)",
                        "offset {{pod}}",
                    ),
                    (
                        (
                            "time() - max by (pod) "
                            "(virt_admit_certificate_last_check_timestamp_seconds)"
                        ),
                        "looked {{pod}}",
                    ),
                ),
            ),
            Panel(
                "Objects held for look-ups",
                "short",
                (("max by (kind) (virt_admit_informer_objects)", "{{kind}}"),),
            ),
            Panel(
                "Kinds out of sight",
                "short",
                (("min by (kind) (virt_admit_informer_synced) == 0", "{{kind}}"),),
                "Not listed yet, or forbidden: rules that need them are blind.",
            ),
            Panel(
                "Shed in an hour: request bodies and connections",
                "short",
                (
                    ("sum(increase(virt_admit_request_bodies_dropped_total[1h]))", "bodies"),
                    ("sum(increase(virt_admit_connections_dropped_total[1h]))", "connections"),
                ),
                "Above the limits of a process. API servers alone never reach them.",
            ),
            Panel(
                "Memory and processor",
                "bytes",
                (
                    (
                        'sum by (pod) (process_resident_memory_bytes{job="virt-admit-webhook"})',
                        "memory {{pod}}",
                    ),
                    (
                        (
                            "sum by (pod) "
                            '(rate(process_cpu_seconds_total{job="virt-admit-webhook"}[5m]))'
                        ),
                        "processors {{pod}}",
                    ),
                ),
            ),
        ),
    ),
)
