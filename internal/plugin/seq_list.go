package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/board"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// listCommand is `kubectl yardmaster seq list`.
type listCommand struct {
	*environment
	selection

	output string
}

func newList(env *environment) *cobra.Command {
	l := &listCommand{environment: env}
	command := &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             "List SequentialJobs, with a sign for each step",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return l.run(command.Context()) },
	}
	l.addFlags(command)
	command.Flags().StringVarP(&l.output, "output", "o", outputTable, "What to print: table, json, yaml or name.")
	return command
}

func (l *listCommand) run(ctx context.Context) error {
	if err := oneOf("output", l.output, outputTable, outputJSON, outputYAML, outputName); err != nil {
		return err
	}
	cluster, err := l.connect(l.config)
	if err != nil {
		return err
	}
	options, err := l.options(cluster)
	if err != nil {
		return err
	}
	list := v1alpha1.SequentialJobList{Items: []v1alpha1.SequentialJob{}}
	if err := cluster.List(ctx, &list, options...); err != nil {
		return err
	}
	return l.print(&list, cluster.namespace)
}

func (l *listCommand) print(list *v1alpha1.SequentialJobList, namespace string) error {
	switch l.output {
	case outputTable:
		return l.printTable(pointers(list), namespace)
	case outputName:
		for i := range list.Items {
			fmt.Fprintln(l.out, called(&list.Items[i]))
		}
		return nil
	default:
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SequentialJobList"))
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SequentialJob"))
			list.Items[i].ManagedFields = nil // as kubectl leaves them out
		}
		return encode(l.out, l.output, list)
	}
}

func (l *listCommand) printTable(sjs []*v1alpha1.SequentialJob, namespace string) error {
	switch {
	case len(sjs) == 0 && l.allNamespaces:
		fmt.Fprintln(l.errOut, "No SequentialJobs found.")
		return nil
	case len(sjs) == 0:
		fmt.Fprintf(l.errOut, "No SequentialJobs found in namespace %s.\n", namespace)
		return nil
	case l.allNamespaces:
		return terminal.Lines(l.out, board.RowsOfNamespaces(l.style(), sjs, l.now()))
	default:
		return terminal.Lines(l.out, board.Rows(l.style(), sjs, l.now()))
	}
}

// pointers are the items in the order of their namespaces and names, which is the API
// server's own.
func pointers(list *v1alpha1.SequentialJobList) []*v1alpha1.SequentialJob {
	sjs := make([]*v1alpha1.SequentialJob, len(list.Items))
	for i := range list.Items {
		sjs[i] = &list.Items[i]
	}
	return sjs
}
