"""Real JPEG files to work on, made from the packaged test images."""

from PIL import Image

from pta.datasets.fashion import load_fashion_test

FASHION = load_fashion_test()


def write_photos(folder, count=40, size=(96, 80)):
    """A folder with a sub-folder a class; returns the paths in order and the class of each."""
    labelled = []
    for number in range(count):
        name = FASHION.class_names[FASHION.labels[number]]
        path = folder / name / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(FASHION.images[number]).resize(size).convert("RGB").save(path, quality=95)
        labelled.append((path, name))
    return sorted(labelled)


def write_classes(path):
    """The class names, one a line."""
    path.write_text("\n".join(FASHION.class_names) + "\n")
    return path
