# What every machine of the cluster runs: Ray and this package, built from the clone.
#   docker build -f deploy/ray.Dockerfile -t pta:0.1.0 .
FROM rayproject/ray:2.60.0-py311-gpu
COPY --chown=ray pyproject.toml README.md LICENSE constraints.txt /home/ray/pta/
COPY --chown=ray src /home/ray/pta/src
RUN pip install --no-cache-dir --constraint /home/ray/pta/constraints.txt "/home/ray/pta[fast,hf,ray]"
