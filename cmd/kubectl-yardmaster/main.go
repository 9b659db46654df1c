// Command kubectl-yardmaster is a kubectl plugin: `kubectl yardmaster`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/yardmaster/yardmaster/internal/plugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := plugin.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
