package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newDescribeCommand is `kubectl yardmaster seq describe` and the same for the other kinds.
func newDescribeCommand[T client.Object](env *environment, kind *resourceKind[T], detail func(terminal.Style, T, time.Time) []string) *cobra.Command {
	return kind.newObjectCommand(env, "describe", "Describe "+article(kind.kindName)+": its state, conditions and events",
		"Describe "+article(kind.kindName)+": its state, conditions and events. Without permission to read events, they are omitted.",
		func(ctx context.Context, cluster *clusterConnection, object T) error {
			lines := detail(env.outputStyle(), object, env.now())
			lines = append(lines, render.Conditions(env.outputStyle(), conditionsOf(object), env.now())...)
			events, err := eventsOf(ctx, cluster, object.GetNamespace(), object.GetUID())
			if err != nil {
				fmt.Fprintf(env.errOut, "warning: events are unknown: %s\n", describeError(err)[0])
			}
			return terminal.WriteLines(env.out, append(lines, render.Events(env.outputStyle(), events, env.now())...))
		})
}

// article returns the kind with its article, such as "an AgenticSession".
func article(kind string) string {
	if kind[0] == 'A' {
		return "an " + kind
	}
	return "a " + kind
}

// eventsOf returns the events about an object.
func eventsOf(ctx context.Context, cluster *clusterConnection, namespace string, uid types.UID) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := cluster.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": string(uid)})
	return list.Items, err
}

// newDeleteCommand is `kubectl yardmaster seq delete` and the same for the other kinds.
func newDeleteCommand[T client.Object](env *environment, kind *resourceKind[T]) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete " + kind.kindName + "s",
		Long: "Delete " + kind.kindName + "s. The command does not wait until they are gone.\n\n" +
			"If an object cannot be deleted, the others still are, and the exit code is 2.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: kind.completeNames(env, anyNumberOfNames),
		RunE: func(command *cobra.Command, names []string) error {
			return env.forEachName(names, func(cluster *clusterConnection, name string) (string, error) {
				object := deepCopy(kind.emptyObject)
				object.SetNamespace(cluster.namespace)
				object.SetName(name)
				return kind.qualifiedName(object) + " deleted", cluster.Delete(command.Context(), object)
			})
		},
	}
}
