"""Tar shards: the same images as in a folder, found by their headers alone."""

import contextlib
import gzip
import io
import os
import re
import subprocess
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from miniatures import jpeg, write_images
from refusals import refusal

from pta.data import open_samples
from pta.data.sources.addresses import expand_range
from pta.errors import UnreadableFile

NAMES = ["cat", "dog"]


def write_tar(path, members, end=b"\0" * 10240):
    """A tar archive of (name, content), closed by `end`."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        length = tar.offset
    path.write_bytes(body.getvalue()[:length] + end)
    return path


def sample(key, label, suffix="jpg"):
    return [(f"{key}.{suffix}", jpeg(label)), (f"{key}.cls", str(label).encode())]


def test_shards_and_folder_hold_the_same_images(tmp_path):
    keys = ["cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"]
    write_images(tmp_path / "tree", keys)
    members = []
    for number, key in enumerate(keys):
        members += [(f"{number:04}.cls", b"0\n" if "cat" in key else b"1\n")]
        members += [(f"{number:04}.jpg", (tmp_path / "tree" / key).read_bytes())]
    for shard in range(2):
        write_tar(tmp_path / f"s-{shard:03}.tar", members[4 * shard : 4 * shard + 4])

    found = open_samples(f"{tmp_path}/s-{{000..001}}.tar", class_names=NAMES)
    assert [image.key for image in found.samples][1:3] == ["s-000.tar/0001.jpg", "s-001.tar/0002.jpg"]
    walked = open_samples(tmp_path / "tree")
    assert [image.read() for image in found.samples] == [image.read() for image in walked.samples]
    assert (found.labels == walked.labels).all()
    assert found.class_names == walked.class_names
    for pattern in ("s-*.tar", "**/s-*.tar"):
        assert open_samples(tmp_path / pattern, class_names=NAMES).fingerprint == found.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s-000.tar", "s-001.tar", "tree"]  # nothing unpacked


def test_labels_may_stand_anywhere_in_the_shard_and_other_members_are_passed_over(tmp_path):
    members = {"a.cls": b"1", "a.txt": b"a dog", "a.PNG": b"png", "._a.jpg": b"x", "b.webp": b"w", "b.cls": b"0"}
    found = open_samples(write_tar(tmp_path / "x.tar", members.items()), class_names=NAMES)
    assert [image.key for image in found.samples] == ["x.tar/a.PNG", "x.tar/b.webp"]
    assert [image.read() for image in found.samples] == [b"png", b"w"]
    assert found.labels.tolist() == [1, 0]


def test_a_key_ends_at_the_first_dot_of_the_file_name(tmp_path):
    masks = [("v1.0/0001.seg.png", b"mask"), ("v1.0/0001.seg.cls", b"0"), ("v1.0/0002.thumb.jpg", b"small")]
    path = write_tar(tmp_path / "a.tar", [*masks, *sample("v1.0/0001", 1)])
    found = open_samples(path, class_names=NAMES)
    assert [image.key for image in found.samples] == ["a.tar/v1.0/0001.jpg"]
    assert found.samples[0].read() == jpeg(1)
    assert found.labels.tolist() == [1]


@given(st.from_regex(r"[a-c.]{1,4}", fullmatch=True), st.sampled_from(["jpg", "JPEG", "cls", "seg.png", "txt"]))
def test_an_image_is_what_the_formats_own_pattern_takes_for_one(tmp_path_factory, stem, extension):
    name = f"{stem}.{extension}"
    path = write_tar(tmp_path_factory.getbasetemp() / "pattern.tar", [(name, b"x"), ("always.png", b"y")])
    parts = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)  # as webdataset divides names
    expected = [name] if parts and parts[2].lower() in ("jpg", "jpeg", "png", "webp") else []
    if extension == "cls" and "." not in stem:
        assert "must hold a class number" in refusal(open_samples, path)
    else:
        assert [image.key.partition("/")[2] for image in open_samples(path).samples] == [*expected, "always.png"]


def test_the_fingerprint_notices_a_changed_archive_of_the_same_size(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"one")])
    before, first = path.stat(), open_samples(path).fingerprint
    write_tar(path, [("a.jpg", b"two")])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert open_samples(path).fingerprint != first


def test_shards_without_labels_need_no_class_names(tmp_path):
    found = open_samples(str(write_tar(tmp_path / "photos.tar", [("a.jpg", jpeg(1))])))
    assert (found.labels, found.class_names, found.name) == (None, (), "photos")
    assert open_samples(tmp_path / "photos.tar", class_names=NAMES).class_names == ("cat", "dog")


def test_shards_of_different_folders_keep_different_keys(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_tar(tmp_path / folder / "s.tar", [("a.jpg", jpeg(1))])
    found = open_samples(f"{tmp_path}/*/s.tar").samples
    assert [image.key for image in found] == ["one/s.tar/a.jpg", "two/s.tar/a.jpg"]


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_links_and_long_names_are_no_trouble(tmp_path, format):
    long = "deep/" * 40 + "ü" * 200 + ".jpg"
    with tarfile.open(tmp_path / "odd.tar", "w", format=format) as tar:
        for name, kind in (("link.jpg", tarfile.SYMTYPE), ("device.jpg", tarfile.CHRTYPE), (long, tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc/passwd", 3 * (name == long)
            tar.addfile(member, io.BytesIO(b"abc"))
    (found,) = open_samples(tmp_path / "odd.tar").samples
    assert (found.key, found.read()) == (f"odd.tar/{long}", b"abc")


@pytest.mark.parametrize(
    ("members", "names", "said"),
    [
        ([("a.txt", b"x")], NAMES, "holds no images"),
        (sample("0.0003_box turtle_0.55", 1), NAMES, "no dot in KEY"),
        (sample("a", 1), None, "has labels, which are numbers; give their class names"),
        (sample("a", 2), NAMES, "x.tar/a.jpg has label 2, but there are 2 class names (0…1)"),
        ([*sample("a", 1), ("b.jpg", b"x")], NAMES, "x.tar/b.jpg has no .cls beside it"),
        ([("a.jpg", b"x"), ("a.cls", b"dog")], NAMES, "a.cls must hold a class number, found b'dog'"),
        ([("a.jpg", b"x"), ("a.cls", b"-1")], NAMES, "must hold a class number"),
        ([("a.jpg", b"x"), ("a.png", b"x")], NAMES, "a.png is a second file for the key a"),
        ([("a.jpg", b"x"), ("a.jpg", b"x")], NAMES, "a second file for the key"),
    ],
)
def test_a_wrong_shard_is_one_clear_line(tmp_path, members, names, said):
    assert said in refusal(open_samples, write_tar(tmp_path / "x.tar", members), class_names=names)


def test_compressed_archives_are_refused(tmp_path):
    plain = write_tar(tmp_path / "x.tar", sample("a", 1)).read_bytes()
    for name in ("x.tar.gz", "x.tgz", "pretending.tar"):
        (tmp_path / name).write_bytes(gzip.compress(plain))
        assert "is compressed (gzip)" in refusal(open_samples, tmp_path / name, class_names=NAMES)


def test_missing_shards_are_named(tmp_path):
    write_tar(tmp_path / "s-0.tar", sample("a", 1))
    assert f"no such archive: {tmp_path}/s-1.tar" in refusal(
        open_samples, f"{tmp_path}/s-{{0..1}}.tar", class_names=NAMES
    )
    assert "no such archive" in refusal(open_samples, f"{tmp_path}/t-*.tar")
    assert "no such archive" in refusal(open_samples, tmp_path / "t.tar")
    assert "must count upwards" in refusal(open_samples, f"{tmp_path}/s-{{1..0}}.tar")
    assert "must count upwards" in refusal(open_samples, f"{tmp_path}/s-{{0..99999999999}}.tar")


@pytest.mark.parametrize("cut", [1, 100, 511, 700, 1024, 1500, 2048])
def test_a_shard_that_was_cut_anywhere_is_refused_and_never_shortened(tmp_path, cut):
    path = write_tar(tmp_path / "x.tar", [*sample("a", 1), *sample("b", 0)])
    path.write_bytes(path.read_bytes()[:cut])
    assert "cannot be read as a tar archive" in refusal(open_samples, path, class_names=NAMES)


def test_what_is_no_archive_is_refused_and_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    (tmp_path / "x.tar").write_bytes(jpeg(1) * 4)
    assert "cannot be read as a tar archive" in refusal(open_samples, tmp_path / "x.tar")
    path = write_tar(tmp_path / "x.tar", [("a.jpg", b"a" * 512), ("b.jpg", b"b" * 512)])
    content = bytearray(path.read_bytes())
    content[1024] ^= 0xFF  # the second header's first byte: its checksum is wrong now
    path.write_bytes(content)
    assert "ends without the end mark" in refusal(open_samples, path)


@given(st.data())
def test_a_hostile_archive_gives_images_or_one_line(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "hostile"
    folder.mkdir(exist_ok=True)
    path = write_tar(folder / "x.tar", [("a.jpg", b"a"), ("b.jpg", b"b")])
    content = bytearray(path.read_bytes()[:3072])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 1100))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(UnreadableFile):  # anything else would be a traceback
        assert {image.size for image in open_samples(path).samples} <= set(range(3072))


@given(st.integers(0, 120), st.integers(0, 15), st.integers(1, 4))
def test_a_range_counts_without_gaps_at_one_width(first, more, width):
    ends = f"{first:0{width}}", f"{first + more:0{width}}"
    texts = expand_range(f"s-{{{ends[0]}..{ends[1]}}}.tar")
    numbers = [text.removeprefix("s-").removesuffix(".tar") for text in texts]
    assert list(map(int, numbers)) == list(range(first, first + more + 1))
    assert (numbers[0], numbers[-1]) == ends or len({*map(len, numbers)}) == 1


@pytest.mark.parametrize(
    "text", ["a{08..11}b", "{1..3}", "x{00..1}-{7..9}", "plain", "{0..3}", "{9..11}", "{1..010}", "{0..10}"]
)
def test_a_range_gives_what_bash_gives(text):
    said = subprocess.run(["bash", "-c", f"echo {text}"], capture_output=True, text=True, check=True).stdout.split()
    assert expand_range(text) == said
