# Two stages: the first has the build tools, the second only Python and the installed packages. Nothing depends on the
# processor: `--platform linux/arm64` needs only a base image and wheels for it.
# `make image` sets the revision. Releases pin the base image by its digest: --build-arg PYTHON=docker.io/library/python@sha256:…
ARG PYTHON=docker.io/library/python:3.13-slim
FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock \
 && python -m venv --without-pip /opt/virt-admit \
 && /opt/build/bin/pip --python /opt/virt-admit/bin/python install --no-cache-dir --no-compile --require-hashes -r requirements.lock
# Remove what virt-admit never imports: the asyncio client of kubernetes with its dependencies, and the classes generated for
# each API (100 MB). Every command is tested without them. rm fails if a release of kubernetes has moved them.
RUN /opt/build/bin/pip --python /opt/virt-admit/bin/python uninstall --yes \
      aiohappyeyeballs aiohttp aiohttp-retry aiosignal attrs frozenlist multidict propcache yarl \
 && cd /opt/virt-admit/lib/python3*/site-packages/kubernetes \
 && rm -r aio client/api client/apis client/models/[!_]*
COPY pyproject.toml README.md LICENSE ./
COPY webhook webhook
COPY certs certs
# Bytecode is checked against no source (unchecked-hash): a build that sets all times to one keeps it valid.
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /opt/wheel . \
 && /opt/build/bin/pip --python /opt/virt-admit/bin/python install --no-cache-dir --no-compile --no-deps --no-index /opt/wheel/*.whl \
 && /opt/virt-admit/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/virt-admit/lib

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
