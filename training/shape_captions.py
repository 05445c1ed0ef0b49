"""What the text tower of the embedded model of clouds reads in training."""

from pta.models.packaged.embedded import training_nouns

NOUNS = training_nouns("embedded-points")
"""For each class name, other names of the same thing."""

OPENINGS = (
    "",
    "a ",
    "the ",
    "my ",
    "one ",
    "some ",
    "a point cloud of a ",
    "a point cloud of the ",
    "a cloud of points from a ",
    "a 3d model of a ",
    "a 3d model of the ",
    "a 3d scan of a ",
    "the scan of the ",
    "a mesh of a ",
    "a model of one ",
    "an object: ",
    "this is a ",
    "this is the ",
    "this object is a ",
    "there is a ",
    "that is my ",
    "it is a ",
    "look at this ",
    "look at the ",
    "a rendering of a ",
    "a drawing of a ",
    "a sketch of the ",
    "a photo of a ",
    "a picture of the ",
    "a depth map of a ",
    "a sparse view of a ",
    "a toy model of a ",
    "points sampled from a ",
    "points of the ",
    "i measured a ",
    "she has a ",
    "he built the ",
    "they wanted this ",
    "an example of a ",
    "the category is ",
)

ENDINGS = (
    "",
    "",
    ".",
    ".",
    "!",
    " in 3d.",
    " as points.",
    " from a laser scanner.",
    " in a catalogue.",
    ", an object.",
    " without colour.",
    " on the floor",
    ", seen from all sides.",
    ", centred.",
)

VALIDATION_TEMPLATES = ("a three-dimensional {}.", "what was scanned here is a {}", "dots on the surface of one {}.")
"""For choices made on validation shapes; as unknown to the text tower as the templates of the package."""
