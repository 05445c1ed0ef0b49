"""Sources and results on an object store: the same bytes, with its faults, and what is said where it cannot be used."""

import sys
import tarfile
from io import BytesIO

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
from cluster_runs import BLOCK, CLASSES, contents, extract, predict, write_pictures
from faulty_storage import BUSY, CUT, FORBIDDEN, STALE
from storages import no_sleep

from pta.cluster.ray.storage import Folder
from pta.door.patience import USUAL_PATIENCE
from pta.errors import InvalidParameter, MissingPackage, PtaError, StateMismatch, UnreadableFile

COUNT = 40
SECRETS = ("our-key", "our-secret")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"), COUNT)


@pytest.fixture(scope="module")
def plain(pictures, tmp_path_factory):
    """The blocks and labels that are made on a disk."""
    features, labels = tmp_path_factory.mktemp("features"), tmp_path_factory.mktemp("labels")
    extract(pictures, features)
    predict(pictures, labels)
    return features, labels


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nothing is waited for before it is asked for again."""
    monkeypatch.setattr(USUAL_PATIENCE, "sleep", no_sleep)


@pytest.fixture
def photos(store, pictures):
    """The pictures on the store."""
    for path in pictures.iterdir():
        store.put(f"bucket/photos/{path.name}", path.read_bytes())
    return "s3://bucket/photos"


def test_pictures_and_labels_on_a_store_are_those_of_a_disk(store, photos, plain):
    extract(photos, "s3://bucket/features")
    predict("s3://bucket/features", "s3://bucket/labels")
    for name, content in contents(plain[1], "parquet").items():
        if name != "listing.parquet":
            one, other = (
                pq.read_table(pa.BufferReader(given)) for given in (store.get(f"bucket/labels/{name}"), content)
            )
            assert one.equals(other)
    assert extract(photos, "s3://bucket/features").encoded == 0
    assert not Folder("s3://bucket/labels/work").exists()


def test_a_parquet_file_on_a_store_is_read_by_reference(store, pictures, plain):
    cells = [{"bytes": path.read_bytes()} for path in sorted(pictures.iterdir())]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"image": cells}), sink, row_group_size=7)
    store.put("bucket/a.parquet", sink.getvalue().to_pybytes())
    extract("s3://bucket/a.parquet", "s3://bucket/features")
    store.put("bucket/a.parquet", sink.getvalue().to_pybytes())  # the same again, which is a new object
    with pytest.raises(StateMismatch, match=r"another.*listing"):
        extract("s3://bucket/a.parquet", "s3://bucket/features")


def test_a_store_that_is_busy_or_cut_off_now_and_then_loses_no_block(store, photos):
    dice = np.random.default_rng(1)
    store.fault = lambda asked: (
        [BUSY, CUT, 0.01][dice.integers(3)] if asked.path.endswith(".png") and dice.random() < 0.1 else None
    )
    said = []
    for _ in range(30):  # the same command, until it ends
        try:
            extract(photos, "s3://bucket/features")
            break
        except PtaError as error:
            said.append(str(error))
    assert not any(secret in "".join(said) for secret in SECRETS)
    store.fault = lambda asked: None
    extract(photos, "s3://bucket/again")
    names = [asked.path for asked in store.asked if asked.method == "PUT" and "/again/0" in asked.path]
    assert len(names) == -(-COUNT // BLOCK)
    for name in names:
        name = name.removeprefix("/")
        assert store.get(name) == store.get(name.replace("/again/", "/features/"))


def test_a_listing_that_is_stale_makes_no_block_twice_and_loses_none(store, photos):
    Folder("s3://bucket/features").exists()  # nothing is there yet, and a stale listing says so later
    store.fault = lambda asked: STALE if asked.is_listing else None
    extract(photos, "s3://bucket/features")
    before = len([asked for asked in store.asked if asked.method == "PUT"])
    assert extract(photos, "s3://bucket/features").encoded == 0
    blocks = [asked.path for asked in store.asked if asked.method == "PUT" and "/features/0" in asked.path]
    assert len(blocks) == len(set(blocks)) == -(-COUNT // BLOCK)
    assert before > len(blocks)


def test_a_picture_that_a_store_adds_between_two_starts_is_noticed(store, photos):
    extract(photos, "s3://bucket/features")
    store.put("bucket/photos/later.png", b"another")
    with pytest.raises(StateMismatch, match=r"another.*listing"):
        extract(photos, "s3://bucket/features")


def test_a_run_is_not_written_over_where_the_store_does_not_say_whether_there_is_one(store, photos):
    extract(photos, "s3://bucket/features")
    about = store.get("bucket/features/about.json")
    store.fault = lambda asked: BUSY if asked.path.endswith("about.json") and asked.method != "PUT" else None
    with pytest.raises(PtaError, match=r"about\.json cannot be reached"):
        extract(photos, "s3://bucket/features", classes=CLASSES[:4])
    assert store.get("bucket/features/about.json") == about


WITH_MODEL = ("--classes", ",".join(CLASSES), "--model", "embedded", "--cluster", "local")


def one_line(done, code=2):
    """What a command that was refused said: one line, without a secret."""
    assert done.returncode == code
    assert not any(secret in done.stderr + done.stdout for secret in (*SECRETS, "hunter2"))
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.fixture
def here(monkeypatch):
    """Commands whose workers are this process."""
    from test_cluster_ray import in_this_ray

    from pta.cluster.blocks.loop import ThisProcess

    with in_this_ray(monkeypatch, ThisProcess()):
        yield


def test_no_credentials_is_one_line(store, photos, pta, here, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    said = one_line(pta("predict", photos, *WITH_MODEL, "--out", "out"))
    assert "s3://bucket/photos" in said
    assert "credentials" in said


def test_a_bucket_that_does_not_exist_is_one_line(store, photos, pta, here):
    assert "s3://nowhere/photos" in one_line(pta("predict", "s3://nowhere/photos", *WITH_MODEL, "--out", "out"))
    said = one_line(pta("predict", photos, *WITH_MODEL, "--out", "s3://nowhere/out"))
    assert "s3://nowhere/out" in said
    assert "bucket" in said


def test_a_bucket_that_may_not_be_written_is_one_line_before_the_work(store, photos, pta, here):
    store.fault = lambda asked: FORBIDDEN if asked.method in ("PUT", "POST") else None
    said = one_line(pta("predict", photos, *WITH_MODEL, "--out", "s3://bucket/out"))
    assert "s3://bucket/out/about.json cannot be written" in said
    assert not any(asked.path.endswith(".png") and asked.method == "GET" for asked in store.asked)


def test_a_bucket_that_may_not_be_read_is_one_line(store, photos, pta, here):
    store.fault = lambda asked: FORBIDDEN
    assert "s3://bucket/photos" in one_line(pta("predict", photos, *WITH_MODEL, "--out", "out"))


def tar_of(pictures):
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path in sorted(pictures.iterdir()):
            tar.add(path, path.name)
    return content.getvalue()


def parquet_of(pictures):
    content = BytesIO()
    pq.write_table(pa.table({"path": [f"photos/{path.name}" for path in sorted(pictures.iterdir())]}), content)
    return content.getvalue()


def csv_of(pictures):
    return ("path\n" + "".join(f"photos/{path.name}\n" for path in sorted(pictures.iterdir()))).encode()


@pytest.mark.parametrize("fault", [BUSY, CUT])
@pytest.mark.parametrize(("name", "content_of"), [("a.tar", tar_of), ("a.parquet", parquet_of), ("a.csv", csv_of)])
def test_a_store_that_fails_while_a_list_is_read_is_neither_a_mistake_nor_damage(
    store, photos, pictures, pta, here, name, content_of, fault
):
    store.put(f"bucket/{name}", content_of(pictures))
    call = ("predict", f"s3://bucket/{name}", *WITH_MODEL, "--out", "out")
    store.fault = lambda asked: fault if asked.path.endswith(name) and asked.method == "GET" else None
    said = one_line(pta(*call), code=1)
    assert f"s3://bucket/{name} cannot be read: " in said
    assert "damaged" not in said
    times = iter([fault])
    store.fault = lambda asked: next(times, None) if asked.path.endswith(name) and asked.method == "GET" else None
    done = pta(*call)
    assert done.returncode == 0, done.stderr


def test_a_store_that_cannot_be_reached_is_no_mistake(store, photos, pta, here):
    store.fault = lambda asked: BUSY
    assert "s3://bucket/photos" in one_line(pta("predict", photos, *WITH_MODEL, "--out", "out"), code=1)


def test_without_s3fs_one_line_says_what_to_install(pta, here, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    said = one_line(pta("predict", "s3://bucket/photos", *WITH_MODEL, "--out", "out"))
    assert "s3:// needs s3fs; run pip install 'pta-vlm[s3]'" in said
    with pytest.raises(MissingPackage):
        Folder("s3://bucket/out").exists()


@pytest.mark.parametrize("where", ["source", "out", "csv"])
def test_an_address_with_a_password_is_refused_and_not_repeated(pta, here, tmp_path, where):
    secret = "ftp://me:hunter2@127.0.0.1/photos"
    (tmp_path / "list.csv").write_text(f"path\n{secret}/a.png\n")
    source = {"source": secret, "csv": "list.csv", "out": "list.csv"}[where]
    done = pta("predict", source, *WITH_MODEL, "--out", secret if where == "out" else "out")
    said = one_line(done)
    assert "password" in said
    assert not list(tmp_path.glob("out/*.json"))


def test_a_password_in_an_error_of_a_library_is_left_out():
    assert str(PtaError("no answer of http://me:hunter2@host:9000/x")) == "no answer of http://…@host:9000/x"


def test_nothing_of_a_run_holds_a_credential(store, photos):
    predict(photos, "s3://bucket/labels")
    written = [asked.path.removeprefix("/") for asked in store.asked if asked.method == "PUT"]
    kept = [path for path in written if path.startswith("bucket/labels/") and "/work/" not in path]
    assert len(kept) > 3
    for path in kept:
        assert not any(secret.encode() in store.get(path) for secret in SECRETS)


@pytest.mark.parametrize(
    "address",
    [
        *("ftp://me:hunter2@host/a", "http://me:p@ss@host/a", "https://ghp_hunter2@host/a"),
        *("https://host/a?X-Amz-Date=1&X-Amz-Signature=hunter2", "https://host/a?sig=hunter2", "http://host/a?Token=x"),
        "http://host/a?v=1&access_token=x",
    ],
)
def test_a_folder_is_at_no_address_with_a_password(address):
    with pytest.raises(InvalidParameter, match="password before @"):
        Folder.at(address)


@pytest.mark.parametrize("address", ["abfs://photos@account/a", "sftp://me@host/a", "https://host/a?v=1&signatures=2"])
def test_an_address_without_a_secret_is_one(address):
    assert Folder.at(address).address == address


def test_an_address_that_fsspec_does_not_know_is_one_line():
    with pytest.raises(UnreadableFile, match="nowhere"):
        Folder.at("nowhere://bucket/x").exists()
