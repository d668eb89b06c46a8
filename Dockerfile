FROM python:3.14-alpine AS build
WORKDIR /build
COPY requirements/build.txt requirements/image.txt requirements/
# Alpine has no compiler: a requirement without a musl wheel must fail here, with its name.
RUN python -m venv /opt/ackbox \
    && /opt/ackbox/bin/pip install --no-cache-dir --require-hashes --only-binary :all: \
        -r requirements/image.txt \
    && pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY LICENSE README.md pyproject.toml ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/ackbox/bin/pip install --no-cache-dir --no-index --no-deps dist/ackbox-*.whl

FROM python:3.14-alpine
# /data belongs to appuser before it becomes a volume: a new named volume gets this owner.
RUN adduser -D -H -u 10001 appuser \
    && mkdir /app /data \
    && chown appuser /data
COPY --from=build /opt/ackbox /opt/ackbox
ENV PATH=/opt/ackbox/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    DB_PATH=/data/events.db \
    HOST=0.0.0.0 \
    PORT=8000 \
    LOG_FORMAT=json \
    ACKBOX_IMAGE_DEFAULTS=DB_PATH=/data/events.db,HOST=0.0.0.0,PORT=8000,LOG_FORMAT=json
# Your module goes here: `serve app:inbox` imports from the current folder.
WORKDIR /app
# By name, so that `docker exec` and `ps` show it; the numeric id is 10001.
# hadolint ignore=DL3066
USER appuser
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
# -Y off: the check must not go through a proxy that is set for the container.
# Kubernetes may set ACKBOX_PORT=tcp://..., which is no port; the server ignores it too.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["sh", "-c", "case $ACKBOX_PORT in *:*) ;; ?*) PORT=$ACKBOX_PORT;; esac; exec wget -q -Y off -O /dev/null http://127.0.0.1:$PORT/health"]
ENTRYPOINT ["ackbox"]
CMD ["serve"]
