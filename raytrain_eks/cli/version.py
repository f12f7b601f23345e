"""`raytrain-eks version`."""

import click

from raytrain_eks import __version__


@click.command(help="Print the version.")
def command() -> None:
    click.echo(__version__)
