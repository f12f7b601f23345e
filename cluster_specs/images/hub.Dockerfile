# The single-user server of JupyterHub: notebooks from which jobs are submitted and read. It trains nothing itself, so it
# has no torch.
#
#   docker build -f cluster_specs/images/hub.Dockerfile --build-arg BASE=IMAGE -t NAME .
#
# BASE: an image with `jupyterhub-singleuser` of the hub's own version and Python 3.11, the minor version of the cluster's
# images, for example one of the Jupyter Docker Stacks.
# Not built by us: README.md beside this file tells what is known.
ARG BASE

FROM ${BASE}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
USER 0

COPY pyproject.toml cluster_specs/images/pins.py /tmp/pins/
RUN python /tmp/pins/pins.py kube notebook train/ray train/boto3 train/pyarrow > /tmp/pins/requirements.txt \
    && python -m pip install --no-cache-dir -r /tmp/pins/requirements.txt \
    && rm -rf /tmp/pins
COPY pyproject.toml README.md /opt/raytrain-eks/
COPY raytrain_eks /opt/raytrain-eks/raytrain_eks
RUN python -m pip install --no-cache-dir --no-deps /opt/raytrain-eks \
    && command -v jupyterhub-singleuser \
    && raytrain-eks version
COPY notebooks /opt/raytrain-eks/notebooks

# The Jupyter Docker Stacks' own user, and Zero to JupyterHub's default.
USER 1000

# For `docker run`; in Kubernetes the hub itself watches its servers.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-c", "import raytrain_eks"]
