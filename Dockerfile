# syntax=docker/dockerfile:1

# Built on the builder's own platform for the target's: Go cross-compiles, so no
# emulation is needed. `make image` builds the same image without Docker.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY api/ api/
COPY cmd/ cmd/
COPY connection/ connection/
COPY internal/ internal/
COPY worker/ worker/
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=unknown
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -tags grpcnotrace \
    -ldflags "-s -w -X github.com/yardmaster/yardmaster/internal/version.release=$VERSION" \
    -o /out/ ./cmd/yardmaster ./cmd/session-runner

# Nothing but the programs, and the certificate authorities for brokers with public certificates.
FROM scratch
LABEL org.opencontainers.image.source=https://github.com/yardmaster/yardmaster
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/yardmaster /yardmaster
# Images of agents copy it: see docs/agents.md.
COPY --from=build /out/session-runner /session-runner
USER 65532:65532
ENTRYPOINT ["/yardmaster"]
