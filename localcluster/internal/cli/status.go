package cli

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/localcluster/internal/cluster"
)

func newStatus(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Print the cluster's state; the exit code is 1 if it is not up",
		Args:  cobra.NoArgs,
		RunE: open.runE(func(command *cobra.Command, c *cluster.Cluster, _ []string) error {
			status, err := c.Status(command.Context())
			if err != nil {
				return err
			}
			if status == nil {
				fmt.Printf("there is no cluster %q.\n", c.Name)
				return errSaid
			}
			if err := printStatus(os.Stdout, c, status); err != nil {
				return err
			}
			if !status.Up {
				return errSaid
			}
			return nil
		}),
	}
}

func printStatus(to io.Writer, c *cluster.Cluster, status *cluster.Status) error {
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "cluster\t%s, mode %s, %s\n", c.Name, status.Mode, upOrDown(status.Up))
	fmt.Fprintf(out, "since\t%s (%s)\n", status.Since.Format(time.DateTime), time.Since(status.Since).Round(time.Second))
	fmt.Fprintf(out, "kubeconfig\t%s\n", c.Kubeconfig())
	fmt.Fprintf(out, "API server\t%s, %s\n", status.Server, ready(status.API == nil))
	if status.API != nil {
		fmt.Fprintf(out, "\t%v\n", status.API)
	}
	for _, node := range status.Nodes {
		fmt.Fprintf(out, "node\t%s, %s\n", node.Name, ready(node.Ready))
	}
	fmt.Fprintf(out, "\n")
	total := int64(0)
	for _, component := range status.Components {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", component.Name, upOrDown(component.Processes > 0), megabytes(component.Memory), component.Versions)
		total += component.Memory
	}
	fmt.Fprintf(out, "all\t\t%s\n", megabytes(total))
	return out.Flush()
}

func upOrDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func ready(ready bool) string {
	if ready {
		return "ready"
	}
	return "not ready"
}

func megabytes(bytes int64) string { return fmt.Sprintf("%d MB", bytes/1_000_000) }
