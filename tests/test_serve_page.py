"""The page of `pta serve` in a real browser, with a real service behind it."""

import re
from itertools import count
from urllib.parse import urlsplit

import numpy as np
import pytest
from pages import browser as open_browser
from pages import needs_browser
from prefix_proxy import prefix_proxy
from processes import PATIENCE
from serve_load import TOKEN, Server

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect
expect.set_options(timeout=1000 * PATIENCE)
pytestmark = needs_browser

CLASSES, DIM = 60, 16
RNG = np.random.default_rng(1)
ANCHORS = RNG.standard_normal((CLASSES, DIM)).astype(np.float32)
NAMES = [f"bird {number}" for number in range(CLASSES)]


@pytest.fixture(scope="module")
def feature_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "birds.npz"
    np.savez(path, image_features=ANCHORS[:1], text_features=ANCHORS, classnames=np.array(NAMES))
    return path


@pytest.fixture(scope="module")
def server(feature_file):
    with Server(feature_file.parent / "own", "--features-only", str(feature_file), "--method", "pta") as server:
        yield server


@pytest.fixture
def stream(server, number=count()):  # noqa: B008 every test has a stream of its own
    name = f"test-{next(number)}"
    server.ask("PUT", f"/streams/{name}")
    return name


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def visit(browser):
    """Opens an address; in the end nothing was asked of other hosts, and the console has no error but the expected."""
    pages, requests, errors = [], [], []

    def visit(address, *, width=1200, **options):
        page = browser.new_context(viewport={"width": width, "height": 900}, **options).new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        page.requests, page.errors = requests, errors
        pages.append(page)
        return page

    yield visit
    hosts = {urlsplit(page.url).netloc for page in pages}
    for page in pages:
        page.context.close()
    assert {urlsplit(url).netloc for url in requests} <= hosts
    assert errors == []


@pytest.fixture
def page(visit, server, stream):
    """The page of a stream that has learned nothing."""
    return watching(visit(link(server)), stream)


def address(server):
    return f"http://127.0.0.1:{server.port}/"


def link(server):
    return f"{address(server)}#token={TOKEN}"


def watching(page, stream):
    page.get_by_label("Stream").select_option(stream)
    expect(page.get_by_role("heading", level=1)).to_have_text(stream)
    return page


def send(server, stream, samples, source=None):
    """One request per sample, each learned."""
    for _ in range(samples):
        ask(server, stream, near(RNG.integers(CLASSES, size=1), noise=1), source)


def ask(server, stream, features, source=None):
    """One request, learned."""
    tensor = {"name": "features", "datatype": "FP32", "shape": features.shape, "data": features.ravel().tolist()}
    parameters = {"stream": stream, "learn": True} | ({"source": source} if source else {})
    server.ask("POST", "/v2/models/pta/infer", {"inputs": [tensor], "parameters": parameters})


def near(labels, noise=0.3):
    """Samples near the anchors of these classes."""
    return ANCHORS[labels] + noise * RNG.standard_normal((len(labels), DIM)).astype(np.float32)


def send_usual(server, stream, requests=12):
    """Requests of 64 samples from three sources."""
    for number in range(requests):
        ask(server, stream, near(RNG.integers(CLASSES, size=64)), f"door {number % 3}")


def confirm(page, concerned):
    """Agree to the question that is asked, which must name the number of samples."""
    expect(page.locator("#concerned")).to_have_text(f"{concerned} concerned.")
    page.locator("#agreed").click()
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_figures_move_while_a_client_sends(page, server, stream):
    expect(page.locator("#connection")).to_have_text("live")
    for learned in (30, 60):
        send(server, stream, 30, "door")
        expect(page.locator("#answered")).to_have_text(str(learned))
        expect(page.locator("#position")).to_have_text(str(learned))
        expect(page.locator("#sources tbody tr")).to_have_text([re.compile(rf"door\s*{learned}")])
    expect(page.locator("#rate")).not_to_have_text("0.0")
    for figure in ("p50", "p99", "changed-100", "changed-1000", "changed-all", "entropy-adapted", "entropy-mean"):
        expect(page.locator(f"#{figure}")).to_have_text(re.compile(r"\d"))
    summary = server.ask("GET", f"/streams/{stream}")
    touched = max(summary["classes"], key=lambda one: (one["touches"], one["answers"]))
    row = page.locator("#classes tbody tr").first
    figures = [touched["name"], str(touched["touches"]), str(touched["answers"]), f"{touched['cosine']:.3f}"]
    expect(row.locator("th, td:not(.way)")).to_have_text(figures)
    widths = page.locator(".bar rect").evaluate_all(
        "(bars) => bars.map((bar) => parseFloat(bar.getAttribute('width')))"
    )
    assert max(widths) == 100
    assert "ccuracy" not in page.content()


def test_the_health_of_a_stream_is_shown(page, server, stream):
    send(server, stream, 70)
    expect(page.locator("#alarms")).to_have_text("No alarm stands.")
    expect(page.locator("#last-answers tbody tr")).to_have_count(20)
    for figure in ("confidence", "cosine", "changed", "ratio", "order"):
        expect(page.locator(f"#health-{figure}")).to_have_text(re.compile(r"\d"))
        expect(page.locator(f"#{figure}-curve polyline.adapted")).to_have_attribute("points", re.compile(r"\d,"))
    page.locator("#shadow").click()
    confirm(page, "0 samples")
    expect(page.locator("#state")).to_contain_text("Zero-shot's answers are given.")


def asked_by(page, name):
    """The question of the button with this name and its consequence; the answer is no."""
    page.get_by_role("button", name=name, exact=True).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    told = page.locator("#question").inner_text(), page.locator("#consequence").inner_text()
    page.get_by_role("button", name="Cancel").click()
    return told


def test_foreign_input_is_shown_with_the_ways_to_react(page, server, stream):
    send_usual(server, stream, 4)
    expect(page.locator("#untested")).to_contain_text("foreign-input: no reference yet")
    expect(page.locator(".band")).to_have_count(0)
    send_usual(server, stream, 8)
    expect(page.locator("#untested")).to_be_empty()
    for figure in ("confidence", "cosine"):
        expect(page.locator(f"#{figure}-curve .band")).to_have_count(1)
        expect(page.locator(f"#{figure}-band")).to_have_text(re.compile(r"; reference [\d.]+.* to [\d.]+"))
    for _ in range(6):
        ask(server, stream, RNG.standard_normal((64, DIM)).astype(np.float32), "door 1")
    alarm = page.locator("#standing tr").filter(has_text="foreign-input, after ")
    expect(alarm).to_contain_text("zero-shot is less sure than on the reference")
    expect(page.locator("#alarms")).to_contain_text("stand")
    for figure in ("confidence", "cosine", "changed", "ratio", "order"):
        expect(page.locator(f"#{figure}-curve .alarm title").first).to_contain_text("foreign-input, after ")
        expect(page.locator(f"#{figure}-curve")).to_have_attribute("aria-label", re.compile("less sure"))
    (row,) = (
        row for row in server.ask("GET", f"/streams/{stream}")["health"]["alarms"] if row["kind"] == "foreign-input"
    )
    assert asked_by(page, "foreign-input: Freeze…")[0] == f"Freeze {stream}?"
    assert asked_by(page, "foreign-input: Answer with zero-shot…")[0] == f"Answer with zero-shot in {stream}?"
    question, consequence = asked_by(page, "foreign-input: Rewind to before it…")
    assert question == f"Rewind {stream}?"
    assert f"goes back to sequence {row['sequence'] - 1:,}." in consequence
    page.get_by_role("button", name="foreign-input: Freeze…").click()
    confirm(page, "0 samples")
    expect(page.get_by_role("button", name="foreign-input: Freeze…")).to_be_disabled()
    page.get_by_role("button", name="foreign-input: Rewind to before it…").click()
    page.locator("#agreed").click()
    expect(page.locator("#history tbody th").first).to_have_text(f"Rewind to {row['sequence'] - 1:,}")
    expect(alarm).to_be_visible()  # a rewind leaves it


def test_the_source_of_a_flood_can_be_unlearned_at_its_alarm(page, server, stream):
    send_usual(server, stream, 6)
    for _ in range(3):
        ask(server, stream, near(np.zeros(64, int), 0.05), "flood <1>")
    expect(page.locator("#standing tr").filter(has_text="one-source")).to_contain_text("flood <1> gave")
    page.get_by_role("button", name="one-source: Un-learn flood <1>…").click()
    expect(page.locator("#question")).to_have_text(f"Un-learn flood <1> in {stream}?")
    confirm(page, "192 samples")
    expect(page.locator("#position")).to_have_text("384")


def test_foreign_input_is_not_tested_while_samples_come_sorted(page, server, stream):
    send_usual(server, stream)
    for label in range(8):
        ask(server, stream, near(np.full(64, label)))
    expect(page.locator("#untested")).to_have_text(
        "foreign-input: cannot be tested while samples come sorted by class."
    )
    expect(page.locator("#standing tr").filter(has_text="sorted, after ")).to_contain_text("use wpta")


def test_a_method_that_learns_by_weights_shows_their_sums(visit, feature_file, tmp_path):
    with Server(tmp_path, "--features-only", str(feature_file), "--method", "wpta") as server:
        page = watching(visit(link(server)), "default")
        send(server, "default", 30)
        expect(page.locator("#position")).to_have_text("30")
        heaviest = max(
            server.ask("GET", "/streams/default")["classes"], key=lambda one: (one["weight"], one["answers"])
        )
        assert heaviest["touches"] is None
        assert heaviest["weight"] > 0
        row, cosine = page.locator("#classes tbody tr").first, f"{heaviest['cosine']:.3f}"
        figures = [heaviest["name"], f"{heaviest['weight']:,.1f}", str(heaviest["answers"]), cosine]
        expect(row.locator("th, td:not(.way)")).to_have_text(figures)
        expect(page.locator("#classes thead th")).to_have_text(["class", "", "weight", "answers", "cosine"])
        expect(page.locator("#watch")).not_to_contain_text("touch")
        page.context.close()


def test_a_stream_is_frozen_and_thawed_after_a_question(page, server, stream):
    page.get_by_role("button", name="Freeze…").click()
    page.get_by_role("button", name="Cancel").click()
    assert not server.ask("GET", f"/streams/{stream}")["frozen"]
    page.get_by_role("button", name="Freeze…").click()
    confirm(page, "0 samples")
    expect(page.locator("#state")).to_contain_text("Frozen")
    assert server.ask("GET", f"/streams/{stream}")["frozen"]
    page.get_by_role("button", name="Thaw…").click()
    confirm(page, "0 samples")
    expect(page.locator("#state")).to_contain_text("Learning")


def test_a_rewind_takes_samples_back_and_undo_brings_them_again(page, server, stream):
    send(server, stream, 12)
    expect(page.locator("#position")).to_have_text("12")
    page.get_by_label("Sequence", exact=True).fill("5")
    page.locator("#rewind").click()
    confirm(page, "7 samples")
    expect(page.locator("#position")).to_have_text("5")
    expect(page.locator("#history tbody th").first).to_have_text("Rewind to 5")
    page.locator("#undo").click()
    confirm(page, "7 samples")
    expect(page.locator("#position")).to_have_text("12")
    expect(page.locator("#history tbody th")).to_contain_text(["Undo", "Rewind to 5 (lifted)"])
    page.locator("#undo").click()
    expect(page.locator("#notice")).to_contain_text("undo")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert len(page.errors) == 1  # the refusal, which a browser writes to its console
    page.errors.clear()


def test_one_source_is_unlearned(page, server, stream):
    send(server, stream, 4, "door <1>")
    send(server, stream, 6, "roof")
    page.get_by_role("button", name="Un-learn door <1>…").click()
    expect(page.locator("#question")).to_have_text(f"Un-learn door <1> in {stream}?")
    confirm(page, "4 samples")
    expect(page.locator("#position")).to_have_text("6")
    expect(page.locator("#history tbody th").first).to_have_text("Un-learn door <1>")


def test_labels_and_whose_answers_are_given_are_shown(page, server, stream):
    send(server, stream, 5)
    labels = [{"sequence": 2, "label": NAMES[3]}, {"sequence": 4, "label": None}]
    server.ask("POST", f"/streams/{stream}/label", {"labels": labels})
    rows = page.locator("#history tbody tr")
    expect(rows.filter(has_text="Label").first).to_be_visible()
    expect(rows.filter(has_text="Labels learned")).to_be_visible()
    expect(page.locator("#position")).to_have_text("4")
    server.ask("POST", f"/streams/{stream}/answers", {"answers": "zero-shot"})
    expect(page.locator("#state")).to_contain_text("Zero-shot's answers are given.")
    page.get_by_role("button", name="Undo").click()
    confirm(page, "2 samples")
    expect(page.locator("#position")).to_have_text("5")
    expect(rows.filter(has_text="Label (lifted)")).to_be_visible()


def test_without_login_nothing_is_shown_and_nothing_is_changed(visit, server, stream):
    page = visit(address(server))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.locator("#watch")).to_be_hidden()
    assert stream not in page.content()
    page.get_by_label("Token").fill("a token of another service")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    freeze = f"fetch('streams/{stream}/freeze', {{method: 'POST', headers: {{'X-PTA': '1'}}}}).then((a) => a.status)"
    assert page.evaluate(freeze) == 401
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_label("Token").press("Enter")
    watching(page, stream)
    assert page.evaluate(freeze.replace("'X-PTA': '1'", "")) == 401
    assert not server.ask("GET", f"/streams/{stream}")["frozen"]
    assert all("401" in error for error in page.errors)
    page.errors.clear()


def test_the_token_of_a_login_link_is_neither_sent_in_an_address_nor_kept(visit, server, stream):
    page = watching(visit(link(server)), stream)
    assert page.url == address(server)
    assert not any(TOKEN in url for url in page.requests)
    assert page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})") == "{}"
    page.reload()
    watching(page, stream)


def test_everything_can_be_done_with_the_keyboard(page, server, stream):
    send(server, stream, 3, "door")
    unlearn = page.get_by_role("button", name="Un-learn door…")
    expect(unlearn).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        if unlearn.evaluate("(button) => button === document.activeElement"):
            break
    expect(unlearn).to_be_focused()
    send(server, stream, 3, "roof")
    send(server, stream, 3, "roof")  # now the larger source, in the row above
    expect(page.locator("#sources tbody th")).to_have_text(["roof", "door"])
    expect(unlearn).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(unlearn).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#position")).to_have_text("6")
    page.locator("#moment").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#sequence")).to_have_value("8")
    expect(page.locator("#rewind")).to_be_enabled()


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 320)])
def test_a_narrow_screen_need_not_scroll_sideways(visit, server, stream, scheme, width):
    send(server, stream, 5, "a-source-with-a-name-that-is-longer-than-any-narrow-screen-is-wide.example.org")
    server.ask("POST", f"/streams/{stream}/rewind", {"sequence": 2})
    page = watching(visit(link(server), width=width, color_scheme=scheme), stream)
    expect(page.locator("#history tbody tr")).not_to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.locator("#undo").click()
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


@pytest.mark.parametrize("width", [320, 570])
def test_tiles_are_two_in_a_row_on_a_narrow_screen(visit, server, stream, width):
    send(server, stream, 1)
    tiles = watching(visit(link(server), width=width), stream).locator(".five div")
    expect(tiles.first).to_be_visible()
    first, second, third, fourth, last = tiles.evaluate_all(
        "tiles => tiles.map(one => one.getBoundingClientRect().top)"
    )
    assert first == second < third == fourth < last


def test_of_many_classes_the_most_touched_are_shown_and_others_are_found_by_name(page, server, stream):
    send(server, stream, 3)
    names = page.locator("#classes tbody th")
    expect(names).to_have_count(20)
    page.get_by_label("Search").fill("BIRD 5")
    expect(names).to_have_count(11)  # 5 and 50 to 59
    page.get_by_label("Search").fill("no such")
    expect(names).to_have_count(0)
    expect(page.locator("#more-classes")).to_have_text("No class has this in its name.")


@pytest.mark.extensive
def test_it_works_behind_a_proxy_that_takes_a_prefix_off(visit, feature_file, tmp_path):
    with (
        Server(tmp_path, "--features-only", str(feature_file), "--root-path", "/team/pta") as server,
        prefix_proxy("/team/pta", server.port) as port,
    ):
        page = watching(visit(f"http://127.0.0.1:{port}/team/pta/#token={TOKEN}"), "default")
        expect(page.locator("#connection")).to_have_text("live")
        page.get_by_role("button", name="Freeze…").click()
        confirm(page, "0 samples")
        expect(page.locator("#state")).to_contain_text("Frozen")
        page.context.close()
