"""What brings VMs of a lost node back that no health check watches."""
