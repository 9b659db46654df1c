package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objectSelection holds the flags that select objects when none is named.
type objectSelection struct {
	allNamespaces bool
	selector      string
}

func (s *objectSelection) addSelectionFlags(command *cobra.Command) {
	command.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "Select objects in all namespaces.")
	command.Flags().StringVarP(&s.selector, "selector", "l", "", "Select objects by label, such as team=data.")
}

// listOptions returns the selection as options of a list request.
func (s *objectSelection) listOptions(cluster *clusterConnection) ([]client.ListOption, error) {
	selector, err := labels.Parse(s.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	options := []client.ListOption{client.MatchingLabelsSelector{Selector: selector}}
	if !s.allNamespaces {
		options = append(options, client.InNamespace(cluster.namespace))
	}
	return options, nil
}

// connectAndSelect connects to the cluster and returns options that list the selected
// objects. It lists one object, so that a missing permission or kind ends the command: a
// watch would report it as a temporary failure and retry.
func (s *objectSelection) connectAndSelect(ctx context.Context, env *environment, list client.ObjectList) (*clusterConnection, []client.ListOption, error) {
	cluster, err := env.connect(env.clientConfig)
	if err != nil {
		return nil, nil, err
	}
	options, err := s.listOptions(cluster)
	if err != nil {
		return nil, nil, err
	}
	return cluster, options, cluster.List(ctx, list, append(options, client.Limit(1))...)
}
