"""`raytrain-eks submit --dry-run`: the Kubernetes objects of a submission, none of them made."""

from typing import TYPE_CHECKING

import click

from raytrain_eks.cli.target_options import say

if TYPE_CHECKING:
    from raytrain_eks.submit.assemble import JobFile
    from raytrain_eks.submit.start import Wish
    from raytrain_eks.submit.target import Target


def show(file: "JobFile", target: "Target", wish: "Wish", *, on_server: bool, output: str) -> None:
    """The RayJob as YAML; with `-o yaml` or `-o json` also the ConfigMap with its code. Raises as a submission."""
    from raytrain_eks.manifests import text
    from raytrain_eks.submit.eks import Eks
    from raytrain_eks.submit.start import ready

    if not isinstance(target, Eks):
        raise click.UsageError("--dry-run is for --on eks; `--tiny` runs a small copy of the job anywhere")
    submission = ready(file, target, wish, say)
    if on_server:
        target.prepare(say)
    bodies, code = target.objects(submission, say)
    if on_server:
        target.try_on_server(bodies)
    say(code.said())
    if output == "table":
        bodies = [body for body in bodies if body["kind"] == "RayJob"]
    click.echo(text.json_text(bodies) if output == "json" else text.yaml(bodies), nl=False)
    say("the API takes it; nothing was made" if on_server else "nothing was made")
