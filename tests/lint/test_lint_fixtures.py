"""Every mistake in a file of its own is found, by its rule and no other; its corrected twin has no finding.

Files 01 to 20 repeat the mistakes of the guide, in the order in which `guide_errata.md` counts them; later ones are
mistakes of the field. The first line of a bad file names the rules that must speak, once or more.
"""

from pathlib import Path

import pytest

from raytrain_eks.lint import Settings, lint, rules
from raytrain_eks.lint.files import documents

FOLDER = Path(__file__).resolve().parent / "fixtures"
BAD = sorted(FOLDER.glob("*.bad.yaml"))


def found_in(path):
    return lint(documents([(path.name, path.read_text())]), Settings())


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name.removesuffix(".bad.yaml"))
def test_a_mistake_is_found_by_its_rule_only(path):
    expected = path.read_text().splitlines()[0].removeprefix("# finds:").split()
    findings = found_in(path)
    assert sorted({finding.rule for finding in findings}) == sorted(expected), "\n".join(map(str, findings))
    for finding in findings:
        assert finding.line, finding
        assert finding.reason, finding
        assert finding.fix, finding


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name.removesuffix(".bad.yaml"))
def test_the_corrected_twin_has_no_finding(path):
    twin = path.with_name(path.name.replace(".bad.", ".good."))
    assert "\n".join(map(str, found_in(twin))) == ""


def test_each_of_the_twenty_mistakes_has_its_file():
    assert [path.name[:2] for path in BAD][:20] == [f"{number:02}" for number in range(1, 21)]


def test_every_rule_is_provoked_by_some_file():
    """A rule that no file provokes may be one that can never speak."""
    provoked = {rule for path in BAD for rule in path.read_text().splitlines()[0].removeprefix("# finds:").split()}
    assert set(rules()) - provoked == set()
