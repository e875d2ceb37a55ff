"""VMs and VMIs: how KubeVirt completes and migrates them, their volumes, networks, processors."""
