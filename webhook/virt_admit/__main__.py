"""Run ``python -m virt_admit`` as the command ``virt-admit``."""

from virt_admit.cli.main import main

main()
