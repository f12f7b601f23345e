"""The command line's door: a table of verbs, each imported only when it is called.

Exit codes: 0 done, 1 the job failed, 2 wrong usage, 3 findings in a file, 4 cluster unreachable or not allowed,
5 time-out, 130 interrupted. Machine output goes to stdout, talk to stderr.
"""

import sys
from importlib import import_module
from typing import Any

import click

VERBS: dict[str, str] = {
    "init": "Write a first cluster, job or sweep file that validates.",
    "validate": "Check files; every problem with its line, its rule and its fix.",
    "plan": "What a job or cluster file comes to: split, memory, time; and why.",
    "render": "Write every Kubernetes object of a cluster file, in the order of applying.",
    "lint": "Find what cannot work in any Kubernetes manifests.",
    "diff": "Compare two cluster files or bundles, or one with what a cluster has, by meaning.",
    "apply": "Bring a cluster file, or rendered objects, into a Kubernetes cluster.",
    "delete": "Take a cluster file's objects out of a Kubernetes cluster; storage stays unless told.",
    "prepare": "Tokenise and pack the data of a job file, once for all runs that read it.",
    "submit": "Run a job file on this machine, a Ray cluster or Kubernetes.",
    "sweep": "Run a sweep file: many trials of one job; list sweeps, show results and reports.",
    "status": "Where a run is, on one screen.",
    "logs": "The log of a run.",
    "cancel": "Stop a run; its checkpoints stay.",
    "resume": "Go on with a run from its last complete checkpoint.",
    "ls": "The runs of a storage folder.",
    "checkpoints": "What a run has saved: list, verify, prune, mirror, export, remove.",
    "local": "The Ray of this machine: status, start, stop, env.",
    "doctor": "What is missing or wrong on this machine, a worker, or a cluster, each with its fix.",
    "catalog": "Facts about EC2 instance types, with source and date.",
    "explain": "Say what a field, a rendered object, a lint rule or a reason code is about.",
    "completion": "Print the shell's completion script.",
    "version": "Print the version.",
}
"""Verb -> its one-line help. The verb `x` lives in `raytrain_eks.cli.x` as `command`; a reserved word gets a `_`."""

SECTIONS: dict[str, tuple[str, ...]] = {
    "Files": ("init", "validate", "plan", "explain", "catalog"),
    "A cluster": ("render", "lint", "diff", "apply", "delete"),
    "Runs": ("submit", "sweep", "status", "logs", "cancel", "resume", "ls", "checkpoints", "prepare"),
    "Around them": ("doctor", "local", "completion", "version"),
}
"""How `--help` shows the verbs: heading -> verbs, in the order in which a person meets them."""
NEXT = """\b
A first run, on this machine:    raytrain-eks init job
                                 raytrain-eks submit first-run.yaml --on local --follow
A first cluster:                 raytrain-eks init cluster
                                 raytrain-eks render first.yaml
More about a verb, and a field:  raytrain-eks VERB --help, raytrain-eks explain cluster
"""


class Verbs(click.Group):
    """A group that knows its verbs by name and imports one only to run it, so that `--help` stays fast."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command = import_module(f"raytrain_eks.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        if args and args[0] not in VERBS:
            from raytrain_eks.spec.problem import nearest

            guess = nearest(args[0], VERBS)
            context.fail(f"no verb `{args[0]}`" + (f"; did you mean `{guess}`?" if guess else ""))
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, verbs in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb, VERBS[verb]) for verb in verbs])


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="VERB ...",
    options_metavar="",
    help="From one short YAML file to a trained model on Amazon EKS, on Ray.",
    epilog=NEXT,
)
def cli() -> None:
    """The group itself does nothing; the verbs do."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code; a person's mistake never shows a traceback."""
    from raytrain_eks.cli.outcome import Outcome

    code = 0
    if sys.stdout is None:
        # The shell's `>&-`. What is printed would be lost, and the exit code say that all is well.
        print("standard output is closed\n  to drop what is written, say >/dev/null", file=sys.stderr)
        sys.exit(Outcome.FAILED)
    try:
        code = cli.main(arguments, prog_name="raytrain-eks", standalone_mode=False) or 0
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        code = 130
    except KeyboardInterrupt:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except Exception as error:
        code = Outcome.of(error)
    sys.exit(code)
