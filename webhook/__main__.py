"""``python -m webhook``: the same as the command ``virt-admit``."""

from webhook.cli import main

main()
