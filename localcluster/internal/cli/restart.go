package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/localcluster/internal/cluster"
)

func newRestart(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "restart COMPONENT",
		Short: "Kill a component of the cluster; the supervisor restarts it",
		Long:  "Kill a component of the cluster; the supervisor restarts it. `localcluster status` lists them.",
		Args:  cobra.ExactArgs(1),
		RunE: open.runE(func(_ *cobra.Command, c *cluster.Cluster, args []string) error {
			if err := c.Restart(args[0]); err != nil {
				return err
			}
			fmt.Printf("killed %s; the supervisor restarts it.\n", args[0])
			return nil
		}),
	}
}
