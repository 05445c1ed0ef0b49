"""Features are extracted once, shared by all, and given to a method as its row wants them."""

import threading

import numpy as np
import pytest
import torch

from pta import Samples, ZeroShotClassifier
from pta.data.features import FeatureFile
from pta.data.views import confident_mean
from pta.door.claims import sole_writer
from pta.errors import InvalidParameter, InvalidSamples, UnreadableFile
from pta.measure.reproduce.library import VIEWS, Library
from pta.methods import adapter_class

SIX = "fashion/gaussian_noise/3/6"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return Library(tmp_path_factory.mktemp("features"), model="embedded")


def given_to(library, method, views=None):
    return library.features(SIX, views=views, needs=adapter_class(method).needs)


def test_a_method_that_takes_views_has_them_beside_the_plain_image(library):
    with_views, plain = given_to(library, "mta", "crops"), given_to(library, "pta")
    assert with_views.samples.views.shape == (6, VIEWS, library.encoder.dim)
    torch.testing.assert_close(with_views.samples.features, plain.samples.features, atol=1e-5, rtol=0)
    assert plain.samples.views is None


def test_the_mean_of_the_most_confident_is_for_methods_without_views_and_rows_that_want_it(library):
    data, plain = given_to(library, "boostadapter", "crops-mean"), given_to(library, "boostadapter", "crops")
    expected = confident_mean(plain.samples, plain.classifier).features.double()
    for given in (data, given_to(library, "pta", "crops")):
        torch.testing.assert_close(given.samples.features.double(), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(data.samples.most_confident.double().mean(dim=1), expected, atol=1e-5, rtol=0)
    assert data.fingerprint != plain.fingerprint != given_to(library, "pta").fingerprint


def test_views_of_two_modes_stand_behind_each_other_and_the_plain_image_comes_once(library):
    crops, augmix, both = (given_to(library, "tpt", mode).samples.views for mode in ("crops", "augmix", "crops+augmix"))
    torch.testing.assert_close(both, torch.cat([crops, augmix[:, 1:]], dim=1))
    many = given_to(library, "tpt", "augmix-128").samples.views
    torch.testing.assert_close(many[:, :VIEWS], augmix, atol=2e-3, rtol=0)  # kept in half precision
    assert many.shape[1] == 128


def test_patches_are_extracted_once_and_joined_to_views_that_other_methods_use(library):
    samples = given_to(library, "gs-bias", "augmix").samples
    assert torch.equal(samples.views, given_to(library, "tpt", "augmix").samples.views)
    assert torch.equal(samples.patches, library.features(SIX, needs=frozenset({"features", "patches"})).samples.patches)


def test_clouds_have_a_model_of_their_own_and_one_file_with_their_local_features(tmp_path, monkeypatch):
    library = Library(tmp_path, model="embedded", models={"point_shapes": "embedded-points"})
    jittered, turned = (f"point_shapes/furniture/{corruption}/2/5" for corruption in ("jitter", "rotate"))
    plain, local = (library.features(jittered, needs=adapter_class(method).needs) for method in ("pta", "point-cache"))
    assert plain.fingerprint == local.fingerprint
    assert plain.samples.patches.shape == (5, 3, 128)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    assert not library.is_model_loaded  # that of images

    def refuses(self):
        raise InvalidParameter("it gives no patches")

    monkeypatch.setattr(type(library.encoder_of(turned)), "patch_count", refuses)
    assert library.features(turned).samples.patches is None


def test_other_templates_change_the_anchors_and_nothing_of_the_images(library):
    usual, other = library.features(SIX), library.features(SIX, templates="vanilla")
    assert torch.equal(usual.samples.features, other.samples.features)
    assert not torch.equal(usual.classifier.anchors, other.classifier.anchors)


def test_a_second_library_on_the_folder_finds_all_of_it_done(library):
    first = library.features(SIX)
    (file,) = library.folder.glob(f"*-{library.encoder.fingerprint[:12]}.safetensors")  # not of views or patches
    before, told = file.stat().st_mtime_ns, []
    second = Library(library.folder, model="embedded", on_progress=lambda *what: told.append(what))
    assert second.features(SIX).fingerprint == first.fingerprint
    assert (file.stat().st_mtime_ns, told) == (before, [])


def test_a_damaged_file_is_made_again(tmp_path):
    first = Library(tmp_path, model="embedded").features(SIX)
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:1000])
    assert Library(tmp_path, model="embedded").features(SIX).fingerprint == first.fingerprint


def test_pixels_are_not_made_beside_views(library):
    with pytest.raises(InvalidParameter, match="cannot be stored together with views"):
        library.features(SIX, views="crops", needs=frozenset({"raw", "views"}))


def test_an_extraction_that_is_under_way_is_waited_for(tmp_path):
    Library(tmp_path, model="embedded").features(SIX)
    (file,) = tmp_path.glob("*.safetensors")
    file.unlink()
    found = []
    waiting = threading.Thread(target=lambda: found.append(Library(tmp_path, model="embedded").features(SIX)))
    with sole_writer(file):
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        assert not file.exists()
    waiting.join()
    assert len(found[0].samples) == 6


# -- the user's own files ----------------------------------------------------------------------------------------------


def own_file(views=None):
    features = torch.nn.functional.normalize(torch.tensor([[1.0, 0.2], [0.1, 1.0]]), dim=1)
    classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    return FeatureFile("mine", Samples.of(features, views=views), classifier, np.array([0, 1]))


def test_own_files_are_given_as_they_are_and_their_texts_cannot_be_changed(tmp_path):
    library = Library(tmp_path / "features", own={"mine": own_file()})
    assert library.features("mine").fingerprint == own_file().fingerprint
    assert library.features("mine", templates="coop").fingerprint == own_file().fingerprint
    for wish in ({"templates": "vanilla"}, {"descriptions": True}):
        with pytest.raises(InvalidParameter, match="the texts of a feature file cannot be changed"):
            library.features("mine", **wish)
    with pytest.raises(InvalidSamples, match="mine is a feature file; it has no images"):
        library.images("mine")
    assert not library.is_model_loaded
    assert not library.folder.exists()


def test_views_of_own_files_are_used_if_they_hold_some(tmp_path):
    views = torch.nn.functional.normalize(torch.rand(2, 20, 2, generator=torch.Generator().manual_seed(1)), dim=2)
    library = Library(tmp_path, own={"mine": own_file(), "rich": own_file(views)})
    with pytest.raises(InvalidSamples, match="the feature file holds no views"):
        library.features("mine", views="crops")
    averaged = library.features("rich", views="crops")
    assert not torch.equal(averaged.samples.features, own_file().samples.features)
    assert library.features("rich", views="crops", needs=frozenset({"features", "views"})).samples.views is not None


# -- what is not there -------------------------------------------------------------------------------------------------


def test_what_is_missing_is_said(tmp_path):
    library = Library(tmp_path, model="embedded", views_of=["fashion/clean"])
    with pytest.raises(UnreadableFile, match="dtd: give the folder of the datasets with --data ROOT"):
        library.features("dtd")
    with pytest.raises(InvalidSamples, match="views are only made of fashion/clean"):
        library.features(SIX, views="crops")
    with pytest.raises(InvalidParameter, match="--descriptions FOLDER"):
        library.features(SIX, descriptions=True)
    with pytest.raises(InvalidSamples, match="no generated pictures"):
        library.features(SIX, views="crops", needs=adapter_class("difftpt").needs)
    own = Library(tmp_path, own={"mine": own_file(torch.eye(2)[:, None])})
    with pytest.raises(InvalidSamples, match="the feature file holds no generated pictures"):
        own.features("mine", views="crops", needs=adapter_class("difftpt").needs)
