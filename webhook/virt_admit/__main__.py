"""``python -m virt_admit``: the same as the command ``virt-admit``."""

from virt_admit.cli.main import main

main()
