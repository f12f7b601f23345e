"""`raytrain-eks render FILE`: every Kubernetes object of a cluster file, in the order of applying.

To stdout, or as files: `--split DIR` writes one for each object, `--gitops DIR` a repository for Argo CD. The bundle is
linted first, as a whole; what cannot run is not rendered (exit 3). `--values` writes what the JupyterHub chart reads.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from raytrain_eks.cli import bundles

if TYPE_CHECKING:
    from raytrain_eks.manifests.bundle import Bundle
    from raytrain_eks.plan.cluster import ClusterPlan

SYSTEMS = ("ground", "karpenter", "nodegroups", "plugins", "storage", "queues", "jupyterhub", "kuberay", "mpi", "slurm")
"""What `--only` takes beside kinds, in the order of applying: manifests.bundle's, which help is too quick to import."""
LIST = ".raytrain-eks-files"
"""Names of the files that the last render wrote into a folder, so that the next one can take away what is gone."""


@click.command(help="Write every Kubernetes object of a cluster file, in the order of applying.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--only",
    multiple=True,
    metavar="KIND|SYSTEM",
    help=f"Only this kind, such as RayCluster, or this system: {', '.join(SYSTEMS)}. Can be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="yaml: documents for kubectl apply; json: one List.",
)
@click.option("--split", type=click.Path(file_okay=False), metavar="DIR", help="Into DIR, one file for each object.")
@click.option("--gitops", type=click.Path(file_okay=False), metavar="DIR", help="Into DIR, a repository for Argo CD.")
@click.option("--values", is_flag=True, help="Instead of objects: values for JupyterHub's chart.")
def command(file: str, only: tuple[str, ...], output: str, split: str | None, gitops: str | None, values: bool) -> None:
    if split == "" or gitops == "":
        raise click.UsageError(f"--{'split' if split == '' else 'gitops'} needs a DIR, and the one given is empty")
    if split and gitops:
        raise click.UsageError("give --split or --gitops, not both")
    if values and (only or split or gitops):
        raise click.UsageError("--values writes one text to stdout; leave --only, --split and --gitops out")
    if gitops and (only or output == "json"):
        raise click.UsageError("--gitops writes the whole bundle as YAML; leave --only and -o out")
    plan, bundle = bundles.read(file)
    warnings = bundles.refuse_what_cannot_run(plan, bundle)
    chosen = _chosen(bundle, only)
    if values:
        click.echo(_values(plan, output), nl=False)
    elif gitops:
        _say(_write(Path(gitops), *_gitops_files(plan, bundle)), gitops)
    elif split:
        _say(_write(Path(split), _split_files(chosen, output)), split)
    else:
        click.echo(_text(chosen, output), nl=False)
    notes = _notes_of_values(plan) if values else bundle.notes
    for line in [*warnings, *(f"note: {note}" for note in notes)]:
        click.echo(line, err=True)
    if gitops:
        click.echo(_delivery(plan, gitops), err=True)


def _chosen(bundle: "Bundle", only: tuple[str, ...]) -> "Bundle":
    known = bundle.words()
    folded = {word.lower() for word in known}
    for word in only:
        if word.lower() not in folded:
            raise click.UsageError(_unknown(word, known))
    return bundle.only(only) if only else bundle


def _unknown(word: str, known: list[str]) -> str:
    from raytrain_eks.spec.problem import nearest

    systems = [each for each in known if each in SYSTEMS]
    kinds = [each for each in known if each not in SYSTEMS]
    there = f"  systems: {', '.join(systems)}\n  kinds: {', '.join(kinds)}"
    if word.lower() in SYSTEMS:
        return f"--only {word}: the file asks for nothing of it; its bundle has\n{there}"
    guess = nearest(word, known)
    hint = f"did you mean `{guess}`? " if guess else ""
    return f"--only {word}: nothing of this bundle is called so; {hint}it has\n{there}"


def _text(bundle: "Bundle", output: str) -> str:
    from raytrain_eks.manifests import text

    return text.yaml(bundle.bodies) if output == "yaml" else text.json_text(bundle.bodies)


def _values(plan: "ClusterPlan", output: str) -> str:
    """What `helm --values` reads."""
    import json

    from raytrain_eks.manifests import jupyterhub_values, text
    from raytrain_eks.spec.problem import Problem, SpecError

    if plan.cluster.jupyterhub is None:
        fix = "for example `jupyterhub: {image: registry/notebook:tag}`"
        why = "is needed: the file has no hub to write values for"
        raise SpecError([Problem(path="jupyterhub", rule=why, fix=fix, file=_file(plan))])
    found = jupyterhub_values.values(plan)
    return text.yaml([found]) if output == "yaml" else json.dumps(found, indent=2) + "\n"


def _notes_of_values(plan: "ClusterPlan") -> tuple[str, ...]:
    """The hub's own: the others are about objects, which are not written."""
    from raytrain_eks.manifests import jupyterhub

    return tuple(jupyterhub.notes(plan))


def _split_files(bundle: "Bundle", output: str) -> dict[str, str]:
    from raytrain_eks.manifests.bundle import Bundle

    width = max(2, len(str(len(bundle.objects))))
    return {
        f"{number:0{width}d}-{each.kind.lower()}-{each.name}.{output}": _text(Bundle((each,)), output)
        for number, each in enumerate(bundle.objects, start=1)
    }


def _file(plan: "ClusterPlan") -> str | None:
    return plan.document.file if plan.document is not None else None


def _gitops_files(plan: "ClusterPlan", bundle: "Bundle") -> tuple[dict[str, str], str]:
    """The repository's files, and the cluster's own folder in it."""
    from raytrain_eks.manifests import argo
    from raytrain_eks.spec.problem import Problem, SpecError

    if plan.cluster.gitops is None:
        fix = "for example `gitops: {repository: https://github.com/me/clusters}`"
        why = "is needed to know the repository that Argo CD follows"
        raise SpecError([Problem(path="gitops", rule=why, fix=fix, file=_file(plan))])
    return argo.files(plan, bundle, plan.cluster.gitops), argo.folder(plan, plan.cluster.gitops)


def _delivery(plan: "ClusterPlan", folder: str) -> str:
    """What makes Argo CD follow the files."""
    from raytrain_eks.manifests import argo

    gitops = plan.cluster.gitops
    assert gitops is not None, "there are files only with it"
    place = Path(folder, f"{argo.folder(plan, gitops)}.application.yaml")
    return (
        f"next: bring {folder} to the branch {gitops.revision} of {gitops.repository}; "
        f"then, once: kubectl apply --server-side -f {place}"
    )


def _write(folder: Path, files: dict[str, str], own: str = ".") -> list[Path]:
    """Write files below `folder`. Returns what was written.

    `own` is the folder below it that belongs to this bundle alone: files of the last render that lie there and are no
    longer part of it are deleted, nobody else's.
    """
    record = folder / own / LIST
    before = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    mine = sorted(str(Path(name).relative_to(own)) for name in files if Path(name).is_relative_to(own))
    gone = [name for name in before if name not in mine and Path(name).name == name]
    # Both generations, until the old one is gone: whenever this is killed, the next render still knows every file.
    _put(record, "".join(f"{name}\n" for name in sorted({*mine, *gone})))
    for name, content in files.items():
        _put(folder / name, content)
    for name in gone:
        (folder / own / name).unlink(missing_ok=True)
    _put(record, "".join(f"{name}\n" for name in mine))
    return [folder / name for name in files]


def _put(path: Path, content: str) -> None:
    """The file with this content, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.tmp"[-255:])
    try:
        made.write_text(content, encoding="utf-8", newline="\n")
        os.replace(made, path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def _say(written: list[Path], folder: str) -> None:
    for path in written:
        click.echo(path)
    click.echo(f"{len(written)} files in {folder}", err=True)
