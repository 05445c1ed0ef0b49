"""The page of `pta audit` in a real browser, driven to the verdict; it does not say which answer is whose."""

import http.client
import json
import re
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from audits import read_csv, said_about, write_rows
from pages import browser as open_browser
from pages import needs_browser
from PIL import Image
from processes import PATIENCE, wait_for

from pta.measure.audit import page_server
from pta.measure.audit.audit import Audit
from pta.measure.audit.label_file import Session
from pta.measure.audit.page_server import PageServer
from pta.measure.audit.pictures import find_pictures
from pta.measure.audit.population import Draws
from pta.measure.audit.row_reading import read_population

KEYS = {"first": "1", "second": "2"}
TELLING = re.compile(r"adapt|zero|points|helps|hurts|interval|photos/|\d\.jpg", re.IGNORECASE)


@contextmanager
def serving(folder, *, draws=None, **more):
    """The page of an audit of a folder's rows."""
    draws = draws or Draws(read_population(folder / "rows.jsonl"), 1)
    session = Session(Audit(draws, draws.population.class_names, **more), folder / "labels.csv", folder / "audits.json")
    samples = find_pictures([str(folder / row.key) for row in draws.rows], None)
    with PageServer(session, samples, audits=lambda: 1) as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    write_rows(tmp_path)
    return tmp_path


@pytest.fixture
def server(folder):
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with open_browser() as browser:
        yield browser


@pytest.fixture
def visit(browser):
    """Opens an address; in the end nothing was asked of other hosts, and the console has no error."""
    contexts, requests, errors = [], [], []

    def visit(address, **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        requests.append(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    schemes = {urlsplit(url).scheme for url in requests}
    assert schemes <= {"http", "blob", "data"}
    assert len({urlsplit(url).netloc for url in requests if url.startswith("http:")}) == 1
    assert errors == []


def ready(page, labels):
    """Wait until so many labels were given and the next picture is there."""
    from playwright.sync_api import expect

    expect(page.locator("#progress")).to_contain_text(f"{labels} labelled", timeout=1000 * PATIENCE)
    expect(page.locator("[data-said=stop]")).to_be_enabled(timeout=1000 * PATIENCE)


def drive(page, server, act):
    """Answer by the truth until the verdict; `act` is given what to say."""
    draws, labels = server.session.audit.draws, 0
    ready(page, labels)
    assert page.evaluate("document.getElementById('picture').naturalWidth") == 48
    while True:
        assert not TELLING.search(page.content()), page.content()
        assert (page.inner_text("#first"), page.inner_text("#second")) == draws.answers(labels)
        act(said_about(draws, labels))
        labels += 1
        wait_for(lambda: len(server.session.audit) == labels)  # noqa: B023 it is waited for at once
        if server.session.audit.ending is not None:
            break
        ready(page, labels)
    page.wait_for_selector("#end h1")
    assert "Adaptation helps: gain over zero-shot between" in page.inner_text("#end")
    assert server.is_over.is_set()
    return labels


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_keys_lead_to_the_verdict(visit, server, folder, scheme):
    page = visit(server.link, viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    labels = drive(page, server, lambda said: page.keyboard.press(KEYS[said]))
    draws = server.session.audit.draws
    assert [row["path"] for row in read_csv(folder / "labels.csv")] == [row.key for row in draws.rows[:labels]]
    assert page.inner_text("#progress") == "The audit is over. You can close this page."


@needs_browser
def test_touch_leads_to_the_verdict_on_a_phone(visit, server):
    page = visit(server.link, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    ready(page, 0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for button in page.locator("button:visible").all():
        box = button.bounding_box()
        assert box["height"] >= 44
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] + box["height"] <= 844
    drive(page, server, lambda said: page.tap(f"[data-said={said}]"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@needs_browser
def test_every_key_does_what_it_says(visit, server, folder):
    page, draws = visit(server.link), server.session.audit.draws
    ready(page, 0)
    page.keyboard.press("Backspace")  # nothing to go back to
    for labels, key in enumerate(["b", "?", "1"], 1):
        page.keyboard.press(key)
        ready(page, labels)
    for labels, key in ((2, "Backspace"), (1, "z")):
        page.keyboard.press(key)
        ready(page, labels)
    other = next(name for name in draws.population.class_names if name not in draws.answers(1))
    for labels, choice in ((2, other), (3, "none"), (4, "")):
        page.keyboard.press("n")
        page.wait_for_selector("#which[open]")
        page.select_option("#label", choice)
        page.keyboard.press("Enter")
        ready(page, labels)
    page.keyboard.press("n")
    page.keyboard.press("Escape")
    page.wait_for_selector("#which", state="hidden")
    page.keyboard.press("s")
    page.wait_for_selector("#end h1")
    assert page.inner_text("#end h1").startswith("Undecided")
    told = [(row["answer"], row["label"]) for row in read_csv(folder / "labels.csv")]
    assert told == [("both", ""), ("neither", other), ("neither", "none"), ("neither", "")]


@needs_browser
def test_the_name_stands_where_no_picture_can_be_shown(visit, folder):
    for path in (folder / "photos").rglob("*.jpg"):
        path.write_bytes(b"OFF 0 0 0")
    with serving(folder) as server:
        page = visit(server.link)
        ready(page, 0)
        assert page.inner_text("#name").endswith(server.session.audit.draws.rows[0].key)
        assert page.locator("#picture").is_hidden()


@needs_browser
def test_a_page_says_so_when_the_command_has_ended(browser, folder):
    with serving(folder) as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.link)
        ready(page, 0)
    page.keyboard.press("1")
    page.get_by_text("run the command again to go on").wait_for(timeout=1000 * PATIENCE)
    context.close()


# -- what the page is sent ---------------------------------------------------------------------------------------------


def ask(server, method, route, body=None, *, token=None, host=None):
    """Status, headers and content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
    headers = {"Host": server.host if host is None else host}
    try:
        connection.request(method, f"/{server.token if token is None else token}/{route}", body, headers)
        reply = connection.getresponse()
        return reply.status, dict(reply.headers), reply.read()
    finally:
        connection.close()


def answer(server, said, **more):
    number = len(server.session.audit) + 1
    return ask(server, "POST", "answer", json.dumps({"number": number, "said": said, **more}))


class SwappedDraws(Draws):
    """The same pictures and answers on the screen, with both sides swapped behind it."""

    def adapted_first(self, draw):
        return not super().adapted_first(draw)


def test_nothing_that_is_sent_depends_on_whose_an_answer_is(folder):
    population = read_population(folder / "rows.jsonl")
    swapped = [replace(row, adapted=row.zero_shot, zero_shot=row.adapted) for row in population.changed]
    sent = []
    for draws in (Draws(population, 1), SwappedDraws(replace(population, changed=tuple(swapped)), 1)):
        with serving(folder, draws=draws) as server:
            (folder / "labels.csv").unlink(missing_ok=True)
            replies = [ask(server, "GET", route) for route in ("", "page.js", "page.css")]
            for _ in range(8):
                replies += [ask(server, "GET", "state"), ask(server, "GET", f"picture/{len(server.session.audit) + 1}")]
                replies.append(answer(server, ("first", "both")[len(server.session.audit) % 2]))
        sent.append([(status, {**headers, "Date": ""}, content) for status, headers, content in replies])
    assert sent[0] == sent[1]
    assert not any(TELLING.search(content.decode("utf-8", "ignore")) for _, _, content in sent[0][3::3])


def test_an_answer_is_json_of_counts_and_of_two_answers_alone(server):
    status, headers, content = ask(server, "GET", "state")
    state = json.loads(content)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert state.keys() == {"number", "answers", "others", "labels", "most"}
    assert state["others"] == sorted(state["others"])
    assert not {*state["answers"]} & {*state["others"]}


def test_pictures_are_jpeg_of_a_moderate_size_and_never_cached(folder):
    with serving(folder) as server:
        drawn = folder / server.session.audit.draws.rows[0].key
        Image.new("RGBA", (1500, 2500), "red").save(drawn, "PNG")
        status, headers, content = ask(server, "GET", "picture/1")
    assert (status, headers["Content-Type"], headers["Cache-Control"]) == (200, "image/jpeg", "no-store")
    (folder / "shown.jpg").write_bytes(content)
    with Image.open(folder / "shown.jpg") as shown:
        assert shown.format == "JPEG"
        assert max(shown.size) == 1200


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", "", "[::1]"])
def test_another_host_is_refused(server, host):
    for method, route in (("GET", ""), ("GET", "state"), ("POST", "answer")):
        assert ask(server, method, route, host=host)[0] == 403
    assert len(server.session.audit) == 0


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "%00", "..", "."])
def test_another_token_is_refused(server, token):
    for method, route in (("GET", ""), ("GET", "picture/1"), ("POST", "answer")):
        assert ask(server, method, route, token=token)[0] == 403


@pytest.mark.parametrize(
    "route",
    [
        *("picture/2", "picture/0", "picture/-1", "picture/1e3", "picture/01", "picture/999999999999", "picture/1/"),
        *("picture/../../etc/passwd", "picture/%2e%2e/page.js", "../page.js", "page.py", "picture//etc/passwd"),
        *(
            "picture/1?path=/etc/passwd",
            "picture/photos/bag/0034.jpg",
            "labels.csv",
            "state?x",
            "answer",
            "picture/%D9%A3",
        ),
    ],
)
def test_only_drawn_numbers_lead_to_pictures(server, route):
    assert ask(server, "GET", route)[::2] in ((404, b"there is nothing here\n"), (404, b"this was not drawn\n"))


def test_each_answer_draws_one_more_picture(server):
    for drawn in range(1, 4):
        assert ask(server, "GET", f"picture/{drawn}")[0] == 200
        assert ask(server, "GET", f"picture/{drawn + 1}")[0] == 404
        assert answer(server, "both")[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("x", 400),
        ("[]", 400),
        ("{}", 400),
        ("[" * 4000, 400),
        ('{"number": "1", "said": "first"}', 400),
        ('{"number": true, "said": "first"}', 400),
        ('{"number": 1, "said": 3}', 400),
        ('{"number": 1, "said": "third"}', 400),
        ('{"number": 1, "said": "both", "label": "bag"}', 400),
        ('{"number": 1, "said": "neither", "label": "cow"}', 400),
        ('{"number": 9, "said": "first"}', 200),  # a key pressed twice; nothing changes
    ],
)
def test_what_is_not_an_answer_changes_nothing(server, folder, body, status):
    assert ask(server, "POST", "answer", body)[0] == status
    assert len(server.session.audit) == 0
    assert not (folder / "labels.csv").exists()


def raw(server, content):
    """All that a request of these bytes is answered with."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE) as connection:
        received = b""
        with suppress(ConnectionError):
            connection.sendall(content)
            while part := connection.recv(2**16):
                received += part
        return received


def test_large_bodies_and_long_heads_are_refused(server):
    start = f"POST /{server.token}/answer HTTP/1.1\r\nHost: {server.host}\r\n".encode()
    assert b" 413 " in raw(server, start + b"Content-Length: 999999999\r\n\r\n")
    assert b" 411 " in raw(server, start + b"Content-Length: x\r\n\r\n")
    assert b" 411 " in raw(server, start + b"Transfer-Encoding: chunked\r\n\r\n")
    assert b" 403 " in raw(server, start + f"Host: {server.host}\r\n\r\n".encode())
    for head in (b"GET /" + b"a" * 2**17, start + b"X: 1\r\n" * 300 + b"\r\n"):
        assert b"200 OK" not in raw(server, head)
    assert ask(server, "GET", "state")[0] == 200


def test_idle_and_slow_connections_are_few_and_end(server, monkeypatch):
    monkeypatch.setattr(page_server, "_SECONDS", 0.3)
    before = threading.active_count()
    waiting = [socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE) for _ in range(60)]
    for number, connection in enumerate(waiting):
        if number % 2:
            connection.sendall(b"GET / HT")
    assert ask(server, "GET", "state")[0] == 200
    assert threading.active_count() - before <= 2 * page_server._CONNECTIONS + 2  # each with its deadline
    for connection in waiting:
        with suppress(ConnectionError):
            assert connection.recv(10) == b""
        connection.close()


def test_closing_the_server_ends_its_threads_and_connections(folder):
    before = threading.active_count()
    with serving(folder) as server:
        idle = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE)
        assert ask(server, "GET", "state")[0] == 200
    with idle, suppress(ConnectionError):
        assert idle.recv(1) == b""
    wait_for(lambda: threading.active_count() == before)


def test_the_command_serves_the_page_and_ends_with_the_verdict(commands, folder):
    commands.start("audit", "rows.jsonl", folder=folder)
    address = urlsplit(re.search(r"http://\S+", commands.stderr.readline())[0])
    draws, state = Draws(read_population(folder / "rows.jsonl"), 1), {}
    while "verdict" not in state:
        number = state.get("number", 1)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE)
        said = {"number": number, "said": said_about(draws, number - 1)}
        connection.request("POST", f"{address.path}answer", json.dumps(said))
        state = json.loads(connection.getresponse().read())
        connection.close()
    assert commands.wait() == 0
    assert commands.stdout.read().splitlines()[:-1] == state["verdict"]
