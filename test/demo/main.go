// Command demo shows the whole product at work: it starts a cluster, deploys the operator
// in it, runs the examples, and checks that each ends as it should.
//
// What is shown is real: the manifests are the files of examples/, and all that is done
// to them can be done with the kubectl commands that are printed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/demo/cluster"
)

// errAlreadyReported ends the demo with exit code 1 when all has been said already.
var errAlreadyReported = errors.New("")

const exitInterrupted = 130

func main() {
	down := flag.Bool("down", false, "take the demo's cluster down")
	limit := flag.Duration("timeout", 5*time.Minute, "how long an act may take")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runDemo(ctx, os.Getenv("CLUSTER"), *down, *limit)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintln(os.Stderr, "\nInterrupted. `make demo` goes on from here; `make demo-down` removes the cluster.")
		os.Exit(exitInterrupted)
	default:
		if !errors.Is(err, errAlreadyReported) {
			fmt.Fprintln(os.Stderr, "\ndemo:", err)
		}
		os.Exit(1)
	}
}

func runDemo(ctx context.Context, kind string, down bool, limit time.Duration) error {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what the client has to say comes as errors
	where, err := cluster.New(kind)
	if err != nil {
		return err
	}
	if down {
		return where.Delete(ctx)
	}
	screen := terminal.NewScreen(os.Stdout, terminal.NewStyle(terminal.ColorAuto, os.Stdout))
	return newDemoRun(where, screen, limit).runScenarios(ctx)
}
