package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/localcluster/internal/cluster"
)

func newKubeconfig(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: open.runE(func(_ *cobra.Command, c *cluster.Cluster, _ []string) error {
			fmt.Println(c.Kubeconfig())
			return nil
		}),
	}
}

func newKubectl(open opener) *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl -- ARGS",
		Short: "Run the built-in kubectl as the cluster's administrator",
		RunE: open.runE(func(_ *cobra.Command, c *cluster.Cluster, args []string) error {
			program, err := c.Kubectl()
			if err != nil {
				return err
			}
			env := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "KUBECONFIG=") })
			env = append(env, "KUBECONFIG="+c.Kubeconfig())
			// Not a child: signals, the terminal and the exit code are kubectl's.
			return syscall.Exec(program, append([]string{program, "kubectl"}, args...), env)
		}),
	}
	command.Flags().SetInterspersed(false) // what follows the first argument is kubectl's
	return command
}
