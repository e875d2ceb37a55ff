# Two stages: the first has the build tools, the second only Python and the installed packages.
# Releases pin the base image by its digest: --build-arg PYTHON=docker.io/library/python@sha256:…
ARG PYTHON=docker.io/library/python:3.13-slim
FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/virt-admit \
 && /opt/virt-admit/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY webhook webhook
COPY certs certs
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /opt/wheel . \
 && /opt/virt-admit/bin/pip install --no-cache-dir --no-deps --no-index /opt/wheel/*.whl \
 && /opt/virt-admit/bin/pip uninstall --yes pip

FROM ${PYTHON}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="virt-admit" \
      org.opencontainers.image.description="Admission webhook for KubeVirt and the machines under it" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/virt-admit /opt/virt-admit
ENV PATH=/opt/virt-admit/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 VIRT_ADMIT_REVISION=${REVISION}
# any user id works (OpenShift assigns one); only /tmp is written
USER 65532:65532
EXPOSE 8443 8080
# Kubernetes probes /livez and /readyz
HEALTHCHECK NONE
ENTRYPOINT ["virt-admit"]
CMD ["serve"]
