"""`raytrain-eks lint`, through the door that people use."""

import io
import json

import pytest

from raytrain_eks.cli.main import main
from raytrain_eks.spec.source import read_documents

BAD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: main
      image: train:1
      env: [{name: LEARNING_RATE, value: 2e-5}]
"""
GOOD = BAD.replace("2e-5", '"2e-5"')


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["lint", *map(str, arguments)])
    return ended.value.code, *capsys.readouterr()


def test_findings_end_with_3_and_say_rule_place_reason_and_fix(capsys, tmp_path):
    (tmp_path / "p.yaml").write_text(BAD)
    code, shown, said = run(capsys, tmp_path / "p.yaml")
    assert code == 3
    assert shown.splitlines() == [
        f"{tmp_path}/p.yaml:8:42  RT010  Pod p  spec.containers.main.env.LEARNING_RATE.value",
        "  LEARNING_RATE: 2e-5 is a number in YAML, and a text is expected",
        '  write "2e-5" in quotes',
    ]
    assert said == "1 object, 1 error, 0 warnings; `raytrain-eks explain RULE` tells more\n"


def test_no_findings_end_with_0(capsys, tmp_path):
    (tmp_path / "p.yaml").write_text(GOOD)
    assert run(capsys, tmp_path / "p.yaml") == (0, "", "1 object, 0 errors, 0 warnings\n")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_for_programs(capsys, tmp_path, form):
    (tmp_path / "p.yaml").write_text(BAD)
    code, shown, _ = run(capsys, tmp_path / "p.yaml", "-o", form)
    data = json.loads(shown) if form == "json" else read_documents(shown, "x")[0].data
    assert code == 3
    (finding,) = data["findings"]
    assert (finding["rule"], finding["line"], finding["column"]) == ("RT010", 8, 42)
    assert finding["severity"] == "error"
    assert data["silenced"] == {}


def test_folders_standard_input_and_several_files(capsys, tmp_path, monkeypatch):
    (tmp_path / "deep" / ".hidden").mkdir(parents=True)
    (tmp_path / "deep" / "b.yml").write_text(BAD)
    (tmp_path / "deep" / ".hidden" / "c.yaml").write_text(BAD)
    (tmp_path / "deep" / "notes.txt").write_text("no manifest")
    (tmp_path / "a.yaml").write_text(GOOD + "---\n" + BAD)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    code, shown, said = run(capsys, tmp_path, "-")
    places = [line.split()[0] for line in shown.splitlines() if line[0] != " "]
    assert code == 3
    assert places == [f"{tmp_path}/a.yaml:17:42", f"{tmp_path}/deep/b.yml:8:42", "(stdin):8:42"]
    assert said.startswith("4 objects, 3 errors")


def test_a_silence_is_counted(capsys, tmp_path):
    quiet = BAD.replace(
        "{name: p}", '{name: p, annotations: {raytrain-eks/lint-ignore: "RT010=the operator quotes it"}}'
    )
    (tmp_path / "p.yaml").write_text(quiet)
    assert run(capsys, tmp_path) == (0, "", "1 object, 0 errors, 0 warnings, 1 silenced (RT010 1)\n")


def test_settings_reach_the_rules(capsys, tmp_path):
    (tmp_path / "j.yaml").write_text(
        "apiVersion: ray.io/v1\nkind: RayCronJob\nmetadata: {name: nightly, namespace: training}\n"
        'spec: {schedule: "0 3 * * *", jobTemplate: {entrypoint: python x.py, clusterSelector: {ray.io/cluster: a}}}\n'
    )
    assert "RayCronJob" in run(capsys, tmp_path)[1]
    assert run(capsys, tmp_path, "--feature-gates", "RayCronJob=true")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere.yaml"], 2, "nowhere.yaml: No such file"),
        ([], 2, "Missing argument"),
        (["-", "--kubernetes", "latest"], 2, "not a version"),
        (["-", "--feature-gates", "RayCronJb=true"], 2, "did you mean RayCronJob?"),
        (["-", "--feature-gates", "RayCronJob"], 2, "not NAME=true"),
        (["-", "--external", "thing"], 2, "not KIND/NAME"),
    ],
)
def test_a_mistake_is_a_message(capsys, arguments, code, said):
    ended, shown, error = run(capsys, *arguments)
    assert (ended, shown) == (code, "")
    assert said in error


def test_an_empty_folder_and_a_file_that_is_no_text(capsys, tmp_path):
    assert run(capsys, tmp_path)[0] == 2
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    code, _, error = run(capsys, tmp_path)
    assert code == 3
    assert "save it as UTF-8" in error


def test_what_is_no_object_is_said(capsys, tmp_path):
    (tmp_path / "values.yaml").write_text("replicas: 1\n")
    (tmp_path / "mine.yaml").write_text("kind: Cluster\nname: mine\n")
    (tmp_path / "run.yaml").write_text("kind: Job\nname: mine\n")
    (tmp_path / "nothing.yaml").write_text("# nothing\n")
    code, shown, said = run(capsys, tmp_path)
    assert (code, shown) == (0, "")
    assert said.splitlines() == [
        f"{tmp_path}/mine.yaml is a cluster file: `raytrain-eks render` lints what it becomes",
        f"{tmp_path}/run.yaml is a job file: `raytrain-eks validate` checks it",
        f"{tmp_path}/values.yaml: a document without apiVersion and kind was not looked at",
        "no Kubernetes object is in these files",
    ]


@pytest.mark.parametrize(
    ("memory", "fix"), [("1Ki", "1Gi or 1Mi"), ("512", "512Gi or 512Mi"), ("2k", "2Gi or 2Mi"), ("1e3", "64Gi or 64Mi")]
)
def test_a_memory_of_some_bytes_is_told_a_larger_unit(capsys, tmp_path, memory, fix):
    (tmp_path / "p.yaml").write_text(GOOD + f'      resources: {{limits: {{memory: "{memory}"}}}}\n')
    code, shown, _ = run(capsys, tmp_path / "p.yaml")
    assert code == 3
    assert f"write a larger unit: {fix}" in shown


def test_an_empty_name_is_wrong_usage(capsys):
    assert run(capsys, "") == (2, "", "a FILE's name is empty; was a variable meant?\n")


LITERAL = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: Bad_Name, labels: {a b: c, tier: -x-}, annotations: {count: 1}}
---
apiVersion: v1
kind: ConfigMap
metadata: [settings]
---
apiVersion: v1
kind: List
items: foo
---
settings
"""
SAID = """\
:3:18  RT308  ConfigMap Bad_Name  metadata.name
  the name of a ConfigMap must be lower-case letters, digits, dashes and dots, at most 253; Bad_Name is not
  for example bad-name
:3:37  RT309  ConfigMap Bad_Name  metadata.labels.a b
  the key of this label, a b, is no qualified name: it needs at most 63 letters, digits, -, _ and dots, with a letter \
or digit at both ends
  for example a-b
:3:51  RT309  ConfigMap Bad_Name  metadata.labels.tier
  tier: -x- is no label's value: letters, digits, -, _ and dots, with a letter or digit at both ends
  write it as an annotation, whose values may be any text, or replace what is not allowed
:3:78  RT010  ConfigMap Bad_Name  metadata.annotations.count
  count: 1 is a number in YAML, and a text is expected
  write "1" in quotes
:7:11  RT307  ConfigMap  metadata
  metadata is a list, and a mapping is expected
  for example metadata: {name: first}
:11:8  RT307  List  items
  items is a text, and a List has a list of objects
  write each object after a dash
:13:1  RT307
  the document is a text, settings, and an object is a mapping with apiVersion, kind and metadata
  indent it below its key, or take it out; --- separates documents
"""


def test_names_labels_and_what_is_no_object(capsys, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(LITERAL)
    code, shown, said = run(capsys, file)
    assert code == 3
    assert shown.replace(str(file), "") == SAID
    assert said == "3 objects, 7 errors, 0 warnings; `raytrain-eks explain RULE` tells more\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[]\n", "no Kubernetes object is in these files\n"),
        ("- {op: add, path: /spec/x, value: 1}\n", ": a document without apiVersion and kind was not looked at\n"),
        ("null\n", "no Kubernetes object is in these files\n"),
    ],
)
def test_a_list_that_was_not_meant_as_objects_is_no_finding(capsys, tmp_path, written, expected):
    (tmp_path / "x.yaml").write_text(written)
    code, shown, said = run(capsys, tmp_path / "x.yaml")
    assert (code, shown) == (0, "")
    assert expected in said


def test_what_a_template_fills_in_is_one_finding(capsys, tmp_path):
    templated = GOOD.replace("train:1", "{{ .Image }}").replace("{name: p}", "{name: p, labels: {cell: {{cell}}}}")
    (tmp_path / "p.yaml").write_text(templated)
    _, shown, _ = run(capsys, tmp_path / "p.yaml")
    assert {line.split()[1] for line in shown.splitlines() if line[0] != " "} == {"RT011"}


def test_a_refused_name_can_be_silenced(capsys, tmp_path):
    quiet = 'metadata: {name: Bad_Name, annotations: {raytrain-eks/lint-ignore: "RT308=a webhook renames it"}}'
    (tmp_path / "x.yaml").write_text(f"apiVersion: v1\nkind: ConfigMap\n{quiet}\n")
    assert run(capsys, tmp_path) == (0, "", "1 object, 0 errors, 0 warnings, 1 silenced (RT308 1)\n")
