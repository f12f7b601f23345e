# A CPU image for the end-to-end tests. BASE: Ray's own image, of the Ray and Python that pyproject.toml says.
ARG BASE
FROM ${BASE}
COPY --chown=1000 pyproject.toml README.md /tmp/raytrain/
COPY --chown=1000 raytrain_eks /tmp/raytrain/raytrain_eks
RUN pip install --no-cache-dir "torch==2.13.0" && pip install --no-cache-dir "/tmp/raytrain[train]"
