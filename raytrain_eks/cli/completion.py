"""`raytrain-eks completion`: click's own completion script of a shell."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(help='Print the shell\'s completion script: eval "$(raytrain-eks completion bash)"')
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    found = get_completion_class(shell)
    assert found is not None, f"click completes {shell}"
    root = context.find_root()
    script = found(root.command, {}, "raytrain-eks", "_RAYTRAIN_EKS_COMPLETE").source()
    click.echo(script)
