"""What kubelets are started with, beside what other software expects of them."""
