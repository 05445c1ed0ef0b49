"""The page of a labelled stream: every number recounted, user's texts stay texts, and a real browser shows it."""

import json
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from pages import FAULTS, PHONE, Balance, assert_loads_nothing, browser, needs_browser
from photos import encoded, noise, png
from PIL import Image

from pta.core.modality import CLOUDS, IMAGES, Modality
from pta.data.sample_set import SampleFile
from pta.measure.difference import Difference
from pta.measure.parts import by_class, confusions
from pta.measure.report.curve import draw_curves, ticks
from pta.measure.report.pictures import picture, pictures_of, thumbnail
from pta.measure.report.stream_page import ReportTable, StreamReport, render_stream_report, spread
from pta.measure.stream_run import StreamRun

N, SAMPLES, CLASSES = 400, 300, 6  # some samples come more than once, and some never
NAMES = [f"kind {letter}" for letter in "abcdef"]
HEADINGS = ("accuracy of zero-shot", "accuracy of wpta", "points of difference", "answers fixed / broken")


def answers(name, order, labels, classes, right, generator):
    """A run that is right with a probability, and confident in between."""
    wrong = (labels + generator.integers(1, classes, len(labels))) % classes
    predictions = np.where(generator.random(len(labels)) < right, labels, wrong)
    confidences = generator.random(len(labels)).astype(np.float32)
    return StreamRun(name, {}, order, predictions, confidences, confidences, labels, 0.0123 * right, 0, [])


def stream_report(n=N, samples=SAMPLES, names=NAMES, picture=None, **more):
    """A report of zero-shot, a method that repairs a part of its answers, and another."""
    generator = np.random.default_rng(3)
    order = generator.integers(0, samples, n)
    labels = generator.integers(0, len(names), samples)[order]
    before, after, other = (
        answers(name, order, labels, len(names), right, generator)
        for name, right in (("clip", 0.6), ("wpta", 0.9), ("tda", 0.5))
    )
    kept = generator.random(n) < 0.7
    after = replace(after, predictions=np.where(kept, before.predictions, after.predictions))
    report = StreamReport(
        title="a stream",
        kicker="pictures of a test",
        headline=Difference.between([before], [after]).sentence("wpta", things="images"),
        note="The order is random.",
        things="images",
        class_names=names,
        zero_shot=before,
        adapted=after,
        others=[("tda", other)],
        adapted_name="wpta",
        picture=picture,
        encoder_microseconds=1234.5,
        provenance={"Folder": "/photos/of & <mine>"},
        tables=[ReportTable("Orders", "All of them.", ["method", "shuffled"], [["wpta", "+1.23"], ["tda", "−0.45"]])],
    )
    return replace(report, **more)


class Texts(HTMLParser):
    """The texts of a page: cells by table, headings, tiles, and the curves' numbers."""

    def __init__(self, page):
        super().__init__()
        self.tables, self.texts, self.values, self.in_cell = [], [], None, False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.values = json.loads(attrs["data-values"]) if "data-values" in attrs else self.values
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True
        elif not self.in_cell and tag in ("b", "span", "h1", "h2", "h3", "p", "dd", "dt", "figure"):
            self.texts.append("")

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        said, place = " ".join(data.split()), self.tables[-1][-1] if self.in_cell else self.texts
        if said and place:
            place[-1] = f"{place[-1]} {said}".strip()


def numbers(cell):
    """The numbers in a cell."""
    plain = cell.replace("−", "-").replace(",", "").replace("%", "").replace("(", "").replace(")", "").replace("to", "")
    return [float(word) for word in plain.split()]


def right_of(run):
    return (np.asarray(run.predictions) == np.asarray(run.labels)).astype(np.float64)


def recounted(report, run, at=slice(None)):
    """Accuracy before and after, their difference and its interval, by resampling the samples one by one."""
    order, old, new = report.zero_shot.order[at], right_of(report.zero_shot)[at], right_of(run)[at]
    seen = np.unique(order)
    change = np.array([(new - old)[order == one].sum() for one in seen])
    times = np.array([(order == one).sum() for one in seen])
    drawn = np.random.default_rng(11).integers(len(seen), size=(8000, len(seen)))
    means = 100 * change[drawn].sum(axis=1) / times[drawn].sum(axis=1)
    return 100 * old.mean(), 100 * new.mean(), 100 * (new - old).mean(), *np.quantile(means, [0.025, 0.975])


def assert_said(cells, expected, n, digits):
    """Accuracies and difference as they are rounded; the ends of the interval up to chance."""
    said = [value for cell in cells for value in numbers(cell)]
    assert said[:-2] == pytest.approx(expected[: len(said) - 2][-len(said[:-2]) :], abs=0.5 * 10**-digits + 1e-9)
    assert said[-2:] == pytest.approx(expected[-2:], abs=1.5 * 100 / n + 0.3)


@pytest.fixture(scope="module")
def report():
    return stream_report()


@pytest.fixture(scope="module")
def page(report):
    return render_stream_report(report)


@pytest.fixture(scope="module")
def said(page):
    return Texts(page)


# -- the numbers ----------------------------------------------------------------------------------------------------


def test_the_tiles_and_the_headline_are_recounted(report, said):
    old, new = right_of(report.zero_shot), right_of(report.adapted)
    fixed, broken = int((new > old).sum()), int((new < old).sum())
    tiles = {words: value for value, words in zip(said.texts, said.texts[1:], strict=False) if words in HEADINGS}
    assert tiles == {
        HEADINGS[0]: f"{100 * old.mean():.2f} %",
        HEADINGS[1]: f"{100 * new.mean():.2f} %",
        HEADINGS[2]: f"{100 * (new - old).mean():+.2f}".replace("-", "−"),
        HEADINGS[3]: f"{fixed} / {broken}",
    }
    assert report.headline in said.texts


def test_the_quarters_are_recounted(report, said):
    rows = said.tables[0][1:]
    assert [row[0] for row in rows] == ["1 to 100 (100)", "101 to 200 (100)", "201 to 300 (100)", "301 to 400 (100)"]
    for start, row in zip(range(0, N, 100), rows, strict=True):
        assert_said(row[2:], recounted(report, report.adapted, slice(start, start + 100)), 100, 1)


def test_the_methods_are_recounted_the_most_accurate_first_and_the_encoder_last(report, said):
    runs = {"zero-shot": report.zero_shot, "wpta": report.adapted, "tda": report.others[0][1]}
    *rows, encoder = said.tables[1][1:]
    assert encoder == ["the encoder, before every method", "1,234"]
    assert [row[0] for row in rows] == sorted(runs, key=lambda name: -right_of(runs[name]).mean())
    for name, accuracy, difference, confidence, error, time in rows:
        right, sure = right_of(runs[name]), runs[name].confidences.astype(np.float64)
        assert accuracy == f"{100 * right.mean():.2f} %"
        if name == "zero-shot":
            assert difference == ""
        else:
            assert_said([difference], recounted(report, runs[name])[2:], N, 2)
        gaps = 0.0
        for low in range(15):
            inside = (sure > low / 15) & (sure <= (low + 1) / 15)
            gaps += abs(sure[inside].sum() - right[inside].sum())
        assert numbers(confidence) == pytest.approx([100 * sure.mean()], abs=0.05)
        assert numbers(error) == pytest.approx([100 * gaps / N], abs=0.05)
        assert numbers(time) == pytest.approx([1e6 * runs[name].seconds / N], abs=0.5)


def test_the_classes_are_recounted_by_how_many_answers_they_gained(report, said):
    assert said.tables[2] == [["method", "shuffled"], ["wpta", "+1.23"], ["tda", "−0.45"]]  # the report's own
    rows, labels = said.tables[3][1:], report.zero_shot.labels
    change = right_of(report.adapted) - right_of(report.zero_shot)
    gained = {
        f"{name} ({(labels == c).sum()})": (change[labels == c].sum(), change[labels == c].mean())
        for c, name in enumerate(NAMES)
    }
    assert [row[0] for row in rows] == sorted(gained, key=gained.get, reverse=True)
    for row in rows:
        at = labels == NAMES.index(row[0].partition(" (")[0])
        assert_said(row[2:], recounted(report, report.adapted, at), at.sum(), 1)


def test_the_confusions_are_recounted(report, said):
    old, new = (
        Counter((NAMES[t], NAMES[p]) for t, p in zip(run.labels, run.predictions, strict=True) if t != p)
        for run in (report.zero_shot, report.adapted)
    )
    for table, rank in ((4, lambda pair: abs(new[pair] - old[pair])), (5, lambda pair: new[pair])):
        rows = [(truth, answer, *numbers(" ".join(rest))) for truth, answer, *rest in said.tables[table][1:]]
        assert rows == [(*row[:2], old[row[:2]], new[row[:2]], new[row[:2]] - old[row[:2]]) for row in rows]
        best = sorted(map(rank, old.keys() | new.keys()), reverse=True)[:10]
        assert [rank(row[:2]) for row in rows] == best


def test_every_method_has_a_curve_and_its_numbers_are_the_accuracies_so_far(report, page, said):
    at, *lines = said.values
    assert (at[0], at[-1], page.count("<polyline")) == (50, N, 3)
    for run, line in zip((report.zero_shot, report.adapted, report.others[0][1]), lines, strict=True):
        right = right_of(run)
        assert line == pytest.approx([100 * right[:count].mean() for count in at], abs=0.0051)
        assert f"{100 * right.mean():.2f} %" in said.texts  # in the legend


def test_one_method_that_fails_does_not_press_the_others_together():
    steady = np.linspace(80.0, 84.0, 200)
    drawn = draw_curves([steady, steady + 1, np.full(200, 3.0)])
    assert min(level for level, _ in drawn["levels"]) >= 70
    assert float(drawn["paths"][2].split()[0].partition(",")[2]) > 1000  # below the drawing


@pytest.mark.parametrize(("low", "high"), [(46.2, 57.9), (0.0, 0.0), (99.9, 100.0), (10.9, 11.2), (0.0, 2000.0)])
def test_ticks_enclose_the_values_in_few_round_steps(low, high):
    steps = ticks(low, high, 5)
    assert steps[0] <= low <= high <= steps[-1]
    assert 2 <= len(steps) <= 8
    assert np.ptp(np.diff(steps)) < 1e-6


def test_of_many_classes_those_that_changed_most_are_shown_and_the_others_are_one_row():
    report = stream_report(n=5000, samples=5000, names=[f"c{number}" for number in range(300)])
    labels = report.zero_shot.labels
    change = right_of(report.adapted) - right_of(report.zero_shot)
    gained = np.array([change[labels == c].sum() for c in range(300)])
    parts = by_class(report.zero_shot, report.adapted, report.class_names)
    assert len(parts) == 41
    assert parts[20].name == "260 other classes"
    assert sum(part.count for part in parts) == 5000
    ends = [gained[int(part.name[1:])] for part in (*parts[:20], *parts[21:])]
    assert ends == [*np.sort(gained)[::-1][:20], *np.sort(gained)[::-1][-20:]]


def test_methods_that_are_always_right_confuse_nothing(report):
    perfect = replace(report.zero_shot, predictions=report.zero_shot.labels)
    assert confusions(perfect, perfect) == []
    equal = replace(report, zero_shot=perfect, adapted=perfect, headline="No difference found.")
    assert "None." in render_stream_report(equal)


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_a_short_stream_has_a_page_too(n):
    assert Balance(render_stream_report(stream_report(n=n, names=["a", "b"])))


# -- pictures -------------------------------------------------------------------------------------------------------


def test_changed_answers_are_spread_over_the_stream_and_missing_pictures_are_counted(report):
    drawn = []

    def draw(number, alt, mark):
        drawn.append((number, alt))
        return None if len(drawn) % 4 == 0 else picture(np.zeros((8, 8), np.uint8), alt, mark)

    page = render_stream_report(replace(report, picture=draw))
    old, new = right_of(report.zero_shot), right_of(report.adapted)
    shown = [*spread(np.flatnonzero(new > old), 12), *spread(np.flatnonzero(old > new), 12)]
    order, labels = report.zero_shot.order, report.zero_shot.labels
    assert drawn == [(order[at], NAMES[labels[at]]) for at in shown]
    assert page.count("<img") == page.count("<figure>") == len(shown) - len(shown) // 4
    assert "3 of the 12 pictures could not be read." in page


def test_without_pictures_the_page_says_so(page):
    assert "<img" not in page
    assert "made without pictures" in page


@pytest.mark.parametrize(
    "image",
    [
        Image.new("L", (28, 28), 9),
        Image.new("RGBA", (640, 480), (200, 0, 0, 0)),
        Image.new("P", (30, 900)),
        noise(96, 96),
    ],
    ids=["grey", "transparent", "narrow", "noise"],
)
def test_a_thumbnail_is_small_whatever_the_picture(image):
    for content in (encoded(image.convert("RGB")), encoded(image, format="PNG")):
        html = thumbnail(content, 'a "<cat>"', "mark")
        assert len(html) < 40_000
        assert 'width="96" height="96" alt="a &quot;&lt;cat&gt;&quot;"' in html
        assert Balance(html)


def test_pictures_are_read_from_the_source_when_they_are_drawn(tmp_path):
    paths = [tmp_path / name for name in ("a.png", "gone.png", "a.xyz", "broken.xyz")]
    paths[0].write_bytes(encoded(noise(50, 40), format="PNG"))
    np.savetxt(paths[2], 1e30 * np.random.default_rng(1).random((500, 3)))
    paths[3].write_bytes(b"no points")
    samples = [SampleFile(path, path.name) for path in paths]
    images, clouds = pictures_of(samples, IMAGES), pictures_of(samples, CLOUDS)
    assert [images(0, "a", "").count("data:image/jpeg"), clouds(2, "a", "").count("data:image/png")] == [1, 1]
    assert [draw(number, "", "") for draw, number in ((images, 1), (images, 2), (clouds, 3), (clouds, 1))] == [None] * 4
    assert pictures_of(samples, Modality("signal", frozenset())) is None


def test_what_is_no_picture_or_costs_too_much_has_no_thumbnail(monkeypatch):
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
    assert thumbnail(b"no picture", "") is None
    assert thumbnail(png(60_000, 60_000), "") is None


# -- what users write -----------------------------------------------------------------------------------------------

HOSTILE = [
    "<script>hacked = 1</script>",
    '"><img src=x onerror="hacked = 1">',
    "x" * 300,
    "'" * 300,
    "שלום עולם",
    "a\u202eb",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A page of 1,000 classes with names of all kinds, as many pictures as there can be, and the file it is in."""
    names = [f"{HOSTILE[number % len(HOSTILE)]}{number}" for number in range(1000)]
    content = encoded(noise(96, 96))
    report = stream_report(
        n=50_000, samples=50_000, names=names, picture=lambda _, alt, mark: thumbnail(content, alt, mark)
    )
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    path.write_text(
        render_stream_report(replace(report, title=HOSTILE[0], kicker=HOSTILE[1], note="\udce9" + HOSTILE[4])),
        encoding="utf-8",
    )
    return path


def test_a_page_of_a_thousand_hostile_classes_is_small_and_has_one_script(hostile):
    page = hostile.read_text(encoding="utf-8")
    assert hostile.stat().st_size < 2_000_000
    assert (page.count("<script"), page.count("<figure>"), page.count("<img")) == (1, 24, 24)
    assert "x" * 81 not in page
    assert "\u202e" not in page
    assert_loads_nothing(page)
    assert Balance(page)


@needs_browser
@pytest.mark.parametrize(
    ("width", "media"),
    [(1280, {}), (PHONE, {}), (1280, {"color_scheme": "dark"}), (800, {"media": "print", "color_scheme": "dark"})],
    ids=["desktop", "phone", "dark", "print"],
)
def test_a_browser_shows_the_whole_page_asks_for_nothing_and_runs_nothing_foreign(
    hostile, page, report, width, media, tmp_path
):
    plain = tmp_path / "plain.html"
    plain.write_text(page, encoding="utf-8")
    with browser() as opened:
        view = opened.new_page(viewport={"width": width, "height": 800})
        view.emulate_media(**media)
        asked, faults = [], []
        view.on("request", lambda request: asked.append(request.url))
        view.on("pageerror", lambda error: faults.append(str(error)))
        view.on("console", lambda message: faults.append(message.text))
        for path in (hostile, plain):
            view.goto(path.as_uri())
            assert view.evaluate(FAULTS) == []
            assert view.evaluate("typeof hacked") == "undefined"
        assert [one for one in asked if not one.startswith("data:")] == [hostile.as_uri(), plain.as_uri()]
        assert faults == []  # such as a script that the page's policy refuses
        assert view.inner_text("h1").replace("\N{NO-BREAK SPACE}", " ") == report.headline
        names = [text.partition(" ")[0] for text in view.locator(".legend > span:not(.where)").all_inner_texts()]
        assert names == ["zero-shot", "wpta", "tda"]
        ground = view.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(20, 23, 26)") == (media == {"color_scheme": "dark"})


@needs_browser
def test_pointing_at_the_curves_shows_the_accuracies_there(page, said, tmp_path):
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with browser() as opened:
        view = opened.new_page(viewport={"width": 1280, "height": 800})
        view.goto((tmp_path / "report.html").as_uri())
        view.locator(".drawing").scroll_into_view_if_needed()
        box = view.locator(".drawing").bounding_box()
        final = view.inner_text(".legend")
        view.mouse.move(box["x"] + 1, box["y"] + 50)
        begin = view.inner_text(".legend").replace("\N{NO-BREAK SPACE}", " ")
        assert begin != final
        at, *lines = said.values
        assert any(all(f"{line[i]:.2f} %" in begin for line in lines) for i in range(3))
        assert f"after {at[1]} images" in begin or f"after {at[0]} images" in begin
        view.mouse.move(0, 0)
        assert view.inner_text(".legend") == final
