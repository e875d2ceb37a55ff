"""Why the last migrations of a VM failed, and what repairs it, by the words of KubeVirt."""
