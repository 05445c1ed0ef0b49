"""The sixteen image datasets: every layout on a miniature of real files, remarks about a copy, and the commands."""

import json
from dataclasses import replace

import pytest
from miniatures import SOURCES, TREES, build, write_images
from refusals import refusal
from typer.testing import CliRunner

from pta.cli.datasets import datasets as app
from pta.core.modality import IMAGES
from pta.data import open_samples
from pta.data.catalogue import catalogue, find_entry
from pta.data.check import check
from pta.data.prompts import load_templates
from pta.errors import InvalidParameter, UnreadableFile

IMAGE_SETS = {id: entry for id, entry in catalogue().items() if entry.modality == IMAGES}  # clouds: test_cloud_sets.py


def refused(source, root, **options):
    return refusal(open_samples, source, root=root, **options)


def split_of(root, source, rows):
    """Write other rows into the split file of a set."""
    (root / find_entry(source).test_list[0]).write_text(json.dumps({"test": rows}))


# -- the entries -------------------------------------------------------------------------------------------------------


def test_there_are_sixteen_sets_and_a_miniature_of_each():
    assert len(IMAGE_SETS) == 16
    assert {source.split("/")[0] for source in SOURCES} == set(IMAGE_SETS)


@pytest.mark.parametrize("entry", IMAGE_SETS.values(), ids=list(IMAGE_SETS))
def test_an_entry_agrees_with_its_own_lists(entry):
    assert len(entry.class_names) == entry.classes
    assert len(set(entry.class_names)) >= entry.classes - 2  # ImageNet has two missiles and two pairs of sunglasses
    assert entry.layout in ("split_file", "aircraft", "wnid_tree", "index_tree")
    assert bool(entry.test_list) == bool(entry.test_list_from) == (entry.layout in ("split_file", "aircraft"))
    assert entry.names_file or entry.layout != "aircraft"
    if entry.layout == "wnid_tree":
        assert len(set(entry.wnids)) == entry.classes
        assert list(entry.wnids) == sorted(entry.wnids)


def test_subsets_share_names_and_wnids_with_imagenet():
    whole = catalogue()["imagenet"]
    names = dict(zip(whole.wnids, whole.class_names, strict=True))
    a, r = catalogue()["imagenet_a"], catalogue()["imagenet_r"]
    for part in (a, r):
        assert part.class_names == tuple(names[wnid] for wnid in part.wnids)
    assert len(set(a.wnids) & set(r.wnids)) == 86


def test_the_ten_and_imagenet_have_the_counts_of_the_paper():
    counts = {id: (entry.classes, entry.count) for id, entry in IMAGE_SETS.items() if not id.startswith("imagenet_")}
    assert counts == {
        "oxford_flowers": (102, 2463),
        "dtd": (47, 1692),
        "oxford_pets": (37, 3669),
        "stanford_cars": (196, 8041),
        "ucf101": (101, 3783),
        "caltech101": (100, 2465),
        "food101": (101, 30300),
        "sun397": (397, 19850),
        "fgvc_aircraft": (100, 3333),
        "eurosat": (10, 8100),
        "imagenet": (1000, 50000),
    }


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("oxford_flower", "no dataset is called 'oxford_flower'; did you mean 'oxford_flowers'?"),
        ("dtd/legacy", "dtd has no variants"),
        ("imagenet_a/new", "imagenet_a has the variants imagenet_a/legacy"),
        ("imagenet_c/fog", "imagenet_c is chosen as imagenet_c/"),
        ("imagenet_c/fogg/5", "'fogg' does not exist; did you mean 'fog'?"),
        ("imagenet_c/fog/6", "'6' does not exist; known: 1, 2, 3, 4, 5"),
    ],
)
def test_an_unknown_name_is_answered_with_a_known_one(source, said):
    assert said in refusal(find_entry, source)


# -- every layout ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_a_miniature_is_read_as_it_was_written_and_is_incomplete_by_its_counts(source, tmp_path):
    rows, entry = build(source, tmp_path), find_entry(source)
    found, report = open_samples(source, root=tmp_path), check(source, tmp_path)
    assert [image.key for image in found.samples] == [key for key, _, _ in rows]
    assert found.labels.tolist() == [label for _, label, _ in rows]
    assert [found.class_names[label] for label in found.labels] == [name for _, _, name in rows]
    assert (found.name, len(found.class_names)) == (source, entry.classes)
    assert all(image.read().startswith(b"\xff\xd8") for image in found.samples)
    assert f"{len(rows)} images, where the full set has {entry.count:,}" in found.notes
    assert not report.complete
    assert (report.images, report.expected_images) == (len(rows), entry.count)
    assert (report.classes, report.expected_classes) == (len({label for _, label, _ in rows}), entry.classes)
    assert any(f"{len(rows)} images, the full set has {entry.count:,}" in problem for problem in report.problems)
    assert any(f"of {entry.classes:,} classes have no images" in problem for problem in report.problems)


@pytest.mark.parametrize("source", SOURCES)
def test_an_empty_data_folder_is_told_what_to_get(source, tmp_path):
    entry = find_entry(source)
    said = refused(source, tmp_path)
    assert f"no folder of images {tmp_path / entry.images[0]}; get it from {entry.images_from}" in said
    assert f"'pta datasets check {source} --data {tmp_path}'" in said
    report = check(source, tmp_path)
    needed = {"folder of images", *(["list of test images"] if entry.test_list else [])}
    needed |= {"list of class names"} if source == "fgvc_aircraft" else set()
    assert {what for what in needed if any(f"no {what} " in problem for problem in report.problems)} == needed
    assert len(report.problems) == len(needed)
    assert (report.images, report.classes, report.complete) == (0, 0, False)


def test_prompts_are_those_of_the_set(tmp_path):
    for source, prompts in (("dtd", "dtd"), ("imagenet_r", "imagenet_r"), ("imagenet_c/fog/5", "imagenet")):
        build(source, tmp_path)
        assert open_samples(source, root=tmp_path).prompts == prompts
    for entry in catalogue().values():
        assert all(load_templates(mixture, entry.prompts) for mixture in ("clip", "coop", "dpe"))


def test_class_names_of_ones_own_replace_those_of_the_set(tmp_path):
    build("eurosat", tmp_path)
    split_of(tmp_path, "eurosat", [["AnnualCrop/1.jpg", 0, "field"], ["SeaLake/1.jpg", 9, "water"]])
    names = [f"class {number}" for number in range(10)]
    assert open_samples("eurosat", root=tmp_path, class_names=names).class_names == tuple(names)
    assert "10 classes, but 2 class names" in refused("eurosat", tmp_path, class_names=["a", "b"])
    assert "calls class 0 'field', where eurosat has 'Annual Crop Land'" in refused("eurosat", tmp_path)


def test_other_programs_folder_names_are_found(tmp_path):
    write_images(tmp_path / "imagenet-a", ["n01498041/a.jpg"])
    assert len(open_samples("imagenet_a", root=tmp_path)) == 1
    build("dtd", tmp_path)
    (tmp_path / "dtd").rename(tmp_path / "DTD")
    assert len(open_samples("dtd", root=tmp_path)) == 3


@pytest.mark.parametrize(
    ("source", "folder"),
    [("oxford_pets", "OxfordPets"), ("ucf101", "UCF101"), ("caltech101", "Caltech101"), ("sun397", "SUN397")],
)
def test_images_may_lie_right_in_the_folder_that_tpt_calls_them_by(source, folder, tmp_path):
    rows = build(source, tmp_path)
    entry = find_entry(source)
    (tmp_path / entry.images[0]).rename(tmp_path / folder)
    (tmp_path / entry.test_list[0]).rename(tmp_path / folder / (tmp_path / entry.test_list[0]).name)
    found = open_samples(source, root=tmp_path)
    assert [image.path for image in found.samples] == [tmp_path / folder / key for key, _, _ in rows]


def test_the_folder_of_the_set_itself_is_answered_with_the_one_above(tmp_path):
    build("dtd", tmp_path)
    assert f"so give {tmp_path} as the data folder" in refused("dtd", tmp_path / "dtd")


# -- split files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", 'has no list under "test"'),
        ('{"test": {}}', 'has no list under "test"'),
        ('{"test": []}', "lists no images"),
        ('{"test": [["banded/one.jpg", 0]]}', "row 0 of test is"),
        ('{"test": [["banded/one.jpg", true, "banded"]]}', "expected [path, label, class name]"),
        ('{"test": [["banded/one.jpg", -1, "banded"]]}', "expected [path, label, class name]"),
        ('{"test": [["banded/one.jpg", 47, "banded"]]}', "label 47 of banded/one.jpg does not exist; dtd has 47"),
        ('{"test": [["banded/one.jpg", 1, "banded"]]}', "calls class 1 'banded', where dtd has 'blotchy'"),
        ('{"test": [["../secret.jpg", 0, "banded"]]}', "points to '../secret.jpg', outside of"),
        ('{"test": [["/etc/passwd", 0, "banded"]]}', "points to '/etc/passwd', outside of"),
        ('{"test": [["a\\u0000.jpg", 0, "banded"]]}', "outside of"),
        ('{"test": [["gone.jpg", 0, "banded"]]}', "1 of 1 images, the first is"),
        ('{"test": [["banded", 0, "banded"]]}', "1 of 1 images, the first is"),  # a folder
        (json.dumps({"test": [["long" * 2000, 0, "banded"]]}), "1 of 1 images, the first is"),
    ],
)
def test_a_wrong_split_file_is_one_clear_line(tmp_path, content, said):
    build("dtd", tmp_path)
    (tmp_path / "dtd/split_zhou_DescribableTextures.json").write_text(content)
    assert said in refused("dtd", tmp_path)
    assert not check("dtd", tmp_path).complete


def test_names_in_a_split_file_may_have_spaces_for_underscores(tmp_path):
    build("ucf101", tmp_path)
    split_of(tmp_path, "ucf101", [["Apply_Eye_Makeup/v_1.jpg", 0, "Apply Eye Makeup"]])
    assert open_samples("ucf101", root=tmp_path).labels.tolist() == [0]


def test_aircraft_lists_must_agree(tmp_path):
    build("fgvc_aircraft", tmp_path)
    folder = tmp_path / "fgvc_aircraft"
    (folder / "images_variant_test.txt").write_text("0000007 Concorde\n")
    assert "line 1 names 'Concorde', which is not in" in refused("fgvc_aircraft", tmp_path)
    (folder / "variants.txt").write_text("Concorde\n")
    assert "calls class 0 'Concorde', where fgvc_aircraft has '707-320'" in refused("fgvc_aircraft", tmp_path)
    (folder / "variants.txt").unlink()
    assert "no list of class names" in refused("fgvc_aircraft", tmp_path)


# -- ImageNet and its relatives ----------------------------------------------------------------------------------------


def test_imagenet_a_is_whole_unless_the_legacy_filter_is_asked_for(tmp_path):
    rows = build("imagenet_a", tmp_path)
    full, legacy = (open_samples(source, root=tmp_path) for source in ("imagenet_a", "imagenet_a/legacy"))
    assert len(full) == len(rows) == 4
    assert any("all 4 images; imagenet_a/legacy would leave out 2 of 4 images" in note for note in full.notes)
    assert [image.key for image in legacy.samples] == [key for key, _, _ in rows if "sh" not in key]
    assert legacy.labels.tolist() == [0, 1]
    assert "left out as the released program does: 2 of 4 images" in legacy.notes[0]
    assert legacy.prompts == "imagenet_a"
    assert full.notes[0] in check("imagenet_a", tmp_path).notes
    report = check("imagenet_a/legacy", tmp_path)
    assert (report.images, report.expected_images) == (2, None)


def test_labels_of_v2_are_numbers_and_not_ranks_of_texts(tmp_path):
    write_images(tmp_path / TREES["imagenet_v2"][0], ["999/a.jpeg", "10/a.jpeg", "9/a.jpeg"])
    assert open_samples("imagenet_v2", root=tmp_path).labels.tolist() == [10, 9, 999]


def test_the_users_class_names_are_used_and_differences_told(tmp_path):
    build("imagenet_r", tmp_path)
    entry = catalogue()["imagenet_r"]
    lines = dict(zip(catalogue()["imagenet"].wnids, catalogue()["imagenet"].class_names, strict=True))

    def open_with(names):
        text = "".join(f"{wnid} {name}\n" for wnid, name in names.items())
        (tmp_path / "imagenet-rendition/classnames.txt").write_text(text)
        return open_samples("imagenet_r", root=tmp_path)

    agreeing = open_with(lines)
    assert agreeing.class_names == entry.class_names
    assert not any("class names" in note for note in agreeing.notes)
    differing = open_with(lines | {"n01443537": "carassius auratus", "n01440764": "not in R"})
    assert differing.class_names == ("carassius auratus", *entry.class_names[1:])
    told = "1 class names of classnames.txt are not those of pta, the first is 'carassius auratus'"
    assert told in differing.notes[0]
    assert "has no name for n01484850 (199 missing)" in refusal(open_with, {"n01443537": "goldfish"})


def test_a_tree_of_other_folders_is_refused(tmp_path):
    build("imagenet_a", tmp_path)
    folder = tmp_path / TREES["imagenet_a"][0]
    (folder / "empty").mkdir()
    assert len(open_samples("imagenet_a", root=tmp_path)) == 4
    write_images(folder, ["n01440764/a.jpg"])  # a class of ImageNet, but not of A
    assert "n01440764 is not one of the 200 class folders of imagenet_a" in refused("imagenet_a", tmp_path)


def test_a_tree_without_images_or_with_unsorted_ones_is_refused(tmp_path):
    (tmp_path / "imagenet/images/val/n01440764").mkdir(parents=True)
    assert "imagenet: no images in" in refused("imagenet", tmp_path)
    write_images(tmp_path / "imagenet/images/val", ["val_1.JPEG", "val_2.JPEG"])
    assert "2 images (val_1.JPEG, …) are directly in" in refused("imagenet", tmp_path)


def test_imagenet_c_is_opened_one_corruption_and_severity_at_a_time(tmp_path):
    build("imagenet_c/fog/5", tmp_path)
    assert "choose one, for example imagenet_c/gaussian_noise/5" in refused("imagenet_c", tmp_path)
    assert "no folder of images" in refused("imagenet_c/snow/1", tmp_path)


# -- check -------------------------------------------------------------------------------------------------------------


def every_class_of(source, root):
    """A tree with one image of every class, and the entry that takes it for the full set."""
    entry = find_entry(source)
    folder = root / entry.images[0]
    if entry.layout == "split_file":
        rows = [[f"{label}.jpg", label, name] for label, name in enumerate(entry.class_names)]
        write_images(folder, [key for key, _, _ in rows])
        (root / entry.test_list[0]).write_text(json.dumps({"test": rows}))
    else:
        for name in entry.class_folders:
            (folder / name).mkdir(parents=True)
            (folder / name / "a.jpg").touch()
    return replace(entry, count=entry.classes)


@pytest.mark.parametrize("source", ["eurosat", "stanford_cars", "imagenet_a", "imagenet_v2", "imagenet_c/snow/3"])
def test_a_full_set_is_complete_and_one_file_less_is_not(source, tmp_path):
    entry = every_class_of(source, tmp_path)
    seen = []
    report = check(entry, tmp_path, lambda done, total: seen.append((done, total)))
    assert report.complete, report.problems
    assert report.images == report.classes == entry.classes
    assert seen[-1] == (entry.classes, entry.classes)

    folder = tmp_path / entry.images[0]
    victim = min(folder.rglob("*.jpg"))
    victim.unlink()
    report = check(entry, tmp_path)
    assert not report.complete
    assert report.images == entry.classes - 1
    listed = f"1 images are listed but missing: {victim.relative_to(folder)}"
    assert (listed if entry.test_list else f"1 of {entry.classes:,} classes have no images") in " ".join(
        report.problems
    )


def test_check_of_imagenet_c_goes_over_the_parts_that_are_there(tmp_path):
    entry = find_entry("imagenet_c")
    for part in ("fog/5", "snow/1"):
        every_class_of(f"imagenet_c/{part}", tmp_path)
    seen = []
    report = check(replace(entry, count=1000), tmp_path, lambda done, total: seen.append((done, total)))
    assert report.complete, report.problems
    assert (report.images, report.expected_images, report.classes) == (2000, 2000, 1000)
    assert "2 of 75 parts were found" in report.notes[0]
    assert seen == sorted(seen)
    assert seen[-1] == (2000, 2000)
    (tmp_path / "imagenet-c/snow/1/n01440764/a.jpg").unlink()
    said = check(replace(entry, count=1000), tmp_path).problems
    assert said[0].startswith("snow/1: 1 of 1,000 classes have no images: tench")


def test_an_imagenet_c_without_any_known_part_is_incomplete(tmp_path):
    write_images(tmp_path / "imagenet-c/rain/5", ["n01440764/a.jpg"])
    assert check("imagenet_c", tmp_path).problems == (
        "none of its 75 parts were found: gaussian_noise/1, gaussian_noise/2, gaussian_noise/3, …",
    )


# -- the commands ------------------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_list_shows_every_set(tmp_path):
    shown = run()
    assert shown.exit_code == 0
    assert all(id in shown.stdout for id in catalogue())
    records = json.loads(run("--json", "-").stdout)
    assert [record["id"] for record in records] == list(catalogue())
    assert records[1] == {
        "id": "dtd",
        "title": "Describable Textures",
        "classes": 47,
        "images": 1692,
        "folder": "dtd/images",
        "list": "dtd/split_zhou_DescribableTextures.json",
        "templates": "dtd",
        "parts": [],
        "variants": [],
    }
    assert run("--json", tmp_path / "list.json").exit_code == 0
    assert json.loads((tmp_path / "list.json").read_text()) == records


def test_the_check_command_speaks_plainly_and_exits_with_one_for_an_incomplete_set(tmp_path):
    build("dtd", tmp_path)
    out = tmp_path / "report.json"
    done = run("check", "dtd", "--data", tmp_path, "--json", out)
    assert done.exit_code == 1
    assert "samples  3 of 1,692" in done.stdout
    assert "missing  45 of 47 classes have no images: blotchy, braided, bubbly, …" in done.stdout
    assert done.stdout.endswith("incomplete\n")
    record = json.loads(out.read_text())
    assert (record["images"], record["complete"]) == (3, False)
    assert json.loads(run("check", "dtd", "--data", tmp_path, "--json", "-").stdout) == record


def test_the_check_command_exits_with_zero_for_a_complete_set(tmp_path, monkeypatch):
    entry = every_class_of("eurosat", tmp_path)
    monkeypatch.setitem(catalogue(), "eurosat", entry)
    done = run("check", "eurosat", "--data", tmp_path)
    assert done.exit_code == 0
    assert "samples  10 of 10" in done.stdout
    assert done.stdout.endswith("\ncomplete\n")


def test_an_unknown_set_or_folder_is_the_users_mistake(tmp_path):
    with pytest.raises(UnreadableFile, match="no such folder"):
        check("dtd", tmp_path / "nothing")
    done = run("check", "dtdd", "--data", tmp_path)
    assert isinstance(done.exception, InvalidParameter)  # which the command `pta` turns into exit code 2
    assert "did you mean 'dtd'?" in str(done.exception)
