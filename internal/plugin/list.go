package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// kindList is `kubectl yardmaster seq list`, `queue list` and `pool list`.
type kindList[T client.Object] struct {
	*environment
	selection

	kind   *kind[T]
	output string
}

func newKindList[T client.Object](env *environment, kind *kind[T], short string) *cobra.Command {
	l := &kindList[T]{environment: env, kind: kind}
	command := &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             short,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return l.run(command.Context()) },
	}
	l.addFlags(command)
	command.Flags().StringVarP(&l.output, "output", "o", outputTable, "What to print: table, json, yaml or name.")
	return command
}

func (l *kindList[T]) run(ctx context.Context) error {
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
	list := l.kind.list()
	if err := cluster.List(ctx, list, options...); err != nil {
		return err
	}
	return l.print(list, cluster.namespace)
}

func (l *kindList[T]) print(list client.ObjectList, namespace string) error {
	items, err := itemsOf[T](list)
	if err != nil {
		return err
	}
	switch {
	case l.output == outputName:
		for _, item := range items {
			fmt.Fprintln(l.out, l.kind.called(item))
		}
		return nil
	case l.output != outputTable:
		list.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(l.kind.name + "List"))
		for _, item := range items {
			item.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(l.kind.name))
			item.SetManagedFields(nil) // as kubectl leaves them out
		}
		return encode(l.out, l.output, list)
	case len(items) == 0:
		fmt.Fprintln(l.errOut, l.kind.none(&l.selection, namespace))
		return nil
	case l.allNamespaces:
		return terminal.Lines(l.out, l.kind.rowsOfNamespaces(l.style(), items, l.now()))
	default:
		return terminal.Lines(l.out, l.kind.rows(l.style(), items, l.now()))
	}
}
