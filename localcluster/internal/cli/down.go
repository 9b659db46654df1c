package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/localcluster/internal/cluster"
)

func newDown(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and delete everything except the built programs",
		Args:  cobra.NoArgs,
		RunE: open.runE(func(_ *cobra.Command, c *cluster.Cluster, _ []string) error {
			existed, err := c.Down()
			if err != nil {
				return err
			}
			if existed {
				fmt.Printf("stopped and deleted the cluster %q.\n", c.Name)
			} else {
				fmt.Printf("there is no cluster %q.\n", c.Name)
			}
			return nil
		}),
	}
}
