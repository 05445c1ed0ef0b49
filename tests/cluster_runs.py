"""Runs of `pta.cluster` on a few pictures: made once, with the embedded model and small blocks."""

from PIL import Image

from pta.cluster.blocks.tasks import TaskQueue, ThisProcess, nothing_more, silent
from pta.cluster.ray.extraction import BlockExtraction, extract_blocks
from pta.cluster.ray.listing import number_samples
from pta.cluster.ray.prediction import FeatureFolder, predict_blocks
from pta.cluster.ray.storage import Folder
from pta.core.modality import IMAGES
from pta.data.fashion import load_fashion_test
from pta.data.prompts import build_classifier, load_templates
from pta.data.sources.table import list_samples
from pta.methods import create_adapter
from pta.models import load_encoder
from pta.run.reading import Reading

BLOCK = 16
FASHION = load_fashion_test()
CLASSES = FASHION.class_names


def write_pictures(folder, count, first=0):
    """So many packaged pictures as files, called by their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        Image.fromarray(FASHION.images[number]).save(folder / f"{number:04d}.png")
    return folder


def extraction_of(source, on_error="stop", block=BLOCK, by=None, classes=CLASSES, labelled=False):
    """What workers are told about the pictures of a source."""
    encoder = load_encoder("embedded")
    classifier = build_classifier(encoder, classes, load_templates("clip"))
    listing = number_samples(list_samples(str(source), IMAGES, by), classes, labelled=labelled).cut(block)
    reading = Reading(batch=8, workers=1)
    return BlockExtraction(listing, encoder, "embedded", "cpu", reading, on_error, classifier, "pictures", block)


def extract(source, out, pool=None, **how):
    """A folder of feature blocks."""
    return extract_blocks(extraction_of(source, **how), pool or ThisProcess(), Folder(str(out)))


def predict(source, out, pool=None, method="pta", epsilon=1e-6, parameters=(), **how):
    """A folder of labels, of pictures or of a folder of feature blocks."""
    features = FeatureFolder.find(str(source))
    data = features or extraction_of(source, **how)
    classifier = features.classifier() if features else data.classifier
    adapter = create_adapter(method, classifier, **dict(parameters))
    return predict_blocks(data, adapter, pool or ThisProcess(), Folder(str(out)), epsilon)


def contents(folder, ending):
    """The bytes of all blocks in a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"0*.{ending}"))}


class LastFirst(TaskQueue):
    """Gives the last of the tasks that wait."""

    def take(self, worker=None, may_do=None):
        return self.waiting.pop() if self.waiting else None


class Backwards(ThisProcess):
    """Does the last of the tasks that wait first."""

    def each(self, tasks, shared, told=silent, then=nothing_more):
        queue = LastFirst(tasks, then)
        while (number := queue.take()) is not None:
            queue.finish(number, queue.tasks[number](shared))
        return queue.ordered()
