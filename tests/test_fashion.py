"""The packaged Fashion-MNIST images."""

from importlib import resources

import numpy as np

from pta.datasets.fashion import load_fashion_test


def test_there_are_2000_small_grey_images_of_ten_named_classes_in_the_published_order():
    test = load_fashion_test()
    assert (test.images.shape, test.labels.shape) == ((2000, 28, 28), (2000,))
    assert test.images.dtype == test.labels.dtype == np.uint8
    assert len(set(test.class_names)) == 10
    assert np.bincount(test.labels, minlength=10).min() > 150
    assert test.labels[:12].tolist() == [9, 2, 1, 1, 6, 1, 4, 6, 5, 7, 4, 5]


def test_each_load_gives_fresh_arrays():
    load_fashion_test().images[:] = 0
    assert load_fashion_test().images.any()


def test_the_file_is_small():
    assert len((resources.files("pta") / "data" / "fashion_mnist_test_2000.npz").read_bytes()) <= 1_500_000
