// Command demo starts a cluster, deploys the operator, runs the examples and checks that each ends as expected.
//
// It uses the manifests in examples/. Users can repeat each change with the kubectl commands that the demo prints.
package main

import (
	"context"
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
	"github.com/yardmaster/yardmaster/test/demo/page"
)

const exitInterrupted = 130

func main() {
	down := flag.Bool("down", false, "delete the demo's cluster, or what the demo created in another one")
	limit := flag.Duration("timeout", 5*time.Minute, "time limit of each scenario")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runDemo(ctx, *down, *limit)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintln(os.Stderr, "\nInterrupted. `make demo` reuses the cluster; `make demo-down` deletes it.")
		os.Exit(exitInterrupted)
	default:
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// runDemo runs the demo as the variables CLUSTER and VERBOSE say.
func runDemo(ctx context.Context, down bool, limit time.Duration) error {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // the clients return errors
	demoCluster, err := cluster.New(os.Getenv("CLUSTER"))
	if err != nil {
		return err
	}
	if down {
		return demoCluster.Delete(ctx)
	}
	verbose := os.Getenv("VERBOSE")
	screen := terminal.NewScreen(os.Stdout, terminal.NewStyle(terminal.ColorAuto, os.Stdout))
	return newDemoRun(&demoEnvironment{cluster: demoCluster, page: page.New(screen, verbose != "" && verbose != "0"), timeout: limit}).run(ctx)
}
