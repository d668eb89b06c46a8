"""`python -m ackbox`."""

from ackbox.cli import main

main()
