# dlq-handler as an image: docker build -t dlq-handler .        (docs/how-to/docker.md)
# The target `sandbox` adds the reference Attune; only docker-compose.yml builds it.
#
# One base for both stages, because the virtual environment points at its Python; any image with Python 3.11 or newer
# and its venv module will do.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /build
# Two environments: what installs stays here, what is installed goes on into the image.
RUN python3 -m venv installer && python3 -m venv --without-pip /opt/dlq-handler
COPY requirements.lock requirements.runtime.lock ./
# Where packages come from is for the builder to say: --secret id=pip,src=pip.conf lends its pip configuration to these
# two steps, and no layer keeps it. Only wheels: nothing is compiled, so that no compiler is needed.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    installer/bin/pip --python /opt/dlq-handler/bin/python install \
        --no-cache-dir --no-deps --only-binary=:all: --require-hashes --requirement=requirements.runtime.lock
# setuptools builds the wheel of dlq-handler; its pinned version is in the lock file of development.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    sed -n '/^setuptools==/,/[^\\]$/p' requirements.lock > requirements.build.lock \
    && installer/bin/pip install \
        --no-cache-dir --no-deps --only-binary=:all: --require-hashes --requirement=requirements.build.lock
COPY pyproject.toml README.md LICENSE ./
COPY dlq_handler dlq_handler
RUN installer/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir=wheels . \
    && installer/bin/pip --python /opt/dlq-handler/bin/python install --no-cache-dir --no-index --no-deps wheels/*.whl

FROM ${BASE} AS product
LABEL org.opencontainers.image.title="dlq-handler" \
      org.opencontainers.image.description="Ends every execution whose message was dead-lettered in RabbitMQ, and publishes its completion event" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/dlq-handler /opt/dlq-handler
# It writes no file at all: logs go to stdout, and the bytecode was made above. HOME is looked into for certificates.
ENV PATH=/opt/dlq-handler/bin:$PATH \
    HOME=/opt/dlq-handler \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can tell that it is not root (runAsNonRoot).
USER 65532:65532
EXPOSE 9464 8085
STOPSIGNAL SIGTERM
# Liveness, not readiness: a restart does not bring back a server that is away. The start itself takes about 2 s.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 CMD ["dlq-handler", "health"]
ENTRYPOINT ["dlq-handler"]
CMD ["run"]

FROM product AS sandbox
COPY sandbox /opt/sandbox/sandbox
ENV PYTHONPATH=/opt/sandbox
ENTRYPOINT ["python", "-m", "sandbox.attune"]
CMD []

# Last, because a build without a target takes the last stage: the image without the sandbox.
FROM product
