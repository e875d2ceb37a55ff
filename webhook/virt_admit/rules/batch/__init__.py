"""HyperConverged and KubeVirt: batches of workload updates."""
