"""`render` and `diff` as a person calls them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from raytrain_eks.cli.diff import command as diff
from raytrain_eks.cli.main import main
from raytrain_eks.cli.render import LIST, SYSTEMS
from raytrain_eks.cli.render import command as render
from raytrain_eks.manifests.bundle import WAVES
from raytrain_eks.spec.source import read_documents

ROOT = Path(__file__).resolve().parents[2]
A100 = ROOT / "cluster_specs" / "gpu-a100.yaml"
KIND = ROOT / "cluster_specs" / "cpu-kind.yaml"


def call(verb, *arguments):
    return CliRunner().invoke(verb, [str(argument) for argument in arguments], catch_exceptions=False)


def code_of(capsys, *arguments):
    """Exit code and stderr of the whole command line."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return stop.value.code, capsys.readouterr().err


def kinds(text):
    return [document.data["kind"] for document in read_documents(text, "out")]


def test_the_whole_bundle_goes_to_stdout_and_the_talk_to_stderr():
    result = call(render, A100)
    assert result.exit_code == 0
    found = kinds(result.stdout)
    assert (found[0], found[-1]) == ("Namespace", "RayCluster")
    assert "note: " in result.stderr
    assert "note: " not in result.stdout


def test_json_is_a_list_that_kubectl_takes():
    found = json.loads(call(render, KIND, "-o", "json").stdout)
    assert (found["kind"], found["items"][0]["kind"]) == ("List", "Namespace")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["karpenter"], {"EC2NodeClass", "NodePool"}),
        (["raycluster"], {"RayCluster"}),
        (["Queue", "ServiceAccount"], {"Queue", "ServiceAccount"}),
    ],
)
def test_only_takes_kinds_and_systems(words, expected):
    options = [part for word in words for part in ("--only", word)]
    assert set(kinds(call(render, A100, *options).stdout)) == expected


def test_an_unknown_word_of_only_names_the_nearest(capsys):
    code, said = code_of(capsys, "render", A100, "--only", "karpentr")
    assert code == 2
    assert "did you mean `karpenter`?" in said


@pytest.mark.parametrize("word", ["karpentr", "nothing-like-it", "queues"])
def test_a_word_of_only_that_is_not_there_lists_what_is(capsys, word):
    """`queues` is a system, which this file asks nothing of."""
    code, said = code_of(capsys, "render", ROOT / "cluster_specs" / "g6e-small.yaml", "--only", word)
    assert code == 2
    assert "systems: ground, karpenter, plugins, storage, kuberay\n" in said
    assert "kinds: Namespace, " in said
    assert ("asks for nothing of it" in said) == (word == "queues")


def test_help_names_every_system():
    assert set(SYSTEMS) == set(WAVES)
    assert ", ".join(SYSTEMS) in " ".join(call(render, "--help").stdout.split())


def test_what_cannot_run_is_not_rendered(tmp_path, capsys):
    file = tmp_path / "cluster.yaml"
    file.write_text(
        A100.read_text().replace("nodes: {min: 0, max: 16}", "nodes: {min: 0, max: 16}\n    memory: 1100Gi")
    )
    code, said = code_of(capsys, "render", file)
    assert code == 3
    assert "1055Gi" in said
    assert f"{file}:" in said


def test_a_pod_that_lint_refuses_is_not_rendered(tmp_path, capsys):
    file = tmp_path / "cluster.yaml"
    overlay = "    pod: {spec: {nodeSelector: {example.com/rack: seven}}}\n"
    file.write_text(A100.read_text().replace("    efa: required\n", f"    efa: required\n{overlay}"))
    code, said = code_of(capsys, "render", file)
    assert code == 3
    assert "example.com/rack" in said


def test_split_writes_one_file_for_each_object_and_takes_away_what_is_gone(tmp_path):
    assert call(render, A100, "--split", tmp_path).exit_code == 0
    first = {path.name for path in tmp_path.glob("*.yaml")}
    (tmp_path / "mine.yaml").write_text("kind: ConfigMap\n")
    whole = "---\n".join((tmp_path / name).read_text() for name in sorted(first))
    assert whole == call(render, A100).stdout
    assert call(render, KIND, "--split", tmp_path).exit_code == 0
    second = {path.name for path in tmp_path.glob("*.yaml")}
    assert "mine.yaml" in second
    assert {name for name in second if "a100" in name} == set()
    assert second - {"mine.yaml"} == set((tmp_path / LIST).read_text().splitlines())


def test_gitops_writes_a_repository_that_holds_several_clusters(tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(A100.read_text().replace("name: gpu-a100", "name: other"))
    repository = tmp_path / "repository"
    assert call(render, A100, "--gitops", repository).exit_code == 0
    assert call(render, other, "--gitops", repository).exit_code == 0
    folders = {"clusters/gpu-a100", "clusters/other"}
    assert {str(path.parent.relative_to(repository)) for path in repository.rglob("kustomization.yaml")} == folders
    folder = repository / "clusters" / "gpu-a100"
    [kustomization] = read_documents((folder / "kustomization.yaml").read_text(), "k")
    assert [path.name for path in sorted(folder.glob("[0-9]*.yaml"))] == kustomization.data["resources"]
    waves = []
    for name in kustomization.data["resources"]:
        for document in read_documents((folder / name).read_text(), name):
            annotations = document.data["metadata"]["annotations"]
            waves.append(int(annotations["argocd.argoproj.io/sync-wave"]))
            if document.data["kind"] == "PersistentVolumeClaim":
                assert annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
    assert waves == sorted(waves)
    [application] = read_documents((repository / "clusters" / "gpu-a100.application.yaml").read_text(), "a")
    assert application.data["spec"]["source"]["path"] == "clusters/gpu-a100"


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not here")
def test_kustomize_builds_the_repository_to_the_same_objects(tmp_path):
    assert call(render, A100, "--gitops", tmp_path).exit_code == 0
    folder = tmp_path / "clusters" / "gpu-a100"
    run = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, check=False, text=True)
    assert run.returncode == 0, run.stderr
    delivered = tmp_path / "delivered.yaml"
    delivered.write_text(run.stdout)
    changes = json.loads(call(diff, A100, delivered, "-o", "json").stdout)
    assert {change["path"].rpartition("/")[2] for change in changes} <= {
        "sync-wave",
        "sync-options",
        "metadata.annotations",
    }


def test_a_value_that_init_marked_is_told_until_the_mark_goes(tmp_path):
    file = tmp_path / "cluster.yaml"
    text = (ROOT / "cluster_specs" / "g6e-small.yaml").read_text()
    file.write_text(text.replace("name: g6e-small", "name: g6e-small # FILL IN: yours"))
    said = f"{file}:3: name is an example still: write yours, and take `# FILL IN` away\n"
    assert said in call(render, file).stderr
    file.write_text(text)
    assert "example still" not in call(render, file).stderr


def test_gitops_says_what_makes_argo_cd_follow(tmp_path):
    said = call(render, A100, "--gitops", tmp_path / "repository").stderr.splitlines()[-1]
    assert said.endswith(f"kubectl apply --server-side -f {tmp_path}/repository/clusters/gpu-a100.application.yaml")


def test_values_are_told_of_with_the_hubs_notes_alone():
    said = call(render, ROOT / "cluster_specs" / "mixed.yaml", "--values").stderr
    assert "note: JupyterHub: " in said
    assert "EFA" not in said


def test_gitops_without_a_repository_says_what_to_write(tmp_path, capsys):
    code, said = code_of(capsys, "render", KIND, "--gitops", tmp_path)
    assert code == 3
    assert said.startswith(f"{KIND}  gitops\n")
    assert "gitops: {repository:" in said


def test_diff_sees_no_difference_between_a_file_and_its_bundle(tmp_path):
    call(render, A100, "--split", tmp_path)
    assert call(diff, A100, tmp_path, "-o", "json").stdout == "[]\n"
    assert diff.main([str(A100), str(tmp_path)], standalone_mode=False) == 0


def test_diff_of_files_is_by_meaning(tmp_path, capsys):
    file = tmp_path / "new.yaml"
    text = A100.read_text().replace("size: 1Ti", "size: 1024Gi").replace("max: 16", "max: 8")
    file.write_text(text.replace("efa: required", "efa: required\n    neuron: devices"))
    code, _ = code_of(capsys, "diff", A100, file)
    assert code == 1
    assert call(diff, A100, file).stdout == "~ workers.a100.nodes.max: 16 -> 8\n"


def test_diff_of_what_files_render_to(tmp_path):
    file = tmp_path / "new.yaml"
    file.write_text(A100.read_text().replace("max: 16", "max: 8"))
    changes = json.loads(call(diff, A100, file, "--rendered", "-o", "json").stdout)
    assert {change["object"] for change in changes} == {
        "NodePool/gpu-a100--a100",
        "PodDisruptionBudget/training/gpu-a100",
        "Queue/ml-training",
        "RayCluster/training/gpu-a100",
    }


def test_a_missing_file_is_wrong_usage(capsys):
    assert code_of(capsys, "render", "nowhere.yaml")[0] == 2
    assert code_of(capsys, "diff", A100, "nowhere.yaml")[0] == 2


def test_it_runs_as_a_module():
    run = subprocess.run([sys.executable, "-m", "raytrain_eks", "render", str(KIND)], capture_output=True, check=False)
    assert run.returncode == 0
    assert run.stdout == (ROOT / "tests" / "golden" / "cpu-kind.yaml").read_bytes()


def test_a_kill_at_any_write_leaves_whole_files_and_the_next_render_cleans_up(tmp_path, monkeypatch):
    """What a kill would leave: every file of one generation or the other, and a record that knows all of them."""
    assert call(render, KIND, "--split", tmp_path / "whole").exit_code == 0
    whole = {path.name: path.read_text() for path in (tmp_path / "whole").iterdir()}
    replace = os.replace
    for steps in range(len(whole) + 1):
        out, left = tmp_path / f"killed-{steps}", iter(range(steps))
        out.mkdir()
        (out / "99-old.yaml").write_text("old")
        (out / LIST).write_text("99-old.yaml\n")

        def dies(made, path, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(made, path)

        monkeypatch.setattr(os, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            render.callback(file=str(KIND), only=(), output="yaml", split=str(out), gitops=None, values=False)
        monkeypatch.setattr(os, "replace", replace)
        for path in out.glob("[!.]*"):
            assert path.read_text() == whole.get(path.name, "old")
        assert call(render, KIND, "--split", out).exit_code == 0
        assert {path.name: path.read_text() for path in out.iterdir()} == whole


@pytest.mark.parametrize("option", ["--split", "--gitops"])
def test_an_empty_folder_name_is_wrong_usage(capsys, option):
    assert code_of(capsys, "render", KIND, option, "")[0] == 2


def test_a_full_disk_is_a_message():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "raytrain_eks", "render", str(KIND)]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert "the output cannot be written: No space left on device" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_a_closed_standard_input_is_an_empty_file():
    command = f"{sys.executable} -m raytrain_eks render - <&-"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "nothing is written in the file" in ended.stderr
