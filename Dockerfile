# Two stages: the first has the build tools, the second only Python and what was installed.
ARG PYTHON=docker.io/library/python:3.13-slim
FROM ${PYTHON} AS build
WORKDIR /src
RUN python -m venv /opt/virt-admit
COPY requirements.lock ./
RUN /opt/virt-admit/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY webhook webhook
COPY certs certs
RUN /opt/virt-admit/bin/pip install --no-cache-dir --no-deps . \
 && /opt/virt-admit/bin/python -m compileall -q /opt/virt-admit

FROM ${PYTHON}
LABEL org.opencontainers.image.title="virt-admit" \
      org.opencontainers.image.description="Admission webhook for KubeVirt and the machines under it" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/virt-admit /opt/virt-admit
ENV PATH=/opt/virt-admit/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# any user will do (OpenShift assigns one); nothing is written but /tmp
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["virt-admit"]
CMD ["serve"]
