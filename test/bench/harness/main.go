package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

// ProcessRole is what a benchmark's program is besides the benchmark itself, in a process of its
// own. It is given the arguments, the role's name before the others.
type ProcessRole func(ctx context.Context, args []string) error

// RunMain runs a benchmark until it is over or interrupted; or the role that the first argument
// names. NATSServer is one in each.
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
