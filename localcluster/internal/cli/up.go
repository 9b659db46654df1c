package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/localcluster/internal/build"
	"github.com/yardmaster/yardmaster/localcluster/internal/cluster"
	"github.com/yardmaster/yardmaster/localcluster/internal/prerequisite"
	"github.com/yardmaster/yardmaster/localcluster/internal/progress"
)

func newUp(open opener) *cobra.Command {
	options, brief := cluster.Options{}, false
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, building its programs first if needed",
		Long: `Start the cluster, building its programs first if needed.

  --mode node            a real node: containerd, kubelet, kube-proxy and CoreDNS, in namespaces
                         of their own. Needs root on Linux.
  --mode control-plane   etcd, API server, controllers and scheduler, with simulated nodes and Pods.
                         Needs no root.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			out := progress.New(os.Stdout)
			if err := up(command.Context(), c, options, out); err != nil {
				return err
			}
			if !brief {
				printUse(c, out)
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar((*string)(&options.Mode), "mode", string(cluster.Node), "node or control-plane")
	flags.IntVar(&options.Port, "port", 0, "port of the API server on 127.0.0.1; 0 takes a free one")
	flags.IntVar(&options.Nodes, "nodes", 2, "number of simulated nodes in control-plane mode")
	flags.DurationVar(&options.JobBatch, "job-batch", time.Second, "how long the Job controller gathers changes of Pods before it acts")
	flags.BoolVar(&brief, "brief", false, "do not print how to use the cluster")
	return command
}

func up(ctx context.Context, c *cluster.Cluster, options cluster.Options, out *progress.Printer) error {
	if err := options.Validate(); err != nil {
		return err
	}
	if err := checkMachine(options.Mode); err != nil {
		return err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if status != nil && status.Up {
		return already(c, status, options, out)
	}
	programs, err := programs(ctx, options.Mode, out)
	if err != nil {
		return err
	}
	start := func(progress.Report) error { return c.Start(ctx, options, programs) }
	return out.Step("starting the cluster "+c.Name, "the cluster "+c.Name+" is up", start)
}

// already does nothing: a cluster that someone works with is not replaced.
func already(c *cluster.Cluster, status *cluster.Status, wanted cluster.Options, out *progress.Printer) error {
	if status.Mode != wanted.Mode {
		return fmt.Errorf("the cluster %q already runs in mode %s: stop it first with localcluster down, or choose another --name", c.Name, status.Mode)
	}
	out.Printf("  the cluster %s already runs", c.Name)
	return nil
}

// checkMachine fails before a build of minutes whose result could not run.
func checkMachine(mode cluster.Mode) error {
	if mode != cluster.Node || os.Geteuid() == 0 {
		return nil
	}
	return errors.New(`a real node needs root. Other ways:
  - localcluster up --mode control-plane needs no root, and simulates nodes and Pods
  - where Docker runs, CLUSTER=kind make demo uses kind`)
}

// programs installs the prerequisites of a mode's programs, and builds them.
func programs(ctx context.Context, mode cluster.Mode, out *progress.Printer) (build.Programs, error) {
	builder, err := newBuilder(out)
	if err != nil {
		return nil, err
	}
	if mode == cluster.ControlPlane {
		return builder.Build(ctx, build.ControlPlane)
	}
	missing, err := builder.Missing(ctx, build.Node)
	if err != nil {
		return nil, err
	}
	needs := prerequisite.Run
	if slices.ContainsFunc(missing, func(part build.Part) bool { return part.CGO }) {
		needs = append(slices.Clone(needs), prerequisite.Compile...)
	}
	if err := prerequisite.Ensure(ctx, needs, out); err != nil {
		return nil, err
	}
	return builder.Build(ctx, build.Node)
}

func printUse(c *cluster.Cluster, out *progress.Printer) {
	name := ""
	if c.Name != "default" {
		name = fmt.Sprintf(" --name %s", c.Name)
	}
	out.Printf(`
  export KUBECONFIG=%s
  kubectl get nodes                      # or, without kubectl:
  localcluster kubectl%s -- get nodes
  localcluster down%s`, c.Kubeconfig(), name, name)
}
