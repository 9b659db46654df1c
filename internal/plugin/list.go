package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

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
	list := deepCopy(l.kind.emptyList)
	cluster, _, err := l.connectAndList(ctx, l.environment, list, 0)
	if err != nil {
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
		place := " in namespace " + namespace
		if l.allNamespaces {
			place = ""
		}
		fmt.Fprintf(l.errOut, "No %ss found%s.\n", l.kind.kindName, place)
		return nil
	default:
		return terminal.WriteLines(l.out, l.kind.renderTable(l.outputStyle(), items, l.now()).Lines(l.allNamespaces))
	}
}

// objectSelection holds the flags that select objects when none is named.
type objectSelection struct {
	allNamespaces bool
	selector      string
}

func (s *objectSelection) addSelectionFlags(command *cobra.Command) {
	command.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "Select objects in all namespaces.")
	command.Flags().StringVarP(&s.selector, "selector", "l", "", "Select objects by label, such as team=data.")
}

// connectAndList connects to the cluster and lists the selected objects, or up to a limit that
// is not zero. It also returns the options of the request. A watch first lists one object, so
// that a missing permission or kind ends the command: the watch would report it as a temporary
// failure and retry.
func (s *objectSelection) connectAndList(ctx context.Context, env *environment, list client.ObjectList, limit client.Limit) (*clusterConnection, []client.ListOption, error) {
	cluster, err := env.connect(env.clientConfig)
	if err != nil {
		return nil, nil, err
	}
	selector, err := labels.Parse(s.selector)
	if err != nil {
		return nil, nil, fmt.Errorf("--selector: %w", err)
	}
	options := []client.ListOption{client.MatchingLabelsSelector{Selector: selector}}
	if !s.allNamespaces {
		options = append(options, client.InNamespace(cluster.namespace))
	}
	return cluster, options, cluster.List(ctx, list, append(slices.Clip(options), limit)...)
}

// The values of --output.
const (
	outputTable = "table"
	outputText  = "text"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

// printEncoded prints a value as JSON or YAML.
func printEncoded(out io.Writer, format string, v any) error {
	if format == outputYAML {
		raw, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = out.Write(raw)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
