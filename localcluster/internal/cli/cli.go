// Package cli is the command line of localcluster: a file per command.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/localcluster/internal/cluster"
)

// errSaid ends a command with exit code 1 without a further message.
var errSaid = errors.New("")

// Run runs one command and returns the exit code.
func Run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errSaid) {
		fmt.Fprintln(os.Stderr, "localcluster:", err)
	}
	return 1
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "localcluster",
		Short:         "A Kubernetes cluster on this machine, built from Go modules",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	name := root.PersistentFlags().String("name", "default", "name of the cluster")
	open := func() (*cluster.Cluster, error) { return cluster.Open(*name) }
	root.AddCommand(
		newUp(open), newDown(open), newStatus(open), newRestart(open),
		newKubeconfig(open), newKubectl(open),
		newLoadImage(open), newBuildImage(), newBuild(), newSupervise(open),
	)
	return root
}

// opener opens the cluster that --name names.
type opener func() (*cluster.Cluster, error)

// runE returns the function of a command that needs the cluster.
func (open opener) runE(run func(command *cobra.Command, c *cluster.Cluster, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		c, err := open()
		if err != nil {
			return err
		}
		return run(command, c, args)
	}
}
