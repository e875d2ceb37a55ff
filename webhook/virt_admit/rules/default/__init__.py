"""Default settings that HyperConverged and KubeVirt apply to every virtual machine."""
