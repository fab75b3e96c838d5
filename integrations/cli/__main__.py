"""`python -m integrations.cli` is `journal`."""

from integrations.cli import main

main()
