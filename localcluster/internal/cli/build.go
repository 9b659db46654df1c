package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/localcluster/internal/build"
	"github.com/yardmaster/yardmaster/localcluster/internal/cluster"
	"github.com/yardmaster/yardmaster/localcluster/internal/progress"
	"github.com/yardmaster/yardmaster/localcluster/internal/source"
)

func newBuild() *cobra.Command {
	mode := ""
	command := &cobra.Command{
		Use:   "build",
		Short: "Build the cluster's programs without starting anything",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			out := progress.New(os.Stdout)
			modes := []cluster.Mode{cluster.ControlPlane, cluster.Node}
			if mode != "" {
				modes = []cluster.Mode{cluster.Mode(mode)}
			}
			for _, mode := range modes {
				if err := (cluster.Options{Mode: mode, Nodes: 1, JobBatch: 1}).Validate(); err != nil {
					return err
				}
				if _, err := programs(command.Context(), mode, out); err != nil {
					return err
				}
			}
			out.Printf("all programs are built.")
			return nil
		},
	}
	command.Flags().StringVar(&mode, "mode", "", "node or control-plane; default: both")
	return command
}

func newBuilder(out *progress.Printer) (build.Builder, error) {
	dir, err := source.Locate()
	if err != nil {
		return build.Builder{}, err
	}
	home, err := cluster.Home()
	if err != nil {
		return build.Builder{}, err
	}
	return build.Builder{Source: dir, Cache: cluster.Programs(home), Progress: out}, nil
}
