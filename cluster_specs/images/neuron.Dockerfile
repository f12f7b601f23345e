# Trainium workers: Ray, PyTorch for Neuron and its compiler, EFA.
#
#   docker build -f cluster_specs/images/neuron.Dockerfile --build-arg BASE=IMAGE --build-arg TARGET=trn1 \
#     --secret id=pip,src=PIP_CONF -t NAME .
#
# BASE: one of AWS's Neuron containers, which bring runtime, collectives, tools and libfabric, or an Ubuntu with them:
# Python 3.11 for trn1, 3.12 or newer for trn2. TARGET: trn1 or trn2, which file of requirements/ is installed.
# PIP_CONF: a pip.conf whose `extra-index-url` is AWS's Neuron package index (the Neuron documentation has its address).
# Not built by us: README.md beside this file tells what is known.
ARG BASE

FROM ${BASE}
ARG TARGET
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
USER 0

# What only system packages bring: Ray counts cores by neuron-ls, and a folder without it makes `ray start` fail.
RUN test -x /opt/aws/neuron/bin/neuron-ls && test -e /opt/aws/neuron/lib/libnrt.so.1

# KubeRay's probes call wget.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/aws/neuron/bin:/opt/amazon/efa/bin:${PATH}

# The exact pins keep the placeholder out that the public index calls torch-neuronx.
COPY requirements/neuron-${TARGET}.txt /tmp/pins/requirements.txt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=true \
    python -m pip install --no-cache-dir -r /tmp/pins/requirements.txt \
    && rm -rf /tmp/pins
COPY pyproject.toml cluster_specs/images/pins.py /tmp/pins/
RUN python /tmp/pins/pins.py kube > /tmp/pins/requirements.txt \
    && python -m pip install --no-cache-dir -r /tmp/pins/requirements.txt \
    && rm -rf /tmp/pins
COPY pyproject.toml README.md /opt/raytrain-eks/
COPY raytrain_eks /opt/raytrain-eks/raytrain_eks
RUN python -m pip install --no-cache-dir --no-deps /opt/raytrain-eks \
    && python -c "import ray, torch, raytrain_eks"

RUN (getent passwd 1000 || useradd --create-home --uid 1000 --shell /bin/bash ray) \
    && install -d -o 1000 -g 1000 /home/ray
USER 1000
WORKDIR /home/ray
ENV HOME=/home/ray \
    PYTHONUNBUFFERED=1

# For `docker run`; Kubernetes passes it over, and KubeRay has probes of its own.
HEALTHCHECK --interval=30s --timeout=15s --start-period=120s CMD ["ray", "health-check"]
