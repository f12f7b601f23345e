# Head and GPU workers: Ray, PyTorch with CUDA, DeepSpeed, EFA and the plugin through which NCCL reaches it.
#
#   docker build -f cluster_specs/images/gpu.Dockerfile --build-arg BASE=IMAGE [--build-context efa=FOLDER] -t NAME .
#
# BASE: Ubuntu 22.04 or 24.04 with Python 3.11 as `python`, for example Ray's own image with py311, or one of AWS's deep
# learning containers. FOLDER: holds aws-efa-installer-VERSION.tar.gz, needed where BASE has no EFA.
# Not built by us: README.md beside this file tells what is known.
ARG BASE

FROM scratch AS efa

FROM ${BASE}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
USER 0

# g++ and ninja build DeepSpeed's extensions; KubeRay's probes call wget.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ pciutils wget \
    && rm -rf /var/lib/apt/lists/*

# The kernel's part of EFA belongs to the node, limits to the container runtime, and a build has no device that could be
# verified. Recent installers bring aws-ofi-nccl, in /opt/amazon/ofi-nccl.
# hadolint ignore=DL3003
RUN --mount=type=bind,from=efa,target=/mnt/efa \
    if [ ! -x /opt/amazon/efa/bin/fi_info ] && compgen -G "/mnt/efa/aws-efa-installer-*.tar.gz" > /dev/null; then \
        mkdir /tmp/efa \
        && tar -xf /mnt/efa/aws-efa-installer-*.tar.gz -C /tmp/efa --strip-components=1 \
        && apt-get update \
        && (cd /tmp/efa && ./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify) \
        && rm -rf /tmp/efa /var/lib/apt/lists/*; \
    fi \
    && ldconfig
ENV PATH=/opt/amazon/efa/bin:${PATH} \
    LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu:/opt/amazon/efa/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}

# Packages first and the project last, so that a changed line of it does not move gigabytes.
COPY pyproject.toml cluster_specs/images/pins.py /tmp/pins/
RUN python /tmp/pins/pins.py train kube > /tmp/pins/requirements.txt \
    && python -m pip install --no-cache-dir -r /tmp/pins/requirements.txt \
    && rm -rf /tmp/pins
COPY pyproject.toml README.md /opt/raytrain-eks/
COPY raytrain_eks /opt/raytrain-eks/raytrain_eks
RUN python -m pip install --no-cache-dir --no-deps /opt/raytrain-eks \
    && python -c "import ray, torch, deepspeed, raytrain_eks; assert torch.version.cuda, 'a CPU build of torch'"

# Ray's image has this user already, Ubuntu 24.04 another one of the same number.
RUN (getent passwd 1000 || useradd --create-home --uid 1000 --shell /bin/bash ray) \
    && install -d -o 1000 -g 1000 /home/ray
USER 1000
WORKDIR /home/ray
ENV HOME=/home/ray \
    PYTHONUNBUFFERED=1

# For `docker run`; Kubernetes passes it over, and KubeRay has probes of its own.
HEALTHCHECK --interval=30s --timeout=15s --start-period=120s CMD ["ray", "health-check"]
