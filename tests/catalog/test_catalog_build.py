"""The data files are what the script makes of the recorded facts, and the script notices facts that disagree."""

import csv
import shutil

import pytest

from raytrain_eks.catalog import build


def test_the_files_are_what_the_script_makes(shared):
    rows, sources = build.build(shared / "facts")
    for name, expected in (("instances.csv", rows), ("sources.csv", sources)):
        with (build.HERE / name).open(newline="", encoding="utf-8") as file:
            assert list(csv.DictReader(file)) == expected


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("ec2_allocatable.csv", "400000,19000,95690m,1082712Mi", "400000,19000,95700m,1082712Mi"),
        ("ec2_allocatable.csv", "trainium,16,7600,800000,80000,127610m,481894Mi,247,,16,32,8", None),
        ("accelerated_instances.csv", "vpc.amazonaws.com/efa:4,95690,1082712,737,yes", None),
    ],
)
def test_facts_that_disagree_end_the_build(shared, tmp_path, file, before, after):
    facts = tmp_path / "facts"
    shutil.copytree(shared / "facts", facts)
    text = (facts / file).read_text()
    assert before in text
    changed = after or before.replace("95690", "95000").replace("16,32,8", "16,48,8")
    (facts / file).write_text(text.replace(before, changed))
    with pytest.raises(ValueError, match=r"is .* in one table and .* in the other"):
        build.build(facts)


def test_wrong_usage():
    assert build.main([]) == 2
