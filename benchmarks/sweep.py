"""What a sweep costs and what it saves.

    python benchmarks/sweep.py [--part overhead] [--part efficiency] [--seed N ...]

`overhead`: seconds per trial beside the training steps themselves, for the same tiny model and number of steps, two
trials at a time: our sweeps; a bare Ray Tune function trainable with a bare loop in it; and Ray's own pattern, a
TorchTrainer within a Tune function. Overhead is (wall time of all trials x 2 - seconds of all steps) / trials.
`efficiency`: random search of 32 trials, all to their end, and ASHA of 64 over the same space (the first 32 are the
same, by the seed): after which part of random search's steps ASHA had a trial as good as its best. Both are real
sweeps; nothing is simulated. Rungs were chosen by the curves of seed 100, which is not among those measured.

Starts a Ray of its own on loopback. Prints one JSON document on stdout and a Markdown table on stderr.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODEL = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
MODEL |= {"num_attention_heads": 4, "max_position_embeddings": 64, "vocab_size": 512}
STEPS, TRIALS, BATCH, LENGTH = 40, 6, 16, 64
PARTS = ("overhead", "efficiency")
SLOTS = 2
SWEEP = """
kind: Sweep
name: {name}
job:
  name: base
  workers: {{count: 1}}
  model: {{config: {model}}}
  tokenizer: {{train: {{vocab_size: 512}}}}
  data: {{train: {data}, files: "*.py", sequence_length: 64}}
  batch: {{tokens: 1024}}
  optimizer: {{learning_rate: 3.0e-3}}
  precision: fp32
  evaluate: {{sequences: 32}}
  stop: {{steps: {steps}}}
space:
  optimizer.learning_rate: {{kind: loguniform, low: 1.0e-4, high: 1.0e-1}}
  schedule.warmup: {{kind: choice, values: [2%, 6%, 12%]}}
  optimizer.weight_decay: {{kind: uniform, low: 0.0, high: 0.3}}
scheduler: {scheduler}
concurrency: 2
trials: {trials}
seed: {seed}
"""
ASHA = "{kind: asha, rungs: [8, 20], reduction: 4}"
TUNE = '''
"""Trials of a bare loop under Ray Tune; `pattern` puts it into a TorchTrainer, as Ray's guide does."""
import json, os, sys, time
import ray
from ray import tune

KIND, STEPS, TRIALS, BATCH, LENGTH, MODEL, FOLDER = json.loads(sys.argv[1])

def loop(config):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.set_num_threads(1)
    torch.manual_seed(0)
    given = dict(MODEL)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(given.pop("model_type"), **given))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["rate"], fused=True)
    rows = torch.randint(0, 512, (STEPS * BATCH, LENGTH))
    began = time.time()
    for step in range(STEPS):
        batch = rows[step * BATCH : (step + 1) * BATCH]
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
    open(f"{FOLDER}/{time.time()}-{os.getpid()}", "w").write(str(time.time() - began))
    return value

def bare(config):
    tune.report({"loss": loop(config)})

def pattern(config):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    name = tune.get_context().get_trial_id()
    TorchTrainer(loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=1),
                 run_config=RunConfig(name=name, storage_path=f"{FOLDER}-train")).fit()

ray.init(log_to_driver=False, logging_level="ERROR")
os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
each = tune.with_resources(bare, {"CPU": 1}) if KIND == "bare" else tune.with_resources(pattern, {"CPU": 0.001})
began = time.time()
tune.Tuner(each, param_space={"rate": tune.grid_search([0.001 * n for n in range(1, TRIALS + 1)])},
    tune_config=tune.TuneConfig(max_concurrent_trials=2),
    run_config=tune.RunConfig(storage_path=f"{FOLDER}-tune", verbose=0)).fit()
wall = time.time() - began
steps = [float(open(f"{FOLDER}/{name}").read()) for name in os.listdir(FOLDER)]
print("FOUND", json.dumps({"wall": wall, "steps": sum(steps), "trials": len(steps)}))
'''


@contextlib.contextmanager
def ray(folder: Path) -> Iterator[dict[str, str]]:
    """A Ray on this machine in a state folder of its own; the environment of who is to use it."""
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    from raytrain_eks.submit.head import FIXED, MARKER, LocalHead

    local = LocalHead()
    head = local.ensure(lambda text: None)
    try:
        token = {"RAY_AUTH_TOKEN_PATH": str(local.token_file), "RAY_ADDRESS": head.gcs}
        yield dict(os.environ) | FIXED | token | {MARKER: head.id, "RAYTRAIN_STORAGE": str(folder / "runs")}
    finally:
        local.stop()


def swept(folder: Path, env: dict[str, str], name: str, **fields: Any) -> tuple[dict[str, Any], float, float]:
    """Run a sweep: its `sweep.json`, wall seconds from the first start to the last end, seconds of all steps."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    for module in ("ast", "argparse", "calendar", "csv", "datetime", "difflib", "inspect", "pathlib"):
        (data / f"{module}.py").write_bytes((Path(os.__file__).parent / f"{module}.py").read_bytes())
    path = folder / f"{name}.yaml"
    model = {key: value for key, value in MODEL.items() if key != "vocab_size"}
    path.write_text(SWEEP.format(name=name, data=data, model=json.dumps(model), **fields))
    command = [sys.executable, "jobs/sweep.py", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    home = folder / "runs" / name
    lines = [json.loads(line) for line in (home / "trials.jsonl").read_text().splitlines()]
    times = [line["time"] for line in lines if line["event"] in ("started", "ended")]
    steps = [
        json.loads(line)["step_seconds"]
        for path in home.glob("trials/*/metrics.jsonl")
        for line in path.read_text().splitlines()
    ]
    return json.loads((home / "sweep.json").read_text()), max(times) - min(times), sum(steps)


def peer(folder: Path, env: dict[str, str], kind: str, trials: int) -> tuple[float, float, int]:
    """Wall seconds, seconds of all steps, and trials of a peer."""
    marks = folder / f"marks-{kind}-{time.time()}"
    marks.mkdir()
    script = folder / "peer.py"
    script.write_text(TUNE)
    words = json.dumps([kind, STEPS, trials, BATCH, LENGTH, MODEL, str(marks)])
    done = subprocess.run([sys.executable, str(script), words], env=env, capture_output=True, text=True, timeout=600)
    found = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    if not found:
        raise SystemExit(done.stdout + done.stderr)
    body = json.loads(found[0].removeprefix("FOUND "))
    return body["wall"], body["steps"], body["trials"]


def overhead(folder: Path, env: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """A row for each way to run the same trials; ways take turns."""
    taken: dict[str, list[float]] = {"ours": [], "bare Tune function": [], "Tune function with TorchTrainer": []}
    for turn in range(rounds):
        about = {"scheduler": "{kind: none}", "trials": TRIALS, "seed": turn, "steps": STEPS}
        _, wall, steps = swept(folder, env, f"overhead-{turn}", **about)
        taken["ours"].append((wall * SLOTS - steps) / TRIALS)
        for kind, what in (("bare", "bare Tune function"), ("pattern", "Tune function with TorchTrainer")):
            wall, steps, trials = peer(folder, env, kind, TRIALS)
            taken[what].append((wall * SLOTS - steps) / trials)
    bare = statistics.median(taken["bare Tune function"])
    return [
        {
            "what": what,
            "overhead_s_per_trial": round(statistics.median(seconds), 2),
            "beside_bare": round(statistics.median(seconds) / bare, 2),
            "best": round(min(seconds), 2),
            "rounds": rounds,
        }
        for what, seconds in taken.items()
    ]


def efficiency(folder: Path, env: dict[str, str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each seed: the best of random search and its steps; ASHA's, and its steps until it was as good."""
    found = []
    for seed in seeds:
        about = {"seed": seed, "steps": 64}
        whole, _, _ = swept(folder, env, f"random-{seed}", scheduler="{kind: none}", trials=32, **about)
        halved, _, _ = swept(folder, env, f"asha-{seed}", scheduler=ASHA, trials=64, **about)
        random, all_steps = _best(whole), whole["trained_steps"]
        until = steps_until(folder / "runs" / f"asha-{seed}" / "trials.jsonl", random)
        row = {"seed": seed, "random_best": round(random, 4), "asha_best": round(_best(halved), 4)}
        row |= {"random_steps": all_steps, "asha_steps_until_as_good": until, "asha_steps": halved["trained_steps"]}
        found.append(row | {"part_of_steps": round(until / all_steps, 3) if until is not None else None})
    return found


def steps_until(journal: Path, value: float) -> int | None:
    """Steps that all trials of a sweep had trained when the first had an objective as low as this; None: none had."""
    trained: dict[str, int] = {}
    for line in map(json.loads, journal.read_text().splitlines()):
        if "trained" in line:
            trained[line["trial"]] = line["trained"]
        if (line.get("value") or value + 1) <= value:
            return sum(trained.values())
    return None


def _best(body: dict[str, Any]) -> float:
    return float(next(trial["value"] for trial in body["trials"] if trial["trial"] == body["best"]))


def measured(parts: Sequence[str] = PARTS, rounds: int = 2, seeds: Sequence[int] = (0, 1, 2)) -> dict[str, Any]:
    """The rows of each part."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-sweep-") as name, ray(Path(name)) as env:
        if "overhead" in parts:
            found["overhead"] = overhead(Path(name), env, rounds)
        if "efficiency" in parts:
            found["efficiency"] = efficiency(Path(name), env, seeds)
    return found


def rows() -> list[dict[str, Any]]:
    """For the table of `make bench`."""
    found = measured()
    efficient = [
        row | {"what": f"ASHA, seed {row['seed']}", "target": "part_of_steps <= 0.35"} for row in found["efficiency"]
    ]
    return found["overhead"] + efficient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, action="append")
    given = parser.parse_args()
    parts = given.part or PARTS
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
    found = {"machine": machine} | measured(parts, given.rounds, given.seed or (0, 1, 2))
    print(json.dumps(found, indent=2))
    for part in parts:
        rows = found[part]
        print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}", file=sys.stderr)
        for row in rows:
            print(f"| {' | '.join(map(str, row.values()))} |", file=sys.stderr)


if __name__ == "__main__":
    main()
