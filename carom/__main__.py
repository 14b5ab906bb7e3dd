"""`python -m carom` is the command line."""

from carom.cli import main

main()
