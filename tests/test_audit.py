"""`pta audit`: the interval holds, the population is fixed, labels survive a kill, and every mistake is one line."""

import itertools
import json
import re
import signal
from dataclasses import replace
from types import SimpleNamespace

import audit as benchmark
import numpy as np
import pytest
from audit_loop import audit_loop, capitals_loop
from audits import NAMES, read_csv, said_about, truth_of, write_csv, write_rows
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_for

from pta.errors import UnreadableFile
from pta.measure.audit.audit import Audit, Given
from pta.measure.audit.gain_sequence import LARGEST, GainSequence, log_capital, sequence_of
from pta.measure.audit.pictures import find_pictures
from pta.measure.audit.population import ChangedRow, Draws, Population, draw_order
from pta.measure.audit.row_reading import read_population

VALUES = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=24)

# -- the construction --------------------------------------------------------------------------------------------------


@given(VALUES)
def test_the_interval_is_that_of_the_loop_over_all_totals(values):
    sequence, changed = sequence_of([], len(values)), len(values)
    for x, inside in zip(values[:-1], audit_loop(values, changed), strict=False):
        sequence = sequence.after(x)
        assert list(range(sequence.low, sequence.high + 1)) == inside
    sequence = sequence.after(values[-1])
    assert (sequence.low, sequence.high) == (sum(values), sum(values))


@given(VALUES, st.data())
def test_capital_is_that_of_the_loop(values, data):
    total = data.draw(st.integers(-len(values), len(values)))
    expected = capitals_loop(values, total, len(values))[1:]
    for sign, side in ((1, 0), (-1, 1)):
        found = np.exp(log_capital(np.array(values, float), total, len(values), sign))
        np.testing.assert_allclose(found[: len(expected)], [one[side] for one in expected], rtol=1e-12)


@pytest.mark.parametrize("values", [*itertools.combinations_with_replacement((-1, 0, 1), 5)])
def test_capital_of_the_true_total_is_a_martingale(values):
    orders = [capitals_loop(order, sum(values), len(values)) for order in itertools.permutations(values)]
    np.testing.assert_allclose(np.mean(orders, axis=0), 1, rtol=1e-12)


@pytest.mark.parametrize("shares", [(0.3, 0.5, 0.2), (0.5, 0.0, 0.5), (0.1, 0.8, 0.1), (0.05, 0.15, 0.8)])
def test_the_truth_is_outside_at_any_time_in_at_most_a_twentieth_of_the_audits(shares):
    rng, changed, audits = np.random.default_rng(3), 150, 2000
    values = np.repeat([-1.0, 0.0, 1.0], np.round(np.array(shares) * changed).astype(int))
    draws = rng.permuted(np.tile(values, (audits, 1)), axis=1)
    capital = [log_capital(draws, int(values.sum()), changed, sign) for sign in (1, -1)]
    missed = (np.maximum(*capital) >= LARGEST).any(axis=1).mean()
    assert missed <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / audits)


def test_long_audits_do_not_overflow():
    sequence = sequence_of([0] * 500, changed=10**6)
    assert sequence.side == "undecided"
    assert -(10**6) < sequence.low < sequence.high < 10**6
    one_sided = sequence_of([], changed=30_000)
    for _ in range(500):
        one_sided = one_sided.after(1)
    assert one_sided.low > 20_000
    assert one_sided.ends == (one_sided.low, 30_000)


def test_an_interval_without_totals_has_the_end_of_its_side():
    assert GainSequence(9, (), low=3, high=2).ends == (3, 3)
    assert GainSequence(9, (), low=-2, high=-3).ends == (-3, -3)


def test_the_benchmark_counts_what_the_sequence_says(monkeypatch):
    values, job = np.repeat([-1, 0, 1], [12, 10, 25]), benchmark.Job("x", "y", "clean", "pta")
    monkeypatch.setattr(benchmark, "changed_values", lambda job: (values, 100))
    monkeypatch.setattr(benchmark, "opened", lambda path: SimpleNamespace(name="x"))
    (row,) = benchmark.rows_of(40, job)
    sequences = [sequence_of(values[draw_order(47, seed, "x clean pta")].tolist(), 47) for seed in range(1, 41)]
    for side in ("helps", "hurts", "undecided"):
        assert row[side] == sum(one.side == side for one in sequences)
    labels = sorted(len(one.draws) for one in sequences)
    assert (row["gain"], row["wrong"], row["median_labels"], row["p90_labels"]) == (
        13,
        row["hurts"],
        labels[19],
        labels[35],
    )


# -- the population ----------------------------------------------------------------------------------------------------


def of(*pairs, answered=100):
    rows = [ChangedRow((("path", f"{number}.jpg"),), *pair) for number, pair in enumerate(pairs)]
    return Population("rows.csv", "0" * 64, answered, tuple(rows), ("a", "b", "c"), 0, 0)


def audit_of(changed, **more):
    return Audit(Draws(of(*[("a", "b")] * changed), 1), ("a", "b", "c"), **more)


def with_answers(audit, *answers):
    return replace(audit, given=tuple(map(Given, answers)))


def test_draws_are_a_permutation_that_seed_and_rows_decide():
    orders = {tuple(draw_order(50, seed, digest)) for seed in range(5) for digest in "ab"}
    assert len(orders) == 10
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert draw_order(50, 1, "a") == draw_order(50, 1, "a")


def test_every_row_is_drawn_first_about_equally_often():
    firsts = np.bincount([draw_order(8, seed, "x")[0] for seed in range(4000)], minlength=8)
    assert ((firsts > 400) & (firsts < 600)).all()


def test_each_side_is_first_about_half_of_the_time_and_does_not_depend_on_the_answers():
    draws = Draws(of(*[("a", "b")] * 4000), 5)
    first = [draws.adapted_first(draw) for draw in range(4000)]
    assert 0.46 < np.mean(first) < 0.54
    swapped = Draws(of(*[("b", "a")] * 4000), 5)
    assert first == [swapped.adapted_first(draw) for draw in range(4000)]
    assert [draws.answers(draw)[0] == "a" for draw in range(4000)] == first


ROWS = [
    {"path": "1.jpg", "label": "a", "zero_shot_label": "b"},
    {"path": "2.jpg", "label": "a", "zero_shot_label": "a"},
    {"path": "3.jpg", "label": "", "zero_shot_label": ""},
    {"path": "4.jpg", "label": "a", "zero_shot_label": "b", "learned_label": "b"},
    {"path": "5.jpg", "label": "b", "zero_shot_label": "b", "adapted_label": "c"},
]


def complete(rows):
    columns = {name: "" for row in rows for name in row}
    return [{**columns, **row} for row in rows]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ""])
def test_learned_and_unanswered_rows_are_left_out(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    elif suffix == ".csv":
        write_csv(path, complete(ROWS))
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        path.mkdir()
        rows = [{("key" if name == "path" else name): cell or None for name, cell in row.items()} for row in ROWS]
        for part in (0, 3):
            pq.write_table(pa.Table.from_pylist(complete(rows[part : part + 3])), path / f"{part}-{part + 3}.parquet")
    found = read_population(path)
    assert (found.answered, found.unanswered, found.learned) == (3, 1, 1)
    assert [(row.key, row.adapted, row.zero_shot) for row in found.changed] == [
        ("1.jpg", "a", "b"),
        ("5.jpg", "c", "b"),
    ]
    assert found.class_names == ("a", "b", "c")
    assert found.left_out == " (left out: 1 without an answer and 1 whose label was learned)"
    assert read_population(path).digest == found.digest


def test_rows_of_a_service_keep_id_place_and_sequence(pta, tmp_path):
    rows = [{"id": f"r{n}", "place": n % 2, "sequence": n, "label": "a", "zero_shot_label": "b"} for n in range(30)]
    write_csv(tmp_path / "export.csv", rows)
    done = pta("audit", "export.csv", "--terminal", stdin=b"1\ns\n")
    assert done.returncode == 0, done.stderr
    (label,) = read_csv(tmp_path / "export.csv.labels.csv")
    number = int(label["sequence"])
    assert (label["id"], label["place"]) == (f"r{number}", str(number % 2))
    assert label["answer"] in ("adapted", "zero-shot")
    assert label["label"] == {"adapted": "a", "zero-shot": "b"}[label["answer"]]


# -- the verdict -------------------------------------------------------------------------------------------------------


def test_an_audit_ends_by_verdict_precision_most_and_when_all_are_labelled():
    assert audit_of(50).ending is None
    assert with_answers(audit_of(50), *["adapted"] * 30).ending == "verdict"
    assert with_answers(audit_of(50, precision=99.0), "both").ending == "precision"
    assert with_answers(audit_of(50, precision=1.0), "both").ending is None
    assert with_answers(audit_of(50, most=2), "both", "neither").ending == "most"
    assert with_answers(audit_of(2), "both", "neither").ending == "all"
    assert audit_of(50, is_stopped=True).ending == "stopped"


@pytest.mark.parametrize(("answer", "side", "words"), [("adapted", "helps", "helps"), ("zero-shot", "hurts", "hurts")])
def test_a_verdict_has_the_side_and_the_ends_of_the_sequence(answer, side, words):
    verdict = with_answers(audit_of(50), *[answer] * 12).verdict(audits=1)
    low, high = sequence_of([1 if side == "helps" else -1] * 12, 50).ends
    assert (verdict.side, verdict.interval) == (side, (low, high))  # of 100 answers
    assert f"Adaptation {words}: gain over zero-shot between" in verdict.sentences()[0]
    assert "That the next ones are alike is your assumption." in " ".join(verdict.sentences())


def test_what_the_person_cannot_tell_counts_nothing_and_is_tried_both_ways():
    clear = with_answers(audit_of(60), *["adapted"] * 25, "cannot tell").verdict(1)
    assert clear.stands
    doubtful = with_answers(audit_of(60, most=20), *["cannot tell"] * 14, *["both"] * 6).verdict(1)
    assert (doubtful.side, doubtful.if_wrong, doubtful.if_right) == ("undecided", "hurts", "helps")
    assert "the verdict would be “hurts” or “helps”" in " ".join(doubtful.sentences())


def test_answers_one_by_one_give_the_sequence_of_all():
    audit, answers = audit_of(40), [*["adapted", "zero-shot", "both"] * 4, "adapted"]
    for answer in answers:
        audit = audit.with_answer(Given(answer))
    assert audit._sequence == with_answers(audit_of(40), *answers)._sequence


def test_from_the_second_audit_on_their_number_is_said():
    once, twice = (with_answers(audit_of(9, most=1), "both").verdict(audits).sentences() for audits in (1, 2))
    assert not any("audits of this stream" in one for one in once)
    assert twice[-1].startswith("There were 2 audits of this stream")


# -- the command -------------------------------------------------------------------------------------------------------


def keys_for(draws, count):
    keys = {"first": "1", "second": "2", "neither": "n"}
    return "".join(f"{keys[said_about(draws, draw)]}\n" for draw in range(count)).encode()


@pytest.fixture
def rows(tmp_path):
    return write_rows(tmp_path)


@pytest.fixture
def draws(rows):
    return Draws(read_population(rows), 1)


def test_terminal_and_simulation_give_the_same_verdict(pta, rows, draws):
    def told(*more, stdin=b""):
        done = pta("audit", "rows.jsonl", *more, "--json", "-", stdin=stdin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    here = told("--terminal", stdin=keys_for(draws, len(draws.rows)))
    known = told("--simulate", "truth.csv")
    assert here["verdict"] == "helps"
    assert 5 < here["labels"] < len(draws.rows)
    changes = {"simulated": True}
    assert known == here | changes
    assert told("--simulate", "rows.jsonl.labels.csv") == known
    assert told("--terminal") == here  # nothing is asked any more
    assert all(row["label"] == truth_of(draws.rows[number]) for number, row in enumerate(read_csv_labels(rows)))
    assert told("--simulate", "truth.csv", "--seed", "2")["rows_digest"] == here["rows_digest"]


def read_csv_labels(rows):
    return read_csv(rows.with_name(f"{rows.name}.labels.csv"))


def test_going_back_changes_a_label_and_a_wrong_key_nothing(pta, rows, draws):
    other = next(name for name in NAMES if name not in draws.answers(0))
    done = pta("audit", "rows.jsonl", "--terminal", stdin=f"1\nz\nx\nn cow\nn {other}\nb\nn none\n?\n".encode())
    assert "there is no class 'cow'" in done.stderr
    assert done.stdout.startswith("Undecided")
    kept = [(row["path"], row["answer"], row["label"]) for row in read_csv_labels(rows)]
    said = [("neither", other), ("both", ""), ("neither", "none"), ("cannot tell", "")]
    assert kept == [(draws.rows[at].key, *one) for at, one in enumerate(said)]


def test_another_seed_is_a_second_audit_and_the_verdict_says_so(pta, rows):
    assert "audits of this stream" not in pta("audit", "rows.jsonl", "--terminal", stdin=b"1\n").stdout
    assert "audits of this stream" not in pta("audit", "rows.jsonl", "--terminal", stdin=b"1\n").stdout
    done = pta("audit", "rows.jsonl", "--terminal", "--seed", 2, "--labels", "b.csv", stdin=b"1\n")
    assert "There were 2 audits of this stream" in done.stdout
    assert "audits of this stream" not in pta("audit", "rows.jsonl", "--simulate", "truth.csv").stdout


def test_a_killed_audit_loses_nothing(pta, commands, rows, draws, tmp_path):
    labels, keys = tmp_path / "rows.jsonl.labels.csv", keys_for(draws, 9).splitlines(keepends=True)
    for start in range(0, 9, 3):
        commands.start("audit", "rows.jsonl", "--terminal", folder=tmp_path)
        for done, key in enumerate(keys[start : start + 3], start + 1):
            commands.stdin.write(key)
            wait_for(lambda done=done: labels.exists() and len(read_csv(labels)) == done)
        assert commands.kill() == -signal.SIGKILL
    assert [row["path"] for row in read_csv(labels)] == [row.key for row in draws.rows[:9]]
    done = pta("audit", "rows.jsonl", "--terminal", stdin=keys_for(draws, len(draws.rows))[len(b"".join(keys)) :])
    assert "9 labels; the audit goes on after them" in done.stderr
    assert "Adaptation helps" in done.stdout


def test_two_audits_do_not_write_the_same_labels(pta, commands, rows, tmp_path):
    commands.start("audit", "rows.jsonl", "--terminal", folder=tmp_path)
    assert "1, 2, b both" in commands.stderr.readline()
    done = pta("audit", "rows.jsonl", "--terminal", stdin=b"1\n")
    assert done.returncode == 2
    assert "another process is writing rows.jsonl.labels.csv" in done.stderr
    commands.kill()


def test_pictures_that_have_moved_are_found_in_their_new_folder(pta, rows, tmp_path):
    (tmp_path / "photos").rename(tmp_path / "moved")
    one_line(pta("audit", "rows.jsonl"), r"pictures are missing, first photos/.*: no such file; --pictures")
    one_line(pta("audit", "rows.jsonl", "--pictures", "elsewhere/x"), "no such file or folder: elsewhere/x")
    for path in (tmp_path / "moved" / "bag").iterdir():
        path.unlink()
    one_line(
        pta("audit", "rows.jsonl", "--pictures", "moved"), r"pictures are missing, first photos/bag/.*: not in moved"
    )


def test_a_source_has_the_pictures_by_key_or_below_other_folders(rows, draws, tmp_path):
    keys = [row.key for row in draws.rows]
    contents = [(tmp_path / key).read_bytes() for key in keys]
    moved = str((tmp_path / "photos").rename(tmp_path / "moved"))
    for named in (keys, [key.removeprefix("photos/") for key in keys], [f"/x/{key}" for key in keys]):
        assert [sample.read() for sample in find_pictures(named, moved)] == contents
    with pytest.raises(UnreadableFile, match="1 of 2 pictures are missing, first a/none: not in"):
        find_pictures([keys[0], "a/none"], moved)
    with pytest.raises(UnreadableFile, match="2 of 2 pictures are missing"):
        find_pictures(["a\0b", "x" * 5000], None)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def one_line(done, pattern):
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert re.search(pattern, line), line


HEAD = "path,label,zero_shot_label\n"


@pytest.mark.parametrize(
    ("name", "content", "answer"),
    [
        ("rows.csv", "", "the first line must name label and zero_shot_label, found ''"),
        ("rows.jsonl", "", "rows.jsonl holds no rows"),
        ("rows.csv", HEAD, "rows.csv holds no rows"),
        ("rows.txt", HEAD, "rows are a .jsonl or .csv file of pta predict, or a folder of --cluster"),
        ("rows.csv", "path,label\n1.jpg,a\n", "rows.csv: the first line must name label and zero_shot_label"),
        ("rows.csv", f"{HEAD}1.jpg,a,\n", "rows.csv, line 2 has no zero_shot_label"),
        ("rows.jsonl", '{"path": "1.jpg", "label": "a"}\n', "rows.jsonl, line 1 has no zero_shot_label"),
        (
            "rows.csv",
            f"{HEAD}1.jpg,a,a\n2.jpg,b,b\n",
            "adaptation changed nothing, all 2 answers are zero-shot's.*exactly 0",
        ),
        ("rows.csv", f"{HEAD}1.jpg,,\n", r"holds no answered rows \(left out: 1 without an answer\)"),
        ("rows.csv", f'{HEAD}"1.jpg"x,a,b\n', "rows.csv: line 2 is not CSV"),
        ("rows.csv", f"{HEAD}1.jpg,a\n", "line 2 has no zero_shot_label"),
        ("rows.csv", f"{HEAD},a,b\n", "line 2 has neither a path nor an id"),
        ("rows.jsonl", "[1]\n", "line 1 is not a row of pta predict"),
        ("rows.jsonl", '{"path": 3, "label": "a", "zero_shot_label": "b"}\n', "path must be a text"),
        ("rows.jsonl", "x" * 2**21, "line 1 is not a row: it has more than"),
        ("rows.csv", b"\xff\xfe\x00".decode("latin1"), "the first line must name label"),
        ("none/rows.csv", None, "no such file of rows: none/rows.csv"),
    ],
)
def test_rows_that_cannot_be_audited_are_refused(pta, tmp_path, name, content, answer):
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    one_line(pta("audit", name, "--terminal", stdin=b"1\n"), answer)
    assert sorted(tmp_path.rglob("*")) == before


def test_bytes_that_are_not_text_and_empty_folders_are_refused(pta, tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"path,label,zero_shot_label\n\xe9.jpg,a,b\n")
    one_line(pta("audit", "rows.csv"), "rows.csv, line 2 is not UTF-8 text")
    (tmp_path / "blocks").mkdir()
    one_line(pta("audit", "blocks"), r"blocks holds no \*.parquet files")
    pytest.importorskip("pyarrow")
    (tmp_path / "blocks" / "0-9.parquet").write_bytes(b"PAR1")
    one_line(pta("audit", "blocks"), "0-9.parquet cannot be read as a block of labels")


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("path,label\nphotos/1.jpg,cow\n", "line 2: 'cow' is not a class of these rows"),
        ("path\n1.jpg\n", "the first line must name label and path or id or sequence"),
        ("", "the first line must name label and path or id or sequence"),
        ('path,label\n"1.jpg"x,bag\n', "line 2 is not CSV"),
        ("path,label\n,bag\n", "line 2 names no sample"),
        ("path,label\n1.jpg,bag\n1.jpg,coat\n", "1.jpg has two labels, 'bag' and 'coat'"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(pta, rows, tmp_path, content, answer):
    (tmp_path / "known.csv").write_text(content)
    one_line(pta("audit", "rows.jsonl", "--simulate", "known.csv"), answer)


def test_a_simulation_ends_where_labels_end(pta, rows, draws, tmp_path):
    write_csv(tmp_path / "few.csv", [{"path": row.key, "label": truth_of(row)} for row in draws.rows[:3]])
    done = pta("audit", "rows.jsonl", "--simulate", "few.csv")
    assert "3 labels of" in done.stdout
    assert "It was stopped, or has no more labels." in done.stdout
    assert pta("audit", "rows.jsonl", "--simulate", "few.csv", "--classes", "cow,pig").returncode == 0


def test_labels_of_another_audit_and_foreign_files_are_refused_and_kept(pta, rows, tmp_path):
    assert pta("audit", "rows.jsonl", "--terminal", stdin=b"1\n").returncode == 0
    kept = (tmp_path / "rows.jsonl.labels.csv").read_bytes()
    one_line(pta("audit", "rows.jsonl", "--terminal", "--seed", 2, stdin=b"1\n"), "other rows or of another --seed")
    rows.write_text(rows.read_text() + '{"path": "x", "label": "a", "zero_shot_label": "a"}\n')
    one_line(pta("audit", "rows.jsonl", "--terminal", stdin=b"1\n"), "other rows or of another --seed")
    assert (tmp_path / "rows.jsonl.labels.csv").read_bytes() == kept
    one_line(pta("audit", "rows.jsonl", "--labels", "truth.csv"), "the first line must name label and answer")
    one_line(pta("audit", "rows.jsonl", "--labels", "labels.txt"), "ends in .csv")
    one_line(pta("audit", "rows.jsonl", "--json", "truth.csv"), "truth.csv exists; --replace overwrites it")
    (tmp_path / "rows.jsonl.audits.json").write_text('{"a": 1}')
    one_line(pta("audit", "rows.jsonl", "--labels", "new.csv"), "is not a list of audits")


def test_a_link_is_not_followed_at_a_name_that_pta_derives(pta, rows, tmp_path):
    for name in ("rows.jsonl.labels.csv", "rows.jsonl.audits.json"):
        (tmp_path / name).symlink_to(tmp_path / "truth.csv")
        one_line(pta("audit", "rows.jsonl", "--terminal", stdin=b"1\n"), f"{name} is a link, which is not followed")
        (tmp_path / name).unlink()


def test_a_label_file_that_was_edited_is_refused_and_kept(pta, rows, tmp_path):
    assert pta("audit", "rows.jsonl", "--terminal", stdin=b"1\n" * 6).returncode == 0
    file = tmp_path / "rows.jsonl.labels.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:1] + lines[3:]))
    before = file.read_bytes()
    one_line(pta("audit", "rows.jsonl", "--terminal", stdin=b"z\n"), "line 2 is not as it was written")
    assert file.read_bytes() == before


def test_no_output_is_written_over_another_file_of_the_audit(pta, rows, tmp_path):
    before = rows.read_bytes()
    for name in ("rows.jsonl.labels.csv", "rows.jsonl.audits.json", "rows.jsonl"):
        done = pta("audit", "rows.jsonl", "--terminal", "--json", name, "--replace", stdin=b"1\n")
        one_line(done, "--json go to files of their own")
    assert rows.read_bytes() == before
    assert not (tmp_path / "rows.jsonl.labels.csv").exists()


def test_names_with_signs_that_are_not_printed_come_back_from_the_label_file(pta, tmp_path):
    lines = [{"path": f"a\u200c{n}.png", "label": "\u0645\u200c", "zero_shot_label": "b"} for n in range(9)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    first = pta("audit", "rows.jsonl", "--terminal", "--json", "-", stdin=b"1\n1\n2\n")
    again = pta("audit", "rows.jsonl", "--terminal", "--json", "-", stdin=b"s\n")
    assert json.loads(first.stdout) == json.loads(again.stdout)
    replayed = pta("audit", "rows.jsonl", "--simulate", "rows.jsonl.labels.csv", "--json", "-")
    assert json.loads(replayed.stdout)["answers"] == json.loads(first.stdout)["answers"]


def test_a_place_that_is_no_number_is_refused(pta, tmp_path):
    (tmp_path / "rows.csv").write_text("id,place,label,zero_shot_label\nx,abc,cat,dog\n")
    one_line(pta("audit", "rows.csv", "--terminal"), "line 2: place must be a whole number")
