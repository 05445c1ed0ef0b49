"""A trial of the methods on a user's own labelled samples, in the order in which `pta predict` would meet them."""
