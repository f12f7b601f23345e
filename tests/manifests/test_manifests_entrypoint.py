"""A command reaches the shell in the cluster word for word, by the way that the operator's submitter takes."""

import json
import os
import re
import shlex
import subprocess

import pytest
import yaml as pyyaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from raytrain_eks.manifests.entrypoint import entrypoint, runtime_env, runtime_env_problems
from raytrain_eks.manifests.literal import kept

COMMANDS = [
    "python jobs/train.py jobs/quickstart.yaml --storage /shared/runs",
    "python -c 'print(\"a b\")'",
    'python "my script.py" && echo done || exit 3',
    "echo $HOME ${PATH:-x} $RAY_JOB_SUBMISSION_ID",
    "echo $$ $(date) $(RAY_JOB_SUBMISSION_ID) $((1+2)) `id`",
    "cat data | tee log > /dev/null; ls *.py ?.txt [ab] {a,b} ~ ~root",
    'set -e\nfor i in 1 2; do\n  echo "$i"\ndone\n',
    "  leading and trailing  ",
    "echo 'it'\"'\"'s' \\\\ \\n !x #no comment",
    "A=b python x.py",
    "time python x.py",
    "! false",
    "echo é $é 日本 😀 \t tab",
    "echo $",
    "echo 'a;fi;b'",
    "if true; then echo yes; fi",
    "(echo sub)",
    "cat <<'END'\n$x `y`\nEND\n",
    "-c x",
    "python train.py --lr=2e-5 --names a,b --at x@y:z --pct 5%",
]


def kubelet(text: str, variables: dict[str, str]) -> str:
    """k8s.io/kubernetes third_party/forked/golang/expansion/expand.go, on bytes as Go does."""
    data, out, cursor = text.encode(), [], 0
    while cursor < len(data):
        if data[cursor : cursor + 1] != b"$" or cursor + 1 >= len(data):
            out.append(data[cursor : cursor + 1])
            cursor += 1
            continue
        after = data[cursor + 1 :]
        if after[:1] == b"$":
            out.append(b"$")
            cursor += 2
        elif after[:1] == b"(":
            end = after.find(b")")
            if end < 0:
                out.append(b"$(")
                cursor += 2
                continue
            name = after[1:end].decode()
            out.append(variables.get(name, f"$({name})").encode())
            cursor += 2 + end
        else:
            # Go's string(byte) takes one byte for a rune, which garbles a letter of more bytes.
            out.append(b"$" + chr(after[0]).encode())
            cursor += 2
    return b"".join(out).decode(errors="replace")


def quoted_by_go(text: str) -> str:
    """strconv.Quote."""
    plain = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    other = lambda letter: letter if letter.isprintable() else f"\\u{ord(letter):04x}"  # noqa: E731
    return '"' + "".join(plain.get(letter) or other(letter) for letter in text) + '"'


def submit_script(field: str, env_json: str = "") -> str:
    """BuildJobSubmitCommand of KubeRay 1.7 in K8sJobMode, without the wait for the dashboard."""
    address = "http://head:8265"
    words = ["if", "!", "ray", "job", "status", "--address", address, "id-1", ">/dev/null", "2>&1", ";", "then"]
    words += ["ray", "job", "submit", "--address", address, "--no-wait"]
    if env_json:
        words += ["--runtime-env-json", quoted_by_go(env_json)]
    words += ["--submission-id", "id-1", "--", field.strip(), ";", "fi", ";"]
    return " ".join([*words, "ray", "job", "logs", "--address", address, "--follow", "id-1"])


@pytest.fixture(scope="session")
def submitter(tmp_path_factory):
    """Runs a script as the submitter's container does; gives the arguments of `ray job submit`."""
    folder = tmp_path_factory.mktemp("submitter")
    fake = folder / "ray"
    fake.write_text(
        '#!/bin/bash\nif [ "$2" = status ]; then exit 1; fi\n'
        f'if [ "$2" = submit ]; then printf \'%s\\0\' "$@" > {folder}/args; fi\n'
    )
    fake.chmod(0o755)

    def run(script: str) -> list[str]:
        variables = {"RAY_JOB_SUBMISSION_ID": "id-1", "PYTHONUNBUFFERED": "1", "RAY_DASHBOARD_ADDRESS": "head:8265"}
        environment = variables | {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": "/home/submitter"}
        (folder / "args").unlink(missing_ok=True)
        command = ["/bin/bash", "-ce", "--", kubelet(script, variables)]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, timeout=20)
        assert done.returncode == 0, done.stderr
        return (folder / "args").read_bytes().decode().split("\0")[:-1]

    return run


def words_after_the_dashes(arguments: list[str]) -> list[str]:
    return arguments[arguments.index("--") + 1 :]


def what_the_cluster_runs(line: str) -> str:
    """The text that a shell gets to interpret when the Jobs API runs `line` by `sh -c`."""
    words = shlex.split(line)
    return words[2] if words[:2] == ["bash", "-c"] and len(words) == 3 else line


@pytest.mark.parametrize("command", COMMANDS)
def test_the_submitter_hands_a_command_on_unchanged(command, submitter):
    arguments = submitter(submit_script(entrypoint(command, "K8sJobMode")))
    line = shlex.join(words_after_the_dashes(arguments))  # ray/dashboard/modules/job/cli.py
    assert what_the_cluster_runs(line) == command


@pytest.mark.parametrize("command", COMMANDS)
def test_http_mode_sends_it_as_it_is(command):
    assert what_the_cluster_runs(entrypoint(command, "HTTPMode")) == command


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.text(st.sampled_from("ab $()`'\"\\;&|<>\n\t*?[]{}~#!=é😀-"), min_size=1, max_size=25).filter(str.strip)
)
def test_any_command_survives(command, submitter):
    arguments = submitter(submit_script(entrypoint(command, "SidecarMode")))
    assert what_the_cluster_runs(shlex.join(words_after_the_dashes(arguments))) == command


@pytest.mark.parametrize("command", ["python x.py --a=1 b", "make train"])
def test_plain_words_stay_readable(command):
    assert entrypoint(command, "K8sJobMode") == command


@pytest.mark.parametrize("command", ["", "  \n", "a\0b"])
def test_no_command_is_refused(command):
    with pytest.raises(ValueError):
        entrypoint(command, "K8sJobMode")


@pytest.mark.slow
@pytest.mark.parametrize("command", [COMMANDS[2], COMMANDS[4], COMMANDS[6], COMMANDS[-1]])
def test_rays_own_command_line_passes_it_on(command, submitter, monkeypatch):
    from click.testing import CliRunner
    from ray.dashboard.modules.job import cli

    seen = {}

    class Client:
        def submit_job(self, **options):
            seen.update(options)
            return "id-1"

        def get_version(self):
            return "4"

    monkeypatch.setattr(cli, "_get_sdk_client", lambda *args, **options: Client())
    arguments = submitter(submit_script(entrypoint(command, "K8sJobMode")))
    done = CliRunner().invoke(cli.submit, arguments[2:])
    assert done.exit_code == 0, done.output
    assert what_the_cluster_runs(seen["entrypoint"]) == command


@given(st.text(st.sampled_from("$()aé Z_1{}\\'"), max_size=20))
def test_the_kubelet_leaves_kept_text_alone(text):
    assert kubelet(kept(text), {"a": "EXPANDED", "Z_1": "EXPANDED"}) == text


ENVIRONMENTS = [
    {
        "env_vars": {
            "A": "quote \" and ' and \\ back",
            "B": "line\nline",
            "C": "é 日本 😀",
            "D": "%s !x *",
            "E": "\u2028\u200b\ufeff\t",
        }
    },
    {"working_dir": "s3://bucket/code.zip", "pip": ["a==1", "b>=2"]},
]


@pytest.mark.parametrize("value", ENVIRONMENTS)
def test_a_runtime_environment_that_is_let_through_arrives(value, submitter):
    assert not list(runtime_env_problems(value, "K8sJobMode", "runtime_env"))
    written = runtime_env(value)
    assert pyyaml.safe_load(written) == value
    assert YAML(typ="safe", pure=True).load(written) == value
    # The operator reads it as YAML and hands it on as JSON.
    arguments = submitter(submit_script("true", json.dumps(value, ensure_ascii=False)))
    assert json.loads(arguments[arguments.index("--runtime-env-json") + 1]) == value


@pytest.mark.parametrize("text", ["$HOME", "a`id`", "\x7f", "\U000e0001", "\ud800"])
def test_a_runtime_environment_that_would_change_is_refused(text):
    found = list(runtime_env_problems({"env_vars": {"A": text}}, "K8sJobMode", "runtime_env"))
    assert [problem.path for problem in found] == ["runtime_env.env_vars.A"]
    assert not list(runtime_env_problems({"env_vars": {"A": text}}, "HTTPMode", "runtime_env"))


def test_rays_flag_for_neuron_cores_is_one_word_and_json():
    # KubeRay: `--resources=VALUE` unquoted in a bash script; it reads the JSON after stripping quotes.
    value = "'" + json.dumps({"neuron_cores": 32}) + "'"
    done = subprocess.run(["bash", "-c", f"printf '%s' --resources={value}"], capture_output=True, text=True)
    assert json.loads(done.stdout.removeprefix("--resources=")) == {"neuron_cores": 32}
    assert json.loads(re.sub(r"^['\"` ]+|['\"` ]+$", "", value)) == {"neuron_cores": 32}
