package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

type listCommand[T client.Object] struct {
	*environment
	objectSelection

	kind   *resourceKind[T]
	format string
}

func newListCommand[T client.Object](env *environment, kind *resourceKind[T], short string) *cobra.Command {
	l := &listCommand[T]{environment: env, kind: kind}
	command := &cobra.Command{
		Use:               "list [NAME...]",
		Aliases:           []string{"get", "ls"},
		Short:             short,
		ValidArgsFunction: kind.completeNames(env, anyNumberOfNames),
		RunE:              func(command *cobra.Command, names []string) error { return l.runList(command.Context(), names) },
	}
	l.addSelectionFlags(command)
	addOutputFlag(command, &l.format, outputTable, outputWide, outputJSON, outputYAML, outputName)
	return command
}

func (l *listCommand[T]) runList(ctx context.Context, names []string) error {
	if err := l.rejectWith(names); err != nil {
		return err
	}
	if len(names) == 0 {
		list := deepCopy(l.kind.emptyList)
		cluster, _, err := l.connectAndList(ctx, l.environment, list, 0)
		if err != nil {
			return err
		}
		items, err := extractItems[T](list)
		if err != nil {
			return err
		}
		return l.printItems(items, false, cluster.namespace)
	}
	cluster, err := l.connect(l.clientConfig)
	if err != nil {
		return err
	}
	var items []T
	var failures []error // the objects that can be read are printed nevertheless
	for _, name := range names {
		object, err := l.kind.getObject(ctx, cluster, name)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		items = append(items, object)
	}
	if len(items) > 0 {
		failures = append(failures, l.printItems(items, len(names) == 1, cluster.namespace))
	}
	return errors.Join(failures...)
}

// printItems prints objects. A single named object is not printed as a list.
func (l *listCommand[T]) printItems(items []T, single bool, namespace string) error {
	switch l.format {
	case outputName:
		for _, item := range items {
			fmt.Fprintln(l.out, l.kind.qualifiedName(item))
		}
		return nil
	case outputJSON, outputYAML:
		return l.printEncodedItems(items, single)
	}
	if len(items) == 0 {
		place := " in namespace " + namespace
		if l.allNamespaces {
			place = ""
		}
		fmt.Fprintf(l.errOut, "No %ss found%s.\n", l.kind.kindName, place)
		return nil
	}
	table := l.kind.renderTable(l.outputStyle(), items, l.now())
	if l.format == outputWide {
		var ready, messages []string
		for _, item := range items {
			status, message := "-", "-"
			if condition := meta.FindStatusCondition(l.kind.conditions(item), v1alpha1.ConditionReady); condition != nil {
				status, message = string(condition.Status), cmp.Or(terminal.Sanitize(condition.Message), "-")
			}
			ready, messages = append(ready, status), append(messages, message)
		}
		table.AddColumn("READY", ready)
		table.AddColumn("MESSAGE", messages)
	}
	return terminal.WriteLines(l.out, table.Lines(l.allNamespaces))
}

func (l *listCommand[T]) printEncodedItems(items []T, single bool) error {
	for _, item := range items {
		item.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(l.kind.kindName))
		item.SetManagedFields(nil) // kubectl omits them too
	}
	if single {
		return printEncoded(l.out, l.format, items[0])
	}
	return printEncoded(l.out, l.format, struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`

		Items []T `json:"items"`
	}{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: l.kind.kindName + "List"},
		Items:    append([]T{}, items...), // an empty list is printed as []
	})
}

// objectSelection has the flags that select objects without names.
type objectSelection struct {
	allNamespaces bool
	selector      string
}

func (s *objectSelection) addSelectionFlags(command *cobra.Command) {
	command.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "Select objects in all namespaces.")
	command.Flags().StringVarP(&s.selector, "selector", "l", "", "Select objects by label, such as team=data.")
}

// rejectWith returns an error if names are combined with the flags.
func (s *objectSelection) rejectWith(names []string) error {
	if len(names) > 0 && (s.allNamespaces || s.selector != "") {
		return errors.New("a NAME cannot be combined with --all-namespaces or --selector")
	}
	return nil
}

func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	return selector, nil
}

// connectAndList connects to the cluster and lists the selected objects, up to a limit that is not zero. It also returns the options
// of the request. A watch first lists one object, so that a missing permission or kind ends the command: the watch would report it as
// a temporary failure and retry.
func (s *objectSelection) connectAndList(ctx context.Context, env *environment, list client.ObjectList, limit client.Limit) (*clusterConnection, []client.ListOption, error) {
	cluster, err := env.connect(env.clientConfig)
	if err != nil {
		return nil, nil, err
	}
	selector, err := parseSelector(s.selector)
	if err != nil {
		return nil, nil, err
	}
	options := []client.ListOption{client.MatchingLabelsSelector{Selector: selector}}
	if !s.allNamespaces {
		options = append(options, client.InNamespace(cluster.namespace))
	}
	return cluster, options, cluster.List(ctx, list, append(slices.Clip(options), limit)...)
}
