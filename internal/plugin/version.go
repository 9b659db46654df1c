package plugin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/internal/version"
)

// newVersionCommand is `kubectl yardmaster version`.
func newVersionCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version of the plugin",
		Args:              rejectArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(env.out, version.Describe("kubectl-yardmaster"))
			return err
		},
	}
}
