// Command kubectl-yardmaster is a kubectl plugin: `kubectl yardmaster`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/yardmaster/yardmaster/internal/plugin"
)

func main() {
	klog.SetLogger(logr.Discard()) // messages of client-go would break the redrawn output
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := plugin.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
