//go:build linux

// Command localcluster runs a Kubernetes cluster on this machine, built from Go
// modules: without Docker, and without a container registry.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/yardmaster/yardmaster/localcluster/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
