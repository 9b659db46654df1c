package cli

import "github.com/spf13/cobra"

func newSupervise(open opener) *cobra.Command {
	return &cobra.Command{
		Use:    "supervise",
		Short:  "Run the processes of a cluster; started by up",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			return c.Supervise()
		},
	}
}
