"""Files of clouds and meshes: every format, surfaces that are drawn from by area, and files nobody vouches for."""

import io
import struct
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from effort import repeated
from hostile_archives import Trap
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal

from pta.door.points.cloud import MOST_ROWS, normalised
from pta.door.points.mesh import Mesh
from pta.door.points.reading import read_cloud
from pta.errors import UnreadableSample

POINTS = np.random.default_rng(2).uniform(-5, 7, (20, 3)).astype(np.float32)
TETRAHEDRON = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
SIDES = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]


def npy(array, **how):
    content = io.BytesIO()
    np.save(content, array, **how)
    return content.getvalue()


def npz(**arrays):
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def text(rows):
    return "".join(" ".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist())


def header(format, *lines):
    return "\n".join(["ply", f"format {format} 1.0", "comment no end_header", *lines, "end_header", ""]).encode()


VERTICES = ("element vertex 20", "property uchar red", *(f"property double {axis}" for axis in "zyx"))
FACES = ("element face 4", "property uchar flags", "property list uchar int vertex_indices")


def binary_ply(order, points, faces):
    format = "binary_little_endian" if order == "<" else "binary_big_endian"
    lines = [f"element vertex {len(points)}", *VERTICES[1:], f"element face {len(faces)}", *FACES[1:]]
    body = b"".join(struct.pack(f"{order}B3d", 7, z, y, x) for x, y, z in points)
    body += b"".join(struct.pack(f"{order}BB{len(face)}i", 3, len(face), *face) for face in faces)
    return header(format, *lines) + body


# -- clouds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        npy(POINTS),
        npy(np.asfortranarray(POINTS)),
        npy(POINTS.astype(">f8")),
        npz(any=POINTS),
        npz(labels=np.arange(3), points=POINTS),
    ],
)
def test_arrays_are_taken_as_they_are(content):
    np.testing.assert_array_equal(read_cloud(content), POINTS)


@pytest.mark.parametrize(
    "content",
    [
        text(POINTS).encode(),
        ("# x y z r g b\n\n" + text(np.hstack([POINTS, POINTS]))).replace("\n", "\r\n").encode(),
        text(POINTS).replace(" ", ",").encode(),
        header("ascii", *VERTICES) + text(np.hstack([POINTS[:, :1], POINTS[:, ::-1]])).encode(),
        binary_ply("<", POINTS, []),
        binary_ply(">", POINTS, []),
    ],
)
def test_points_that_other_programs_write_are_normalised(content):
    found = read_cloud(content)
    np.testing.assert_allclose(found, normalised(POINTS.astype(np.float64)), atol=1e-6)
    assert np.linalg.norm(found, axis=1).max() == pytest.approx(1)


def test_coordinates_far_from_the_origin_keep_their_digits():
    moved = POINTS.astype(np.float64) + np.array([5e5, 4e6, 0])
    np.testing.assert_allclose(read_cloud(text(moved).encode()), normalised(POINTS.astype(np.float64)), atol=1e-6)


# -- meshes ------------------------------------------------------------------------------------------------------------

OBJ = "mtllib /etc/passwd\no thing\n" + "".join(f"v {row}" for row in text(TETRAHEDRON).splitlines(True))
MESHES = {
    "off": ("OFF\n# a comment\n4 4 6\n" + text(TETRAHEDRON) + text([[3, *side] for side in SIDES])).encode(),
    "off of ModelNet40": ("OFF4 4 0\n" + text(TETRAHEDRON) + text([[3, *side] for side in SIDES])).encode(),
    "obj": (OBJ + "".join(f"f {a + 1}/1/1 {b + 1}//2 {c + 1}/3\n" for a, b, c in SIDES)).encode(),
    "obj by tabs": (
        "\ufeffcstype bmatrix\n" + OBJ + "".join(f"f {a + 1} {b + 1} {c + 1} # side\n" for a, b, c in SIDES)
    )
    .replace(" ", "\t")
    .replace("\n", "\r\n")
    .encode(),
    "obj from the end": (OBJ + "".join(f"f {a - 4} {b - 4} {c - 4}\n" for a, b, c in SIDES)).encode(),
    "ply": header("ascii", "element vertex 4", *(f"property float {axis}" for axis in "xyz"), *FACES)
    + (text(TETRAHEDRON) + text([[9, 3, *side] for side in SIDES])).encode(),
    "binary ply": binary_ply("<", TETRAHEDRON, SIDES),
    "binary ply, big end first": binary_ply(">", TETRAHEDRON, SIDES),
}


@pytest.mark.parametrize("kind", MESHES)
def test_every_format_gives_the_points_of_the_same_surface(kind):
    expected = normalised(Mesh.of(TETRAHEDRON, SIDES).sample(500, seed=4))
    np.testing.assert_allclose(read_cloud(MESHES[kind], points=500, seed=4), expected, atol=1e-6)
    assert not np.allclose(read_cloud(MESHES[kind], points=500, seed=5), expected)
    assert len(read_cloud(MESHES[kind])) == 1024


def test_each_triangle_gets_points_by_its_area_and_all_over_it():
    """Three triangles in planes of their own, with areas 1 : 4 : 16, and some without area."""
    corners = [np.array([(0, 0, z), (size, 0, z), (0, size, z)]) for z, size in ((1, 1), (2, 2), (3, 4))]
    faces = [[0, 1, 2], [0, 0, 5], [3, 4, 5], [0, 1, 1], [6, 7, 8], [2, 2, 2]]
    drawn = Mesh.of(np.concatenate(corners).astype(float), faces).sample(21_000, seed=1)
    counts = np.bincount(drawn[:, 2].round().astype(int), minlength=4)[1:]
    expected = np.array([1000, 4000, 16_000])
    assert ((counts - expected) ** 2 / expected).sum() < 14, "χ² with 2 degrees of freedom, one chance in a thousand"
    largest = drawn[drawn[:, 2] > 2.5] / 4
    quarters = np.bincount((largest[:, 0] > 0.5) + 2 * (largest[:, 1] > 0.5) + 3 * (largest[:, :2].sum(1) < 0.5))
    quarters = quarters[quarters > 0]  # the middle triangle and the three at the corners have equal areas
    assert len(quarters) == 4
    assert ((quarters - quarters.mean()) ** 2 / quarters.mean()).sum() < 17


@given(corners=st.integers(3, 9), points=st.integers(8, 50), seed=st.integers(0, 99))
@settings(max_examples=repeated(50), deadline=None)
def test_a_polygon_is_the_fan_of_its_triangles(corners, points, seed):
    turns = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    ring = np.stack([np.cos(turns), np.sin(turns), 0 * turns], axis=1)
    fan = [[0, at, at + 1] for at in range(1, corners - 1)]
    whole = Mesh.of(ring, [list(range(corners))]).sample(points, seed)
    np.testing.assert_allclose(whole, Mesh.of(ring, fan).sample(points, seed))
    edges = np.roll(ring, -1, axis=0) - ring
    assert (np.cross(edges[:, None], whole[None] - ring[:, None])[..., 2] >= -1e-9).all(), "inside the polygon"


def test_polygons_of_different_sizes_stand_in_one_file():
    mixed = [[0, 1, 2], [0, 1, 2, 3], [3], [1, 2]]
    found = read_cloud(binary_ply("<", TETRAHEDRON, mixed), points=64)
    expected = Mesh.of(TETRAHEDRON, [[0, 1, 2], [0, 1, 2], [0, 2, 3]]).sample(64, seed=0)
    np.testing.assert_allclose(found, normalised(expected), atol=1e-6)


# -- what is refused ---------------------------------------------------------------------------------------------------


def spoilt(at, value):
    points = POINTS.astype(np.float64)
    points[at] = value
    return points


NO_FACES = "the mesh has no faces"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (npy(spoilt((4, 1), np.nan)), "point 4 is NaN"),
        (text(spoilt((3, 0), np.inf)).encode(), "point 3 is NaN, infinite"),
        (text(spoilt((0, 0), np.nan)).encode(), "point 0 is NaN"),
        (npy(spoilt((4, 1), 1e300)), "point 4 is .* too large for float32"),
        (npy(POINTS[:7]), "7 points are too few; a cloud has 8 or more"),
        (npy(POINTS[:, :2]), r"must be n×3, one row per point, got shape \(20, 2\)"),
        (npy(POINTS[None]), r"got shape \(1, 20, 3\)"),
        (npy(POINTS > 0), "points must be numbers, got booleans"),
        (npy(np.ones((20, 3))), "all 20 points are equal"),
        (text(np.ones((20, 3))).encode(), "all 20 points are equal"),
        (npz(a=POINTS, b=POINTS), "holds 2 arrays, none of them called points"),
        (("OFF\n4 0 0\n" + text(TETRAHEDRON)).encode(), NO_FACES),
        (OBJ.encode(), NO_FACES),
        (OBJ.encode() + b"f 1 2\n", NO_FACES),
        (OBJ.encode() + b"f 1 2 2\n", "no face of the mesh has an area"),
        (OBJ.encode() + b"f 1 2 5\n", "a face names a corner that is not there; there are 4"),
        (OBJ.encode() + b"f 0 1 2\n", "a face has corner 0; in OBJ the first is 1"),
        (b"v nan 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3", "corner 0 is NaN"),
        (b"", "0 points are too few"),
        (b"hello\n", "cannot be read as a cloud"),
        (b"1 2\n" * 20, "cannot be read as a cloud"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "not a cloud that pta reads"),
        (b"\x89HDF\r\n\x1a\n", "an .h5 file holds many clouds"),
        (header("ascii", "element vertex 20", "property float x"), "its vertex rows have no property y|it ends before"),
        (header("ascii", "element face 0"), "it has no vertices"),
        (b"ply\nelement vertex 20\nend_header\n", "names no format"),
        (b"ply\nformat ascii 1.0\n", "its header has no end"),
        (header("utf8"), "its header has 'utf8' where it should have one of ascii, "),
        (header("ascii", "property float x"), "a property before any element"),
        (header("ascii", *VERTICES, "property float x"), "its vertex rows have two properties 'x'"),
        (header("ascii", *VERTICES, *VERTICES), "its header has two elements 'vertex'"),
        (header("ascii", "element face 1", "property list uchar float vertex_index"), "its header has 'float'"),
        (
            header("ascii", "element vertex 1", "property list char int at", *VERTICES[1:]) + b"0 1 2 3 4",
            "a list before",
        ),
        (
            header(
                "binary_little_endian",
                "element vertex 0",
                *VERTICES[1:],
                "element face 1",
                "property list char int vertex_index",
            )
            + b"\xff",
            "a list of -1 items",
        ),
        (("OFF4 1 0\n" + text(TETRAHEDRON) + "4 0 1 2\n").encode(), "a face should have 4 corners, its line has 3"),
        (npy(np.full((20, 3), "1")), "its array is of <U1, not of real numbers"),
    ],
)
def test_what_is_no_cloud_is_refused_by_name(content, complaint):
    with pytest.raises(UnreadableSample, match=f"^chair.bin.*({complaint})"):
        read_cloud(content, "chair.bin")


XYZ = tuple(f"property float {axis}" for axis in "xyz")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (header("ascii", "element vertex 1000000000000", *XYZ), "1,000,000,000,000 vertex rows are too many"),
        (header("binary_little_endian", "element vertex 1000000", *XYZ), "cannot be read"),
        (header("ascii", "element vertex 1000000", *XYZ), "it ends before its 1,000,000 vertex rows do"),
        (binary_ply("<", TETRAHEDRON, SIDES)[:-1], "cannot be read"),
        (binary_ply("<", TETRAHEDRON, [[0, 1, 2]])[:-13] + b"\xff" + bytes(12), "cannot be read"),
        (b"OFF\n1000000000000 1000000000000 0\n", "are announced, 0 lines follow"),
        (b"OFF\n-4 -4 0\n", "are announced"),
        (b"v 1 2 3\n" * (MOST_ROWS + 1), "points are too many"),
        (b"v 0 0 0\nv 1 0 0\nv 0 1 0\n" + b"f 1 2 3\n" * (MOST_ROWS + 1), "triangles are too many"),
        (b"v 0 0 0\nf" + b" 1" * 2**16, "a line has more than 65,536 letters"),
        (b"\n" * (2**22 + 1), "text of more than"),
    ],
)
def test_a_file_that_announces_or_holds_too_much_is_refused_before_the_work(content, complaint, monkeypatch):
    if "too many" not in complaint:
        monkeypatch.setattr("numpy.loadtxt", lambda *_, **__: pytest.fail("numbers were read"))
    with pytest.raises(UnreadableSample, match=complaint):
        read_cloud(content)


def test_pickles_and_wrong_sizes_in_arrays_are_refused_and_nothing_runs(tmp_path):
    trap = np.array([Trap(tmp_path / "sprung")] * 3, dtype=object)
    inside = npz(points=POINTS)
    with zipfile.ZipFile(io.BytesIO(inside)) as archive:
        member = archive.read("points.npy")
    for content in (npy(trap, allow_pickle=True), member.replace(b"(20, 3)", b"(10**9, 3)"), member[:-1]):
        assert "cannot be read as a cloud" in refusal(read_cloud, content)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("points.npy", content)
        assert "cannot be read as a cloud" in refusal(read_cloud, packed.getvalue())
    assert not (tmp_path / "sprung").exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(monkeypatch):
    bomb = npz(points=np.zeros((MOST_ROWS + 1000, 3)))
    assert len(bomb) < 200_000
    monkeypatch.setattr("pta.door.points.reading.read_npy", lambda *_: pytest.fail("unpacked"))
    assert f"more than {MOST_ROWS:,} points are not read" in refusal(read_cloud, bomb)


@given(content=st.sampled_from([*MESHES.values(), npy(POINTS), npz(a=POINTS), text(POINTS).encode()]), data=st.data())
@settings(max_examples=repeated(200), deadline=None)
def test_damaged_files_give_a_cloud_or_one_line(content, data):
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = content[:at] + data.draw(st.binary(max_size=4)) + content[at + data.draw(st.integers(0, 4)) :]
    with suppress(UnreadableSample):
        assert read_cloud(damaged, points=16).shape[1] == 3
