"""The driver of a sweep: what `ray job submit` starts. It prepares the data, says how many trials fit, runs them, and
sums up. Started again, it goes on.

Exit codes as those of a run: 0 done or asked to stop, 1 failed, 3 the file or its surroundings cannot be used.
"""

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

from raytrain_eks.checkpoint.run import Fenced, RunFolder
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import load, of_document, read_document
from raytrain_eks.spec.problem import SpecError, counted
from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.train.driver import anywhere, check_client, connect, ended, run_steps, say
from raytrain_eks.train.trainer import Planned
from raytrain_eks.tune.capacity import Room, Trials, concurrency, grown
from raytrain_eks.tune.conductor import Conductor, Ready
from raytrain_eks.tune.folder import Journal, SweepFolder


def main(arguments: list[str] | None = None) -> int:
    """Run a sweep file and return the exit code."""
    parser = argparse.ArgumentParser(prog="sweep.py", description="Run a sweep file on the Ray cluster here.")
    parser.add_argument("sweep", help="the sweep file")
    parser.add_argument("--storage", help="folder or s3:// URL that holds sweeps; overrides the file's")
    parser.add_argument("--resume", action="store_true", help="go on with the sweep even if the file has changed")
    parser.add_argument("--workers", type=Planned.parse, help="as the cluster's plan counts them, such as 32xGPU")
    parser.add_argument("--client", help="the version of raytrain-eks that submitted the sweep")
    given = parser.parse_args(arguments)

    def work() -> int:
        check_client(given.client)
        return Driver(read(given.sweep), given.storage, resume=given.resume, planned=given.workers).drive()

    return ended(work)


def read(path: str) -> Sweep:
    """The sweep of a file, its job in place. Raises SpecError with every problem, also those with the job."""
    from raytrain_eks.spec.check import located
    from raytrain_eks.spec.sweep_job import problems, resolved

    document = read_document(path)
    sweep = of_document(document, expect="Sweep")
    if found := located(problems(sweep, Path.cwd()), document):
        raise SpecError(found)
    return resolved(sweep, Path.cwd())


class Driver:
    """One attempt of a sweep."""

    def __init__(self, sweep: Sweep, storage: str | None, *, resume: bool, planned: Planned | None = None):
        from raytrain_eks.checkpoint.default import default_storage
        from raytrain_eks.checkpoint.storage import Storage

        self.sweep, self.resume, self.planned = sweep, resume, planned
        self.job = anywhere(Job.parse(sweep.job_data()))
        self.storage = Storage.of(storage or sweep.storage or self.job.storage or default_storage())
        self.folder = SweepFolder(self.storage, sweep.name)
        self._ready: dict[str, Ready] = {}
        self._asked: str | None = None

    def drive(self) -> int:
        """Check, prepare, run, sum up; the exit code."""
        from raytrain_eks.train import loggers
        from raytrain_eks.train.model import check_folder

        check_folder(self.job)
        loggers.check(self.job)
        if not self.resume and (problems := self.folder.differences(self.sweep)):
            raise SpecError(problems)
        self.storage.check_writable()
        resources = connect()
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        needs = self._needs(resources)
        number = self.sweep.number or 1
        plan = concurrency(needs, self._room(needs), trials=number, asked=self.sweep.concurrency)
        say(plan.text)
        ready = self.ready(self.job)
        self.folder.open(self.sweep, accept_changes=self.resume)
        say(f"sweep {self.sweep.name}, {counted(number, 'trial')}: {self.folder.url}")
        journal = Journal(self.folder, self.folder.begin())
        conductor = Conductor(
            self.sweep.model_copy(update={"job": self.job}),
            journal,
            steps=ready.steps,
            ready=self.ready,
            say=say,
            workers=needs.workers,
            stop=lambda: self._asked,
        )
        try:
            self._run(conductor, needs, plan.number)
        except Fenced as error:
            say(f"{error}; this one ends")
            return 1
        finally:
            conductor.close()
        return self._sum_up(conductor)

    def _run(self, conductor: Conductor, needs: Trials, most: int) -> None:
        from raytrain_eks.tune.ranks import Needs

        conductor.write()
        if conductor.done:
            return
        from raytrain_eks.tune.history import History
        from raytrain_eks.tune.table import Lines
        from raytrain_eks.tune.tuner import run

        lines = Lines()

        def tell() -> None:
            history = History.read(self.storage, self.sweep.name)
            for line in lines.of(history) if history is not None else []:
                say(line)

        threads = max((os.cpu_count() or 1) // (needs.workers * most), 1)
        run(conductor, Needs(workers=needs.workers, each=dict(needs.each), threads=threads), most, tell)

    def _stop(self) -> None:
        if self._asked is None:
            say("asked to stop: running trials save a last checkpoint")
        self._asked = "it was asked to stop"

    def _needs(self, resources: dict[str, float]) -> Trials:
        """What one trial needs: the workers that the job asks for; one where it does not say."""
        import ray

        from raytrain_eks.train.trainer import worker_resources

        each = worker_resources(self.job, resources, self.planned)
        wanted = self.job.workers.count
        if wanted is None and self.planned is not None:
            # A cluster that was made for the sweep has the nodes of all trials that run at the same time.
            alike = self.sweep.concurrency if self.job.workers.nodes is not None else None
            wanted = self.planned.count // (alike or 1)
        kind = next((name for name in ("GPU", "neuron_cores") if each.get(name)), None)
        if wanted is None and self.job.workers.nodes is not None and kind is not None:
            wanted = self.job.workers.nodes * int(max(node["Resources"].get(kind, 0) for node in ray.nodes()))
        return Trials(workers=wanted or 1, each=each)

    def _room(self, needs: Trials) -> Room:
        """What the cluster has now, and what it may grow to by its file."""
        import ray

        from raytrain_eks.submit.head import MARKER, SPARE_CPUS

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and _fits(needs, node["Resources"])]
        kept, why = (SPARE_CPUS, "everything else") if MARKER in os.environ else (0, "")
        if not self.job.data.prepare:
            kept, why = kept or 1, "packing data"
        made_for = self.planned.count if self.planned is not None else 0
        room = Room(nodes=nodes, kept=kept, kept_for=why, planned=made_for)
        plan = self._cluster_plan()
        return grown(room, plan, self.job.workers.group) if plan is not None else room

    def _cluster_plan(self) -> Any:
        """What the job's cluster file describes; None where it names none, or the file did not travel with the sweep:
        then what is here is what there is."""
        from raytrain_eks.plan.cluster import resolve

        if self.job.cluster is None:
            return None
        try:
            return resolve(load(self.job.cluster, expect="Cluster"))
        except (OSError, SpecError):
            return None

    def ready(self, job: Job) -> Ready:
        """The data of a trial's job, prepared once for all that read the same. Raises SpecError."""
        from raytrain_eks.data.prepare import prepare
        from raytrain_eks.train.model import model_config

        content = {**job.data.identity(), "tokenizer": job.tokenizer and job.tokenizer.identity()}
        content |= {"task": job.task, "model": job.model.name}
        key = json.dumps(content, sort_keys=True, default=str)
        if key not in self._ready:
            prepared = prepare(job, self.storage, say=say)
            self._ready[key] = Ready(prepared=prepared.url, steps=0)
        from raytrain_eks.data.prepared import Prepared

        prepared = Prepared.load(self._ready[key].prepared)
        model_config(job, prepared.tokenizer())
        return Ready(prepared=prepared.url, steps=run_steps(job, prepared))

    def _sum_up(self, conductor: Conductor) -> int:
        from raytrain_eks.tune.ending import close

        if conductor.ending is None and not conductor.done:
            conductor.ending = "it was interrupted"
        whole = conductor.ending is None
        state = "complete" if whole else "failed" if conductor.failed else "stopped"
        conductor.write(state, conductor.ending or "")
        self._name_export(conductor)
        close(self.storage, self.sweep.name, say)
        if conductor.ending is not None:
            say(f"{self.sweep.name} {state}: {conductor.ending}")
        if state == "stopped":
            say(f"to go on: raytrain-eks resume {self.sweep.name}")
        say(f"everything is in {self.folder.url}")
        return 1 if conductor.failed else 0

    def _name_export(self, conductor: Conductor) -> None:
        """Say in `sweep.json` where the best trial's exported model is; one that was stopped early is exported now."""
        best = conductor.record.best(self.sweep.objective.mode)
        if best is None or conductor.ending is not None:
            return
        run = self.folder.trial(best.name)
        if not run.storage.entries("export"):
            _export(run, self.ready(Job.read(run.storage.read("job.yaml").decode(), f"{run.url}/job.yaml")).prepared)
        found = self.folder.summary() or {}
        self.folder.write_summary(found | {"export": f"trials/{best.name}/export"})


def _export(run: RunFolder, prepared: str) -> None:
    """Export the newest checkpoint of a trial that did not come to its end."""
    import tempfile

    from raytrain_eks.checkpoint.manifest import committed
    from raytrain_eks.data.prepared import Prepared
    from raytrain_eks.train.export import export_checkpoint
    from raytrain_eks.train.finish import put_folder

    with tempfile.TemporaryDirectory() as folder:
        words, target = Path(folder) / "tokenizer", Path(folder) / "export"
        Prepared.load(prepared).tokenizer().save_pretrained(words)
        export_checkpoint(run, committed(run)[-1].step, target, tokenizer=str(words), say=say)
        put_folder(run.storage, "export", target)


def _fits(needs: Trials, node: dict[str, float]) -> bool:
    """Whether a node is one for workers: it has every kind of resource that one needs."""
    return all(node.get(name, 0.0) > 0 for name, amount in needs.each.items() if amount)
