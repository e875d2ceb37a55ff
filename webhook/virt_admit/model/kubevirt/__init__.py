"""Facts about KubeVirt: VMs, their instances, migration, placement, storage and configuration."""
