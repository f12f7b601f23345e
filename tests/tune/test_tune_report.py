"""The report: a well-formed page that loads nothing, whatever the names and reasons in it are."""

import random
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import sweep_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_lines import created, told

from raytrain_eks.tune import plots
from raytrain_eks.tune.history import History
from raytrain_eks.tune.importance import Importance
from raytrain_eks.tune.report import html, objectives, write
from raytrain_eks.tune.svg import Scale, escape, thin

VOID = {"meta", "br", "hr", "img", "link", "input"}
LOADS = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background"}


class Page(HTMLParser):
    """Checks nesting while it reads; collects elements, texts and attributes."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def checked(text: str) -> Page:
    """The page, found to be well-formed, to run no script and to load nothing."""
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.seen)
    assert not [each for each in page.attributes if each[1] in LOADS or each[1].startswith("on")]
    assert "url(" not in text.replace("\\", "")
    assert "@import" not in text
    for chart in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + chart.split("</svg>")[0] + "</svg>")
    return page


def test_a_report_of_successive_halving():
    history = History.of(sweep_lines.halving(24), name="lr", metric="eval_loss")
    page = checked(html(history, objectives(history)))
    shown = " ".join(page.texts)
    for heading in (
        "Optimisation history",
        "Rungs",
        "Learning curves",
        "Training loss",
        "Parallel coordinates",
        "Trials",
    ):
        assert heading in shown
    assert "Lineage" not in shown
    assert "RuntimeError: out of memory" in shown
    assert page.seen.count("svg") == page.seen.count("desc")
    assert [value for tag, name, value in page.attributes if tag == "svg" and name == "role"] == [
        "img"
    ] * page.seen.count("svg")


@pytest.mark.parametrize(
    "lines", [[], sweep_lines.halving(6), sweep_lines.population()], ids=["empty", "halving", "pbt"]
)
def test_a_browser_finds_nothing_to_mend(lines):
    html5lib = pytest.importorskip("html5lib")
    parser = html5lib.HTMLParser(strict=True)
    history = History.of(lines, name='a<b & "c"', metric="eval_loss")
    document = parser.parse(html(history, objectives(history)))
    assert not parser.errors
    assert document.find(".//{http://www.w3.org/1999/xhtml}main") is not None


def test_a_report_of_a_population():
    shown = " ".join(checked(html(History.of(sweep_lines.population(), name="p"))).texts)
    assert "Lineage" in shown
    assert "from t0002 at step 20" in shown
    assert "Rungs" not in shown


def test_a_report_of_nothing_says_so():
    shown = " ".join(checked(html(History(name="s"))).texts)
    assert "No trial has an objective yet." in shown


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-300, 1e300, 5])
def test_one_trial_with_one_value(value):
    events = [created("t0001", 1, {"seed": 1}), told("progress", "t0001", step=1, value=value)]
    checked(html(History.of(events, name="s")))


texts = st.text(max_size=30) | st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</title></svg>",
        "&lt;",
        "\x00\x1b\ud800",
        "]]>",
        "{{x}}",
    ]
)
values = texts | st.floats() | st.integers() | st.none() | st.booleans() | st.lists(texts, max_size=2)


@settings(max_examples=25)
@given(
    name=texts,
    metric=texts,
    parameters=st.lists(st.dictionaries(texts, values, max_size=3), min_size=2, max_size=4),
    reason=texts,
)
def test_no_text_of_a_person_becomes_markup(name, metric, parameters, reason):
    events = []
    for number, each in enumerate(parameters, start=1):
        events += [created(f"t{number}{name}", number, each)]
        events += [told("progress", f"t{number}{name}", step=step, value=number + 1 / step) for step in (1, 2)]
        events += [told("rung", f"t{number}{name}", rung=0, step=2, value=1.5, cutoff=1.0, kept=number > 1)]
        events += [told("cloned", f"t{number}{name}", donor=f"t1{name}", donor_step=1, parameters=each)]
        events += [told("ended", f"t{number}{name}", state="failed", reason=reason, step=2)]
    history = History.of(events, name=name, metric=metric or "x", state=reason, export=reason)
    page = checked(html(history, objectives(history)))
    plain = Page(html(History.of(events, name="s", metric="x")))
    assert set(page.seen) == set(plain.seen) | ({"meta"} & set(page.seen))
    html(history).encode()


@pytest.mark.slow
def test_two_hundred_trials_with_long_curves_stay_small():
    draw = random.Random(0)
    events, losses = [], {}
    for number in range(1, 201):
        trial = f"t{number:04d}"
        parameters = {f"model.config.field_{index}": draw.random() for index in range(8)}
        events.append(created(trial, number, parameters))
        events += [told("progress", trial, step=step, value=draw.random()) for step in range(10, 2000, 20)]
        events.append(told("ended", trial, state="failed", reason="Traceback\n" + "x" * 5000, step=3000))
        losses[trial] = [(step, draw.random()) for step in range(300)]
    text = html(History.of(events, name="big"), losses)
    assert len(text.encode()) < 2_000_000
    checked(text)


def test_the_same_sweep_gives_the_same_bytes(tmp_path):
    sweep_lines.write(tmp_path, "lr", sweep_lines.halving(12))
    place = write(str(tmp_path), "lr")
    first = (tmp_path / "lr" / "report.html").read_bytes()
    assert place == f"{tmp_path}/lr/report.html"
    write(str(tmp_path), "lr")
    assert (tmp_path / "lr" / "report.html").read_bytes() == first
    assert b"Training loss" in first


def test_a_trial_without_a_run_folder_is_still_reported(tmp_path):
    folder = sweep_lines.write(tmp_path, "lr", sweep_lines.halving(4))
    (folder / "trials" / "t0001" / "metrics.jsonl").write_text("half a li")
    (folder / "trials" / "t0003").rmdir()
    write(str(tmp_path), "lr")


def test_no_sweep_no_report(tmp_path):
    with pytest.raises(FileNotFoundError):
        write(str(tmp_path), "lr")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_drawn_is_said():
    parameters = {f"model.config.field_{index}": index for index in range(14)}
    events = []
    for trial in ("t0001", "t0002"):
        events += [created(trial, 1, parameters), told("started", trial), told("progress", trial, step=1, value=1.0)]
    shown = " ".join(Page(html(History.of(events, name="s"))).texts)
    assert "Only the first 10 of 14 parameters are drawn." in shown
    assert "Only the first" not in html(History.of(sweep_lines.population(), name="p"))


def test_bars_say_what_they_show():
    chart = plots.importances(Importance(shares={"optimizer.learning_rate": 0.75, "seed": 0.25}))
    assert chart is not None
    assert chart.description == "learning_rate 75%, seed 25%"
    assert plots.importances(Importance()) is None


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20))
def test_a_scale_holds_all_its_values(values):
    scale = Scale.over(values, 0, 100)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    assert all(
        scale.low - 1e-9 * abs(scale.low) <= tick <= scale.high + 1e-9 * abs(scale.high) for tick in scale.ticks()
    )


@settings(max_examples=50)
@given(st.integers(0, 300), st.integers(3, 50), st.randoms(use_true_random=False))
def test_thinning_keeps_ends_and_order(count, most, draw):
    points = [(float(step), draw.random()) for step in range(count)]
    found = thin(points, most)
    assert len(found) == min(count, most)
    assert found[:1] == points[:1]
    assert found[-1:] == points[-1:]
    assert found == sorted(found)
    assert set(found) <= set(points)


def test_thinning_keeps_a_spike():
    points = [(float(step), 9.0 if step == 517 else 1.0) for step in range(1000)]
    assert (517.0, 9.0) in thin(points, 20)


@given(st.text())
def test_escaped_text_is_read_back(text):
    found = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>')
    clean = (found.text or "").replace("\r", "\n")
    assert len(clean) <= len(text)
    assert "".join(Page(f"<p>{escape(text)}</p>").texts).replace("\r", "\n") is not None
