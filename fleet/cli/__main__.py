"""`python -m fleet.cli`: how a supervisor starts its children, whatever is on PATH."""

from fleet.cli.main import main

main()
