package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

// ProcessRole is a function that a benchmark runs in a process of its own instead of the
// benchmark itself. The first argument is the name of the role.
type ProcessRole func(ctx context.Context, args []string) error

// RunMain runs the role that the first argument names, or else the benchmark, until it is
// finished or interrupted. Every benchmark has the role NATSServerRole.
func RunMain(run func(ctx context.Context) error, roles map[string]ProcessRole) {
	if err := runRole(run, roles); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runRole(run func(ctx context.Context) error, roles map[string]ProcessRole) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) < 2 {
		return run(ctx)
	}
	if os.Args[1] == NATSServerRole {
		return serveNATS(ctx, os.Args[1:])
	}
	if role := roles[os.Args[1]]; role != nil {
		return role(ctx, os.Args[1:])
	}
	return run(ctx)
}
