package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newRestart(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "restart COMPONENT",
		Short: "Kill a component of the cluster; the supervisor restarts it",
		Long:  "Kill a component of the cluster; the supervisor restarts it. `localcluster status` lists them.",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			if err := c.Restart(args[0]); err != nil {
				return err
			}
			fmt.Printf("killed %s; the supervisor restarts it.\n", args[0])
			return nil
		},
	}
}
