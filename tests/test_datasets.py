"""A user's own images: folders, CSV files, and what an SampleSet promises."""

import io
import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from miniatures import build, write_images
from PIL import Image
from refusals import refusal

from pta.data import SampleFile, SampleSet, TarMember, open_samples
from pta.data.sources.addresses import is_inside
from pta.data.sources.class_index import ClassIndex, matching_name
from pta.data.sources.folder import sample_files
from pta.errors import InvalidParameter, InvalidSamples, UnreadableSample, UnreadSample

KEYS = ["cat/1.jpg", "cat/deep/2.JPG", "dog/1.jpg", "hot_dog/1.jpeg"]


@pytest.fixture
def tree(tmp_path):
    write_images(tmp_path / "pets", KEYS)
    return tmp_path / "pets"


def test_sub_folders_are_classes_in_sorted_order(tree):
    found = open_samples(tree)
    assert [image.key for image in found.samples] == KEYS
    assert found.class_names == ("cat", "dog", "hot_dog")
    assert found.labels.tolist() == [0, 0, 1, 2]
    assert (found.name, found.prompts, found.notes, len(found)) == ("pets", None, (), 4)
    assert found.samples[0].read() == (tree / KEYS[0]).read_bytes()
    assert Image.open(io.BytesIO(found.samples[1].read())).size == (12, 8)


def test_labels_follow_the_order_of_given_class_names(tree):
    found = open_samples(tree, class_names=["Hot Dog", "zebra", "Dog", "cat"])
    assert found.class_names == ("Hot Dog", "zebra", "Dog", "cat")
    assert found.labels.tolist() == [3, 3, 2, 0]
    assert found.notes == ("1 of 4 classes have no images here",)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["cat", "dog", "hot dogs"], "the sub-folder 'hot_dog' is not one of the 3 classes; did you mean 'hot dogs'?"),
        (list(map(str, range(100))), f"known: {', '.join(map(str, range(20)))}, …"),
        (["cat", "dog", "hot dog", "Hot_Dog"], "could be any of the classes 2, 3"),
    ],
)
def test_a_folder_must_be_exactly_one_of_the_given_classes(tree, names, said):
    assert said in refusal(open_samples, tree, class_names=names)


def test_images_lying_loose_have_no_labels(tmp_path):
    write_images(tmp_path, ["b.jpg", "a.png", "c.webp"])
    (tmp_path / "notes").mkdir()
    (tmp_path / "list.txt").write_text("not an image")
    found = open_samples(str(tmp_path))
    assert [image.key for image in found.samples] == ["a.png", "b.jpg", "c.webp"]
    assert (found.labels, found.class_names) == (None, ())
    assert open_samples(tmp_path, class_names=["cat", "dog"]).class_names == ("cat", "dog")


def test_loose_and_sorted_images_together_are_refused(tree):
    write_images(tree, ["loose.jpg"])
    assert "directly (loose.jpg) and in sub-folders (cat/1.jpg)" in refusal(open_samples, tree)


def test_hidden_files_pipes_and_empty_sub_folders_do_not_count(tree):
    write_images(tree, ["cat/._1.jpg", ".trash/1.jpg"])
    (tree / ".DS_Store").write_bytes(b"x")
    os.mkfifo(tree / "cat" / "pipe.jpg")
    (tree / "empty").mkdir()
    found = open_samples(tree)
    assert [image.key for image in found.samples] == KEYS
    assert found.notes == ("sub-folders without images are not classes: empty",)


def test_folders_that_link_to_each_other_hold_each_file_once(tmp_path):
    """Seven folders of one picture each, linked both ways, used to be 13,699 pictures."""
    names = [f"{number}" for number in range(7)]
    write_images(tmp_path, [f"{name}/a.jpg" for name in names])
    for one in names:
        for other in set(names) - {one}:
            (tmp_path / one / f"to{other}").symlink_to(tmp_path / other)
    assert sample_files(tmp_path) == [f"{name}/a.jpg" for name in names]
    assert [sample.key for sample in open_samples(tmp_path).samples] == [f"{name}/a.jpg" for name in names]


def test_a_file_of_several_paths_has_the_one_with_the_fewest_links_then_folders_then_the_first(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    write_images(outside, ["deep/a.jpg", "deep/b.jpg"])
    write_images(inside, ["z/real.jpg", "m/other.jpg"])
    (inside / "a.jpg").symlink_to(inside / "z" / "real.jpg")  # the real path wins, however long
    (inside / "y").symlink_to(outside)  # y/deep/a.jpg, y/deep/b.jpg
    (inside / "x").symlink_to(outside)  # x/deep/…: the first in sorted order
    (inside / "w.jpg").symlink_to(outside / "deep" / "a.jpg")  # shorter
    (inside / "xx").symlink_to(inside / "y")  # a link to a link
    os.link(inside / "m" / "other.jpg", inside / "m" / "hard.jpg")  # a file of its own
    assert sample_files(inside) == ["m/hard.jpg", "m/other.jpg", "w.jpg", "x/deep/b.jpg", "z/real.jpg"]


def test_too_many_files_are_refused(tree, monkeypatch):
    monkeypatch.setattr("pta.data.sources.folder._MOST_ENTRIES", 3)
    assert "holds more than 3 files and folders; give a part of it" in refusal(sample_files, tree)


def test_links_are_followed_but_not_in_circles(tree):
    (tree / "cat" / "up").symlink_to(tree)
    (tree / "cow").symlink_to(tree / "dog")
    (tree / "cat" / "broken.jpg").symlink_to(tree / "gone.jpg")
    assert sample_files(tree) == sorted([*KEYS, "cat/broken.jpg"])
    broken = SampleFile(tree / "cat" / "broken.jpg", "cat/broken.jpg")
    assert broken.stamp == (-1, -1)
    with pytest.raises(UnreadSample, match="no such file"):
        broken.read()


def test_a_folder_without_images_or_that_cannot_be_listed_is_named(tmp_path):
    assert "holds no images" in refusal(open_samples, tmp_path)
    (tmp_path / "file").write_text("")
    assert "cannot list" in refusal(sample_files, tmp_path / "file")
    assert "cannot list" in refusal(sample_files, tmp_path / "nothing")


# -- CSV ---------------------------------------------------------------------------------------------------------------


def csv_of(folder, content):
    path = folder / "list.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_csv_lists_images_in_its_order_with_names_as_labels(tree):
    found = open_samples(csv_of(tree, "path,label\ndog/1.jpg,dog\ncat/1.jpg,cat\n\nhot_dog/1.jpeg,hot_dog\n"))
    assert [image.key for image in found.samples] == ["dog/1.jpg", "cat/1.jpg", "hot_dog/1.jpeg"]
    assert (found.class_names, found.labels.tolist(), found.name) == (("cat", "dog", "hot_dog"), [1, 0, 2], "list")
    assert found.samples[1].read() == (tree / "cat/1.jpg").read_bytes()


def test_a_csv_may_be_written_by_a_spreadsheet(tree):
    path = csv_of(
        tree, '\ufeffnumber,Label ,Path\r\n1,"cat","cat/1.jpg"\r\n2,hot dog,\'a, b.jpg\'\r\n'.replace("'", '"')
    )
    found = open_samples(path, class_names=["Hot_Dog", "Cat"])
    assert [image.key for image in found.samples] == ["cat/1.jpg", "a, b.jpg"]
    assert found.labels.tolist() == [1, 0]


def test_numbers_in_a_csv_need_class_names(tree):
    path = csv_of(tree, "path,label\ncat/1.jpg,1\ndog/1.jpg,0\n")
    assert open_samples(path, class_names=["dog", "cat"]).labels.tolist() == [1, 0]
    assert open_samples(path, class_names=["1", "0"]).labels.tolist() == [0, 1]  # a name comes before a number
    assert "give their class names" in refusal(open_samples, path)


def test_a_csv_needs_no_labels(tree):
    found = open_samples(csv_of(tree, "path\ncat/1.jpg\n"), class_names=["dog", "cat"])
    assert (found.labels, found.class_names) == (None, ("dog", "cat"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the first line must name path, found ''"),
        ("cat/1.jpg,cat\n", "found 'cat/1.jpg,cat'"),
        ("path,label\n", "lists no samples"),
        ("path,label\ncat/1.jpg\n", "line 2 has no label"),
        ("path,label\n,cat\n", "line 2 has no path"),
        ("path,label\ncat/1.jpg,cat\n../1.jpg,cat\n", "line 3 points to '../1.jpg', which leaves the folder"),
        ("path,label\na/../../1.jpg,cat\n", "leaves the folder"),
        ('path,label\n"cat/1.jpg,cat\n', "is not CSV"),
        (b"path\n\xff\xfe.jpg\n", "is not UTF-8 text"),
        ("path,label\ncat/1.jpg,2\n", "line 2: label 2 does not exist; classes are 0…1"),
        ("path,label\ncat/1.jpg,katt\n", "line 2: the label 'katt' is not one of the 2 classes; did you mean 'cat'?"),
    ],
)
def test_a_wrong_csv_is_one_clear_line(tree, content, said):
    assert said in refusal(open_samples, csv_of(tree, content), class_names=["cat", "dog"])


def test_a_csv_of_too_many_rows_is_refused(tree, monkeypatch):
    monkeypatch.setattr("pta.data.sources.csv_list._MOST_ROWS", 2)
    assert len(open_samples(csv_of(tree, "path\na.jpg\nb.jpg\n\n")).samples) == 2
    assert "lists more than 2 samples" in refusal(open_samples, csv_of(tree, "path\na.jpg\nb.jpg\nc.jpg\n"))


def test_absolute_paths_in_a_csv_are_taken_as_they_are(tree, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    found = open_samples(csv_of(tmp_path / "elsewhere", f"path\n{tree}/cat/1.jpg\n"))
    assert found.samples[0].read() == (tree / "cat/1.jpg").read_bytes()


def test_a_csv_says_the_same_as_the_folder_it_lists(tree):
    rows = "".join(f"{key},{key.split('/')[0]}\n" for key in KEYS)
    listed, walked = open_samples(csv_of(tree, "path,label\n" + rows)), open_samples(tree)
    assert [image.read() for image in listed.samples] == [image.read() for image in walked.samples]
    assert listed.fingerprint == walked.fingerprint  # with labels and class names


# -- which kind of source it is ----------------------------------------------------------------------------------------


def test_a_bare_id_is_the_catalogued_set_and_a_path_is_the_folder(tmp_path, monkeypatch):
    build("dtd", tmp_path / "data")
    write_images(tmp_path / "dtd", ["cat/1.jpg"])
    monkeypatch.chdir(tmp_path)
    assert open_samples("dtd", root=tmp_path / "data").class_names[:2] == ("banded", "blotchy")
    assert open_samples("./dtd").class_names == ("cat",)
    assert open_samples(tmp_path.joinpath("dtd").relative_to(tmp_path)).class_names == ("cat",)
    assert "dtd has no variants; for a folder write ./dtd/cat" in refusal(open_samples, "dtd/cat", root=tmp_path)


def test_what_is_no_source_is_refused(tmp_path):
    (tmp_path / "photo.txt").write_text("hello")
    assert "neither a folder nor a known dataset; did you mean 'imagenet'?" in refusal(open_samples, "imagnet")
    assert "no such file or folder" in refusal(open_samples, tmp_path / "nothing")
    assert "give a folder, a .csv" in refusal(open_samples, tmp_path / "photo.txt")
    assert "give the folder of all datasets, --data ROOT" in refusal(open_samples, "dtd")


# -- SampleSet ---------------------------------------------------------------------------------------------------------


def test_the_fingerprint_is_that_of_the_list_and_not_of_its_place(tree, tmp_path):
    first = open_samples(tree)
    shutil.copytree(tree, tmp_path / "copied")  # which keeps times
    assert open_samples(tmp_path / "copied").fingerprint == first.fingerprint
    (tmp_path / "copied" / KEYS[0]).rename(tmp_path / "copied/cat/other.jpg")
    assert open_samples(tmp_path / "copied").fingerprint != first.fingerprint
    assert open_samples(tree, class_names=["dog", "cat", "hot dog"]).fingerprint != first.fingerprint
    without = SampleSet(first.name, first.class_names, first.samples, None)
    assert without.fingerprint != first.fingerprint


def test_the_fingerprint_notices_another_time_or_size_of_a_file(tree):
    first, picture = open_samples(tree).fingerprint, tree / KEYS[0]
    written = picture.stat().st_mtime_ns

    def fingerprint_at(time):
        os.utime(picture, ns=(written, time))
        return open_samples(tree).fingerprint

    assert fingerprint_at(written + 1) != first
    assert fingerprint_at(written) == first
    picture.write_bytes(picture.read_bytes() + b"longer")
    assert fingerprint_at(written) != first


def test_the_fingerprint_of_images_that_are_gone_can_be_had(tree, tmp_path):
    image = TarMember(tmp_path / "gone.tar", "gone.tar/a.jpg", 0, 2)
    assert image.stamp == (2, -1)
    gone = (SampleFile(tree / "gone.jpg", "gone.jpg"), image)
    assert len(SampleSet("x", (), gone, None).fingerprint) == 64


def test_labels_that_do_not_fit_are_refused(tmp_path):
    image = SampleFile(tmp_path / "a.jpg", "a.jpg")
    with pytest.raises(InvalidSamples, match="1 samples but labels of shape"):
        SampleSet("x", ("cat",), (image,), np.array([0, 0]))
    for wrong in (-1, 1):
        with pytest.raises(InvalidSamples, match=f"label {wrong} does not exist; there are 1 classes"):
            SampleSet("x", ("cat",), (image,), np.array([wrong]))


def test_an_absurdly_large_member_is_not_read(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"x")
    with pytest.raises(UnreadableSample, match="at most 268,435,456 are read"):
        TarMember(tmp_path / "a.tar", "a.tar/a.jpg", 0, 2**30).read()
    with pytest.raises(UnreadSample, match="ends too early"):
        TarMember(tmp_path / "a.tar", "a.tar/a.jpg", 0, 2).read()
    with pytest.raises(UnreadSample, match="no such file"):
        TarMember(tmp_path / "b.tar", "b.tar/a.jpg", 0, 2).read()


# -- laws --------------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="ab./_\0", max_size=12))
def test_a_path_is_inside_exactly_when_it_stays_below_the_folder(path):
    """Against the operating system's own arithmetic; passing through the folder above counts as leaving."""
    if not path or "\0" in path or path.startswith("/"):
        assert not is_inside(path)
        return
    reached = ["/base"]
    for part in path.split("/"):
        reached.append(os.path.normpath(os.path.join(reached[-1], part)))  # noqa: PTH118
    assert is_inside(path) == (all(place.startswith("/base") for place in reached) and reached[-1] != "/base")


@given(st.lists(st.text(alphabet="aB_ ", min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_name_is_found_in_every_spelling(names):
    index = ClassIndex(names)
    for label, name in enumerate(names):
        same = [i for i, other in enumerate(names) if matching_name(other) == matching_name(name)]
        for spelling in (name, name.upper(), name.replace("_", " "), name.replace(" ", "_"), f" {name} "):
            assert spelling in index
            if len(same) == 1:
                assert index.label(spelling, "it") == label
            else:
                with pytest.raises(InvalidParameter, match="share this name"):
                    index.label(spelling, "it")
