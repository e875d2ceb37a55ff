"""What LINSTOR, which runs DRBD, reports of its volumes."""
