package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newDown(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and delete everything except the built programs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := open()
			if err != nil {
				return err
			}
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
		},
	}
}
