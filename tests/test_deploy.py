"""The files of `deploy/` for KubeRay, against the fields that its API reference documents (KubeRay 1.6, ray.io/v1)."""

from pathlib import Path

import pytest

from pta.cli import load_command

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

DEPLOY = Path(__file__).parent.parent / "deploy"


def strict(required, **properties):
    """An object with these fields and no others."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


TEXT, WHOLE, SWITCH = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
CONTAINER = strict(
    "name image resources",
    name=TEXT,
    image=TEXT,
    resources=strict("requests limits", requests=TEXTS, limits=TEXTS),
    env={"type": "array"},
    volumeMounts={"type": "array", "items": strict("name mountPath", name=TEXT, mountPath=TEXT)},
)
VOLUME = strict("name persistentVolumeClaim", name=TEXT, persistentVolumeClaim=strict("claimName", claimName=TEXT))
PODS = strict(
    "spec",
    spec=strict(
        "containers", containers={"type": "array", "items": CONTAINER, "minItems": 1}, volumes={"items": VOLUME}
    ),
)
CLUSTER = strict(
    "rayVersion authOptions headGroupSpec workerGroupSpecs",
    rayVersion={"type": "string", "pattern": r"^2\.(5[2-9]|[6-9]\d)\."},
    authOptions=strict("mode", mode={"const": "token"}, secretName=TEXT),
    enableInTreeAutoscaling=SWITCH,
    headGroupSpec=strict("rayStartParams template", rayStartParams=TEXTS, template=PODS),
    workerGroupSpecs={
        "type": "array",
        "minItems": 1,
        "items": strict(
            "groupName minReplicas maxReplicas rayStartParams template",
            groupName=TEXT,
            replicas=WHOLE,
            minReplicas=WHOLE,
            maxReplicas=WHOLE,
            rayStartParams=TEXTS,
            template=PODS,
        ),
    },
)
JOB = strict(
    "entrypoint rayClusterSpec",
    entrypoint=TEXT,
    rayClusterSpec=CLUSTER,
    shutdownAfterJobFinishes=SWITCH,
    ttlSecondsAfterFinished=WHOLE,
    backoffLimit=WHOLE,
    runtimeEnvYAML=TEXT,
)


@pytest.mark.parametrize(("name", "kind", "spec"), [("cluster", "RayCluster", CLUSTER), ("job", "RayJob", JOB)])
def test_the_files_have_the_fields_of_kuberay(name, kind, spec):
    content = yaml.safe_load((DEPLOY / f"ray-{name}.yaml").read_text())
    whole = strict("apiVersion kind metadata spec", apiVersion={"const": "ray.io/v1"}, kind={"const": kind}, spec=spec)
    whole["properties"]["metadata"] = strict("name", name=TEXT)
    jsonschema.validate(content, whole)


def test_both_files_describe_the_same_cluster():
    cluster, job = (yaml.safe_load((DEPLOY / f"ray-{name}.yaml").read_text())["spec"] for name in ("cluster", "job"))
    assert job["rayClusterSpec"] == cluster


def test_the_command_of_the_job_is_one_that_the_command_line_takes():
    words = yaml.safe_load((DEPLOY / "ray-job.yaml").read_text())["spec"]["entrypoint"].split()
    assert words[:2] == ["pta", "predict"]
    context = load_command("predict").make_context("predict", words[2:])
    assert context.params["cluster"] == "auto"


def test_the_cluster_grows_to_the_workers_that_the_job_asks_for():
    job = yaml.safe_load((DEPLOY / "ray-job.yaml").read_text())["spec"]
    words = job["entrypoint"].split()
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert job["rayClusterSpec"]["enableInTreeAutoscaling"] is True
    assert group["minReplicas"] <= group["replicas"] < group["maxReplicas"]
    assert int(words[words.index("--parallel") + 1]) == group["maxReplicas"]
    assert job["shutdownAfterJobFinishes"] is True  # without which there is no time to live
    assert job["ttlSecondsAfterFinished"] > 0


@pytest.mark.parametrize("name", ["cluster", "job"])
def test_what_a_file_needs_stands_in_it(name):
    text = (DEPLOY / f"ray-{name}.yaml").read_text()
    assert "Ray 2.52 or later and KubeRay 1.5.1 or later" in text
    assert "# tolerations:" in text
