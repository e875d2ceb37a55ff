"""The virt-launcher pod of a VMI: its demands on a node, its requests, its limits."""
