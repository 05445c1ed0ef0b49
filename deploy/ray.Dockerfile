# What every machine of the cluster runs: Ray and this package, built from the clone.
#   docker build -f deploy/ray.Dockerfile -t pta:0.1.0 .
FROM rayproject/ray:2.60.0-py311-gpu
WORKDIR pta
COPY --chown=ray pyproject.toml README.md LICENSE constraints.txt ./
COPY --chown=ray src src
COPY --chown=ray releasing/pypi_readme.py releasing/
RUN pip install --no-cache-dir --constraint constraints.txt ".[hf,ray,s3]"
