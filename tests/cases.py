"""Which values of which parameters methods are tested with."""

from dataclasses import dataclass, field
from typing import Any

from pta.methods import adapter_class

ORDER = ["update-first", "predict-first"]
TRANSDUCTIVE = {"adapt-transductive", "stata", "transclip"}  # answers depend on the whole batch
CACHES = {
    "positive_alpha": [2.0, 0.0, 5.0],
    "positive_beta": [5.0, 0.0, 8.0],
    "positive_slots": [3, 0, 1, 5],
    "negative_alpha": [0.117, 0.0, 2.0],
    "negative_beta": [1.0, 0.0, 5.0],
    "negative_slots": [2, 0, 1],
    "min_entropy": [0.2, 0.0, 0.3],
    "max_entropy": [0.5, 0.3, 1.0],
    "entropy_base": ["log2", "ln"],
    "min_probability": [0.03, 0.0, 0.2],
    "max_probability": [1.0, 0.3],
    "order": ORDER,
}
NEIGHBOURHOOD = {
    "neighbours": [3, 1, 6],
    "iterations": [10, 0, 4],
    "sweeps": [5, 1, 3],
    "text_weight": [1.0, 0.5, 2.0],
    "temperature": [50.0, 20.0, 100.0],
}


@dataclass(frozen=True)
class Case:
    """What a method and its loop are compared with."""

    values: dict[str, list]  # of each parameter; one that is not the default changes the answers
    no_difference: tuple[str, ...] = ()  # parameters whose values change too little to see, or nothing by themselves
    together: tuple[dict, ...] = ()  # further parameters that change the answers
    fixed: dict = field(default_factory=dict)  # parameters with which the others make a difference
    shape: dict = field(default_factory=dict)  # of the stream on which they do
    views: tuple[int, ...] = ()  # how many, if the method needs views
    tolerance: float = 1e-9  # of logits, relative to the largest, or to 100


CASES = {
    "adapt": Case(
        {
            "slots": [16, 1, 2],
            "alpha": [0.9, 0.5],
            "temperature": [100.0, 20.0],
            "count_current": ["twice", "once"],
            "similarity": ["stale", "fresh"],
            "order": ORDER,
        },
        no_difference=("similarity",),
    ),
    "adapt-transductive": Case({"slots": [6, 1, 2], "alpha": [0.9, 0.5], "temperature": [100.0, 20.0]}),
    "bca": Case(
        {
            "centre_threshold": [0.05, 0.5],
            "centre_count": [20000, 100, 3, 0],
            "prior_threshold": [0.65, 0.2, 0.9],
            "prior_count": [1, 0, 10],
            "update": ["posterior", "likelihood"],
            "order": ORDER,
        },
        fixed={"centre_count": 3, "prior_threshold": 0.2, "prior_count": 0},
        shape={"classes": 6, "dim": 8, "spread": 0.15, "scale": 30.0},
    ),
    "boostadapter": Case(
        {"delta": [0, 1, 2, 3], "share": [0.1, 0.3, 0.5, 1.0], "negatives": ["newest", "most-confident"], **CACHES},
        views=(10, 16, 24),
    ),
    "clip": Case({}),
    "dmn": Case(
        {
            "version": ["official", "tta-vlm"],
            "slots": [50, 1, 2, 5],
            "beta": [5.5, 0.0, 20.0],
            "memory_weight": [1.0, 0.0, 10.0],
            "first_views": [1, 2, 9],
            "keep": [0.1, 0.5, 1.0],
        },
        fixed={"first_views": 9, "keep": 0.3, "slots": 2},
        views=(9, 12),
    ),
    "dota": Case(
        {
            "epsilon": [1e-4, 1e-2],
            "eta": [0.3, 3.0, 0.03],
            "rho": [0.02, 0.2],
            "sigma": [0.002, 0.1],
            "omega": [0.001, 0.1],
            "initial_count": [1.0, 0.0],
            "growth": ["mean-count", "samples"],
            "covariance": ["per-class", "shared"],
            "order": ORDER,
        },
        together=({"covariance": "shared", "initial_count": 0.0},),
        shape={"classes": 3},  # so that the bound of the weight is met
        tolerance=1e-8,
    ),
    "dpe": Case(
        {
            "alpha": [6.0, 0.0, 15.0],
            "beta": [5.0, 1.0, 8.0],
            "align": [0.5, 0.0, 2.5],
            "lr_text": [5e-4, 0.0, 5e-3],
            "lr_image": [5e-4, 0.0, 5e-3],
            "temperature": [0.01, 0.1],
            "slots": [3, 1, 2],
            "max_entropy": [0.1, 0.0, 0.5],
            "first_views": [1, 2, 9],
            "keep": [0.1, 0.5, 1.0],
            "answer": ["plain", "views"],
        },
        fixed={"first_views": 9, "keep": 0.3},
        views=(9, 12),
        tolerance=1e-11,  # the alignment magnifies rounding along a stream
    ),
    "ecalp": Case(
        {
            "max_rows": [500, 1, 5, 20],
            "neighbours": [8, 1, 3],
            "text_neighbours": [3, 1, 2],
            "gamma": [10, 1, 5],
            "iterations": [3, 1, 5],
            "seed_weight": [0.2, 0.0, 0.9],
        }
    ),
    "etta": Case(
        {
            "prompts": ["all", "one"],
            "share": [0.2, 0.5, 1.0],
            "first_views": [1, 2, 8],
            "keep": [0.1, 0.5, 1.0],
            "order": ORDER,
        },
        fixed={"first_views": 8, "keep": 0.3},
        views=(8, 12),
    ),
    "freetta": Case(
        {
            "alpha": [0.2, 2.0],
            "beta": [4.5, 0.5, 0.0],
            "scaled_text": [True, False],
            "covariance": ["average", "printed"],
            "inverse": ["plain", "shrunk"],
            "order": ORDER,
            "renormalise": [False, True],
        }
    ),
    "gs-bias": Case(
        {
            "alpha": [1.0, 0.0, 10.0],
            "beta": [1.0, 0.0, 5.0],
            "top_patches": [16, 1, 5],
            "steps": [5, 1, 3],
            "first_views": [8, 1, 3],
            "keep": [0.5, 0.0, 1.0],
            "r_g": [0.9, 0.5, 1.0],
            "r_s": [0.9, 0.5, 1.0],
            "early_stop": [0.25, 0.0, 1.0],
        },
        views=(8, 12),
    ),
    "mta": Case(
        {"lambda_y": [0.2, 1.0, 0.05], "lambda_q": [4.0, 0.0, 1.0], "bandwidth_share": [0.3, 0.5, 1.0]},
        views=(5, 12, 30),
    ),
    "oga": Case(
        {
            "slots": [8, 1, 3],
            "tau": [0.05, 0.2],
            "mean": ["capacity", "count"],
            "renormalise": [False, True],
            "order": ORDER,
        }
    ),
    "onzeta": Case(
        {
            "length": [40, 1, 10, 1000],
            "temperature": [0.04, 0.1, 0.01],
            "proxy_step": [0.05, 0.0],  # the default magnifies rounding too much for drawn streams
            "dual_step": [20.0, 0.0, 1.0],
            "alpha": [1.0, 0.0, 0.5],
            "beta": [0.8, 0.0, 1.0],
            "order": ORDER,
        },
        fixed={"length": 40},
        shape={"count": 20},
        tolerance=1e-7,
    ),
    "point-cache": Case(
        {
            **CACHES,
            "positive_alpha": [4.0, 0.0, 2.0],
            "positive_beta": [3.0, 0.0, 8.0],
            "positive_slots": [3, 1, 5],
            "local_features": [3, 0, 1],
            "prefill": [False, True],
        },
        no_difference=("prefill",),  # without a preview
        views=(2,),
    ),
    "pta": Case(
        {
            "h": [20.0, 1.0, 1000.0],
            "w": [0.01, 0.0, 0.3, 1.0],
            "min_probability": [0.1, 0.0, 0.5, 1.0],
            "anchor": ["recursive", "fixed"],
            "fusion": ["logits", "probabilities"],
            "order": ORDER,
            "weight": ["saturating", "raw"],
            "renormalise": [True, False],
        },
        fixed={"w": 0.3},
    ),
    "sca": Case(
        {
            "gamma": [1e4, 1.0, 1e-2, 1e5],
            "tau": [0.5, 0.0, 0.3, 0.9],
            "threshold": ["uncertainty", "fixed"],
            "temperature": [1.0, 0.5, 3.0],
            "beta_f": [0.5, 0.0, 5.0],
            "trust": ["lower-entropy", "higher-entropy"],
            "cache": ["cosine", "product"],
            "cache_scale": [None, 1.0, 20.0],
            "order": ORDER,
        },
        together=({"threshold": "fixed", "tau": 0.9, "temperature": 2.0}, {"tau": 1.0}),
    ),
    "stata": Case(
        {
            "alpha": [1.0, 0.1, 10.0],
            "counts": ["hard", "soft"],
            "neighbour_weight": [1.0, 0.0, 0.5],
            "chunked_covariance": [True, False],
            **NEIGHBOURHOOD,
        },
        no_difference=("chunked_covariance",),
        fixed={"iterations": 1},  # after more, labels have converged to the same
    ),
    "tda": Case(CACHES),
    "tps": Case(
        {
            "lr": [5e-3, 0.0, 0.05],
            "steps": [1, 0, 3],
            "keep": [0.1, 0.5, 1.0],
            "selection": ["every-step", "first"],
            "weight_decay": [0.01, 1.0],
            "least_gradient": [0.0, 0.1],
        },
        fixed={"steps": 3, "lr": 0.05, "keep": 0.3},
        views=(4, 12),
    ),
    "transclip": Case(NEIGHBOURHOOD | {"seeds": [8, 1, 2]}, fixed={"iterations": 1}),
    "wpta": Case(
        {
            "min_probability": [0.1, 0.01, 0.5],
            "text_weight": [0.3, 0.0, 5.0],
            "image_weight": [0.4, 0.0, 2.0],
            "ridge": [4.0, 0.5],
            "early_ridge": [64.0, 0.0],
            "refresh_every": [128, 1, 3, 10],
            "first_metric": [8, 2, 30],
            "least_spread": [1e-4, 1.0],
            "depth": [1, 2],
            "prior": ["local", "none"],
            "calibration": ["matched", "fixed"],
        },
        no_difference=("prior",),  # on a shuffled stream
    ),
    "zero": Case({"keep": [0.3, 0.0, 0.5, 1.0], "temperature": ["zero", "float16"]}, views=(1, 4, 20), tolerance=1e-5),
}


def other_values() -> list[tuple[str, dict[str, Any]]]:
    """Every method with each value of a parameter that changes its answers."""
    found = []
    for method, case in CASES.items():
        default = {name: one.default for name, one in adapter_class(method).declared.items()} | case.fixed
        for name, values in case.values.items():
            if name not in case.no_difference:
                found += [(method, {name: value}) for value in values if value != default[name]]
        found += [(method, together) for together in case.together]
    return found
