"""Each method as a plain NumPy loop over samples, to be read beside its paper.

The loops are slow on purpose, are written from the descriptions of the methods and share no code with the rest of the
package: the tests compare every method with its loop. Method `a` has the function `a_loop` in `pta.reference.a`, and
`a-b` has `a_b_loop` there. It is given unit anchors (C×d), features (N×d) and what else the method needs, and returns
the logits (N×C). Comments are numbered as the steps in the docstring of `pta.methods.a`. The tests use float64.
"""
