package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// listCommand is `kubectl yardmaster seq list`, `queue list`, `pool list` and `session list`.
type listCommand[T client.Object] struct {
	*environment
	objectSelection

	kind         *resourceKind[T]
	outputFormat string
}

func newListCommand[T client.Object](env *environment, kind *resourceKind[T], short string) *cobra.Command {
	l := &listCommand[T]{environment: env, kind: kind}
	command := &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             short,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return l.runList(command.Context()) },
	}
	l.addSelectionFlags(command)
	command.Flags().StringVarP(&l.outputFormat, "output", "o", outputTable, "Output format: table, json, yaml or name.")
	return command
}

func (l *listCommand[T]) runList(ctx context.Context) error {
	if err := validateChoice("output", l.outputFormat, outputTable, outputJSON, outputYAML, outputName); err != nil {
		return err
	}
	cluster, err := l.connect(l.clientConfig)
	if err != nil {
		return err
	}
	options, err := l.listOptions(cluster)
	if err != nil {
		return err
	}
	list := l.kind.newList()
	if err := cluster.List(ctx, list, options...); err != nil {
		return err
	}
	return l.printItems(list, cluster.namespace)
}

func (l *listCommand[T]) printItems(list client.ObjectList, namespace string) error {
	items, err := extractItems[T](list)
	if err != nil {
		return err
	}
	switch {
	case l.outputFormat == outputName:
		for _, item := range items {
			fmt.Fprintln(l.out, l.kind.qualifiedName(item))
		}
		return nil
	case l.outputFormat != outputTable:
		list.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(l.kind.kindName + "List"))
		for _, item := range items {
			item.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(l.kind.kindName))
			item.SetManagedFields(nil) // kubectl omits them too
		}
		return printEncoded(l.out, l.outputFormat, list)
	case len(items) == 0:
		fmt.Fprintln(l.errOut, l.kind.noneFoundMessage(&l.objectSelection, namespace))
		return nil
	default:
		return terminal.WriteLines(l.out, l.kind.renderTable(l.outputStyle(), items, l.now()).Lines(l.allNamespaces))
	}
}
