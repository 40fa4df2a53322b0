# docker build -t acp-agent . && docker run -i --rm -v "$PWD:/workspace" acp-agent
# docker build --target test .   runs the checks and tests while it builds

FROM python:3.11-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

FROM base AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY acp_agent acp_agent
COPY replay replay
RUN python -m venv /opt/acp && /opt/acp/bin/pip install --quiet '.[all]'

FROM base AS test
RUN apt-get update && apt-get install --yes --no-install-recommends git make procps && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home tester
COPY --chown=tester . /src
RUN chown tester /src
USER tester
WORKDIR /src
RUN make check test

FROM base AS runtime
RUN useradd --create-home agent && mkdir /workspace && chown agent /workspace
COPY --from=build /opt/acp /opt/acp
ENV PATH="/opt/acp/bin:$PATH"
USER agent
WORKDIR /workspace
ENTRYPOINT ["acp-agent"]
