"""Makes the test images that the package carries: the first 2,000 of Fashion-MNIST's test file."""

import argparse
from pathlib import Path

import numpy as np
from fashion_idx import read_fashion

COUNT = 2000


def main() -> None:
    """Write the subset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the four .gz files")
    parser.add_argument("--out", type=Path, default=Path("src/pta/assets/fashion_mnist_test_2000.npz"))
    arguments = parser.parse_args()
    images, labels = read_fashion(arguments.data, "t10k")
    np.savez_compressed(arguments.out, images=images[:COUNT], labels=labels[:COUNT])
    print(f"{arguments.out}: {COUNT} images, {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
