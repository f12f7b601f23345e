"""Dry runs: the job in small, and the job files of large models, which validate, render and train here in small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import load
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train.tiny import LENGTH, SEQUENCES, STEPS, Here, dry_run_name, family_of, shrunk_job

LARGE = {
    "llama3-8b-sft-a100": ("gpu-a100", "llama", "deepspeed"),
    "llama3-70b-lora-trn1": ("trn1", "llama", "torch"),
    "bert-large-trn1": ("trn1", "bert", "torch"),
    "llama3-70b-p5": ("gpu-h100", "llama", "torch"),
}
"""Job file -> its cluster file, the family of its model, the engine of its dry run on a CPU."""


@pytest.fixture(params=LARGE)
def large(request, root, monkeypatch) -> tuple[str, Job]:
    """A job file of a large model, read as from the top of the checkout."""
    monkeypatch.chdir(root)
    return request.param, load(f"jobs/{request.param}.yaml", expect="Job")


def test_it_validates_with_all_that_it_names(large):
    from raytrain_eks.spec import nearby

    name, job = large
    assert list(nearby.problems(job, Path.cwd())) == []
    assert job.cluster == f"cluster_specs/{LARGE[name][0]}.yaml"


def test_it_renders_as_a_ray_job(large):
    from raytrain_eks.manifests.kuberay_job import Work, ray_job
    from raytrain_eks.plan.cluster import resolve

    name, job = large
    plan = resolve(load(job.cluster, expect="Cluster"))
    command = f"python jobs/train.py jobs/{name}.yaml"
    made = ray_job(plan, Work(name=job.name, command=command, nodes={job.workers.group: job.workers.nodes})).body
    assert made["spec"]["entrypoint"] == command
    (group,) = made["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["groupName"], group["replicas"]) == (job.workers.group, job.workers.nodes)
    # What the job names on disk is below a mount of its cluster.
    mounts = {mount["mountPath"] for mount in group["template"]["spec"]["containers"][0]["volumeMounts"]}
    for path in (job.model.name, job.data.train, job.storage):
        assert any(path.startswith(f"{mount}/") for mount in mounts), path


def test_the_batch_fits_the_workers(large):
    """No rank is left with empty rows: the global batch is whole micro-batches on every group of workers."""
    from raytrain_eks.catalog import instance
    from raytrain_eks.plan.batch import split

    _, job = large
    (group,) = [each for each in load(job.cluster, expect="Cluster").workers if each.name == job.workers.group]
    found = instance(group.instance) if group.instance else None
    each = 8 if found is None else (found.neuron_cores or found.accelerators)
    data = each * job.workers.nodes // getattr(job.engine, "tensor", 1)
    shape = split(
        global_sequences=job.global_sequences,
        world=data,
        sequence_length=job.data.sequence_length,
        micro=job.batch.micro,
    )
    assert shape.rows * data == job.global_sequences


def test_what_is_kept_and_what_becomes_small(large):
    name, job = large
    config = {"model_type": LARGE[name][1], "hidden_size": 64}
    small, said = shrunk_job(job, config, data="/x/train.jsonl", column=job.data.column, here=Here(cpus=4))
    assert small.name == f"{job.name}-tiny"
    assert small.engine.kind == LARGE[name][2]
    assert bool(said) == (name != "llama3-8b-sft-a100")
    assert (small.task, small.precision, small.optimizer) == (job.task, job.precision, job.optimizer)
    assert (small.masking, small.seed, small.data.column) == (job.masking, job.seed, job.data.column)
    assert (small.stop.steps, small.global_sequences, small.data.sequence_length) == (STEPS, SEQUENCES, LENGTH)
    assert small.cluster is None
    assert small.storage is None
    assert small.identity() == Job.parse(small.written()).identity()


@pytest.mark.parametrize(
    ("engine", "here", "kept", "workers", "said"),
    [
        ({"kind": "torch", "fsdp": True}, Here(cpus=2), {"fsdp": True}, 2, []),
        ({"kind": "torch", "fsdp": True, "tensor": 8}, Here(cpus=4), {"fsdp": True, "tensor": 2}, 4, ["8 -> 2"]),
        ({"kind": "torch", "fsdp": True, "tensor": 8}, Here(cpus=2), {"fsdp": True, "tensor": 1}, 2, ["8 -> 1: 2 wo"]),
        ({"kind": "torch", "tensor": 4}, Here(cpus=2), {"tensor": 2}, 2, ["4 -> 2"]),
        ({"kind": "torch", "compile": True}, Here(cpus=1), {"compile": False}, 1, ["engine.compile"]),
        ({"kind": "torch", "attention": "flash_attention_2"}, Here(cpus=2), {"attention": "auto"}, 2, ["runs on GPUs"]),
        ({"kind": "torch", "attention": "flash_attention_2"}, Here(cpus=2, accelerators=8), {}, 2, []),
        ({"kind": "deepspeed", "zero": 3}, Here(cpus=8), {"zero": 3}, 2, []),
        ({"kind": "xla"}, Here(cpus=8, xla=True), {"kind": "xla"}, 2, []),
        ({"kind": "xla"}, Here(cpus=8), {"kind": "torch"}, 2, ["xla -> torch: torch_xla is not installed"]),
        ({"kind": "auto"}, Here(cpus=8), {"kind": "auto"}, 2, []),
    ],
)
def test_an_engine_stays_where_it_can_run(root, engine, here, kept, workers, said):
    job = load(root / "jobs" / "quickstart.yaml").written() | {"engine": engine}
    small, told = shrunk_job(Job.parse(job), {"model_type": "llama"}, data="/x", column="text", here=here)
    for field, value in kept.items():
        assert getattr(small.engine, field) == value
    assert small.workers.count == workers
    assert len(told) == len(said)
    for sentence, part in zip(told, said, strict=True):
        assert part in sentence


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama"),
        ("/shared/models/llama3-70b-instruct", "llama"),
        ("google-bert/bert-large-uncased", "bert"),
        ("FacebookAI/roberta-base", "roberta"),
        ("distilbert/distilbert-base-cased", "distilbert"),
        ("openai-community/gpt2-xl", "gpt2"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("Qwen/Qwen3-30B-A3B", "qwen3_moe"),
        ("Qwen/Qwen2.5-7B", "qwen2"),
        ("mistralai/Mistral-7B-v0.3", "mistral"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral"),
        ("somebody/mystery-7b", None),
    ],
)
def test_what_a_name_tells_of_a_family(name, family):
    assert (family_of(name) or {}).get("model_type") == family


def test_a_small_config_is_of_the_family_and_keeps_what_is_no_size(tmp_path):
    from transformers import AutoConfig

    from raytrain_eks.train.dry_run import small_config

    large = AutoConfig.for_model("qwen3", tie_word_embeddings=True, rms_norm_eps=1e-5, num_key_value_heads=8)
    large.save_pretrained(tmp_path)
    base = {
        "name": "x",
        "model": {"name": str(tmp_path)},
        "data": {"train": "x", "sequence_length": 8192},
        "batch": {"sequences": 1},
        "optimizer": {"learning_rate": 1.0},
        "stop": {"steps": 1},
    }
    small = small_config(Job.parse(base))
    assert small["model_type"] == "qwen3"
    assert (small["hidden_size"], small["num_hidden_layers"], small["num_key_value_heads"]) == (64, 2, 2)
    assert (small["rms_norm_eps"], small["tie_word_embeddings"]) == (1e-5, True)
    assert "vocab_size" not in small
    made = AutoConfig.for_model(**small)
    assert len(made.layer_types) == 2
    with pytest.raises(SpecError, match="the name tells no family"):
        small_config(Job.parse(base | {"model": {"name": str(tmp_path / "mystery")}}))


@pytest.mark.parametrize(("name", "short"), [("a", "a-tiny"), ("a" * 47, "a" * 42 + "-tiny"), ("ab-" * 15, None)])
def test_names(name, short):
    found = dry_run_name(name.rstrip("-"))
    assert len(found) <= 47
    assert found.endswith("-tiny")
    assert "--" not in found
    assert short is None or found == short


def rows_job(folder: Path, **data) -> Job:
    return Job.parse(
        {
            "name": "x",
            "task": data.pop("task", "pretrain"),
            "model": {"config": {"model_type": "llama"}},
            "tokenizer": {"train": {"vocab_size": 300}},
            "data": {"train": str(folder), "sequence_length": 64} | data,
            "batch": {"sequences": 1},
            "optimizer": {"learning_rate": 1.0},
            "stop": {"steps": 1},
        }
    )


def test_a_few_rows_of_ones_own_data_in_its_own_schema(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from raytrain_eks.data.sample import sample

    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text("".join(f'{{"body": "{number} {i}"}}\n' for i in range(1000)))
    rows = sample(rows_job(tmp_path, format="jsonl", column="body"), rows=30)
    assert len(rows) == 30
    assert {row["body"][0] for row in rows} == {"0", "1", "2"}
    chat = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]] * 5
    pq.write_table(pa.table({"chat": chat}), tmp_path / "c.parquet")
    fields = {"format": "parquet", "files": "*.parquet", "task": "sft"}
    assert sample(rows_job(tmp_path, column="chat", **fields), rows=3) == [{"messages": chat[0]}] * 3
    with pytest.raises(SpecError, match=r"chat \(a list\)"):
        sample(rows_job(tmp_path, column="text", **fields), rows=3)
    (tmp_path / "long.txt").write_text("line\n" * 10**5)
    text = sample(rows_job(tmp_path, files="*.txt"), rows=4)
    assert [len(row["text"]) for row in text] == [4000] * 4
    with pytest.raises(SpecError, match="no row of it can be used"):
        sample(rows_job(tmp_path, format="jsonl", column="other"), rows=3)


def test_a_run_that_is_no_dry_run_is_never_replaced(tmp_path, monkeypatch):
    from raytrain_eks.train.dry_run import dry_run

    job = rows_job(tmp_path / "nowhere")
    (tmp_path / "runs" / "x-tiny").mkdir(parents=True)
    (tmp_path / "runs" / "x-tiny" / "run.json").write_text("{}")
    said: list[str] = []
    with pytest.raises(SpecError, match="there is a run of that name that is none"):
        dry_run(job, str(tmp_path / "runs"), cluster={"CPU": 2.0}, say=said.append)
    assert (tmp_path / "runs" / "x-tiny" / "run.json").exists()
    small, storage = dry_run(job, str(tmp_path / "other"), cluster={"CPU": 2.0}, say=said.append)
    assert storage == str(tmp_path / "other")
    assert "made-up data" in said[0]
    assert Path(small.data.train).read_text().startswith('{"text": ')
    (tmp_path / "other" / "x-tiny").mkdir()
    (tmp_path / "other" / "x-tiny" / "run.json").write_text("{}")
    again, _ = dry_run(job, str(tmp_path / "other"), cluster={"CPU": 2.0}, say=said.append)
    assert again.identity() == small.identity()
    assert not (tmp_path / "other" / "x-tiny").exists()


def test_a_submission_carries_the_flag(tmp_path, root):
    from raytrain_eks.submit import assemble
    from raytrain_eks.submit.local import Local

    target = Local()
    file = assemble.JobFile.read(root / "jobs" / "llama3-70b-p5.yaml").dry_run(target)
    place = assemble.storage_for(file.job, target, given=str(tmp_path), folder=root)
    assemble.check(file, target, place, folder=root, resume=False)
    sent = assemble.assemble(file, target, place, folder=root, working_dir=root / "jobs", resume=False, limit=10**8)
    assert sent.run == "llama3-70b-tiny"
    assert sent.options == (f"--storage={tmp_path}", "--tiny")


CHAT = [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "It is said."}]


@pytest.mark.parametrize(
    ("column", "row"),
    [
        ("messages", {"messages": CHAT}),
        ("chat", {"chat": CHAT}),
        ("text", {"prompt": "Say it. ", "completion": "It is said."}),
        ("messages", None),
        ("text", None),
    ],
)
def test_chats_of_every_schema_are_prepared_in_small(tmp_path, column, row):
    """None: the data is out of reach."""
    from raytrain_eks.data.prepare import prepare
    from raytrain_eks.train.dry_run import dry_run

    if row is not None:
        (tmp_path / "data.jsonl").write_text((json.dumps(row) + "\n") * 50)
    job = rows_job(tmp_path / "data.jsonl", task="sft", format="jsonl", column=column)
    small, storage = dry_run(job, str(tmp_path / "runs"), cluster={"CPU": 2.0}, say=lambda text: None)
    prepared = prepare(small, storage)
    counts = prepared.train.counts
    assert counts.bad == counts.masked == counts.empty == 0
    assert counts.documents >= 40
    assert counts.targets > 100
    words, rows = prepared.tokenizer(), prepared.read(0)
    learnt = words.decode(rows.tokens[0][rows.answers[0]])
    assert ("It is said." in learnt) == (row is not None)
    assert "Say" not in learnt
    assert "What" not in learnt


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_it_trains_here_in_small(name, ray_head, root, tmp_path):
    command = [sys.executable, "jobs/train.py", f"jobs/{name}.yaml", "--tiny", "--storage", str(tmp_path)]
    done = subprocess.run(command, cwd=root, env=ray_head.env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "made-up data, since the job's own cannot be read here" in done.stdout
    job = load(root / "jobs" / f"{name}.yaml")
    run = tmp_path / f"{job.name}-tiny"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("complete", STEPS)
    losses = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == STEPS
    assert all(isinstance(loss, float) and 1 < loss < 10 for loss in losses)
    opened(run / "export", job)


def opened(export: Path, job: Job) -> None:
    """The export is what transformers and peft open, and adapters are not empty."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    kind = AutoModelForMaskedLM if job.task == "mlm" else AutoModelForCausalLM
    model = kind.from_pretrained(export)
    words = AutoTokenizer.from_pretrained(export)
    assert model(input_ids=words("What is 1?", return_tensors="pt").input_ids).logits.isfinite().all()
    if job.lora is not None:
        from peft import PeftModel

        base = Path(json.loads((export / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"])
        adapted = PeftModel.from_pretrained(kind.from_pretrained(base), export / "adapter")
        assert all(float(weight.abs().sum()) > 0 for name, weight in adapted.named_parameters() if "lora_B" in name)
