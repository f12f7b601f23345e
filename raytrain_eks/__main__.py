"""`python -m raytrain_eks` is the command line."""

from raytrain_eks.cli.main import main

main()
