"""Why the storage of a VM is not there: which object or which server keeps it away."""
