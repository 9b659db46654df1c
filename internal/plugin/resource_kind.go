package plugin

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// resourceKind describes one of the kinds that commands work on.
type resourceKind[T client.Object] struct {
	// kindName is the CamelCase name, such as SequentialJob.
	kindName string
	// emptyObject and emptyList are never changed. The list's items are not nil, so that they
	// are printed as [].
	emptyObject T
	emptyList   client.ObjectList
	renderTable func(terminal.Style, []T, time.Time) *render.Table
	// completionHint is shown next to a completed name.
	completionHint func(T) string
}

var (
	sequentialJobKind = &resourceKind[*v1alpha1.SequentialJob]{
		"SequentialJob", &v1alpha1.SequentialJob{}, &v1alpha1.SequentialJobList{Items: []v1alpha1.SequentialJob{}}, render.SequenceTable,
		func(sj *v1alpha1.SequentialJob) string { return string(sj.Status.Phase) },
	}
	queueKind = &resourceKind[*v1alpha1.Queue]{
		"Queue", &v1alpha1.Queue{}, &v1alpha1.QueueList{Items: []v1alpha1.Queue{}}, render.QueueTable,
		func(q *v1alpha1.Queue) string { return readyReason(q.Status.Conditions) },
	}
	workerPoolKind = &resourceKind[*v1alpha1.WorkerPool]{
		"WorkerPool", &v1alpha1.WorkerPool{}, &v1alpha1.WorkerPoolList{Items: []v1alpha1.WorkerPool{}}, render.PoolTable,
		func(wp *v1alpha1.WorkerPool) string { return readyReason(wp.Status.Conditions) },
	}
	scheduleKind = &resourceKind[*v1alpha1.Schedule]{
		"Schedule", &v1alpha1.Schedule{}, &v1alpha1.ScheduleList{Items: []v1alpha1.Schedule{}}, render.ScheduleTable,
		func(s *v1alpha1.Schedule) string { return readyReason(s.Status.Conditions) },
	}
	agenticSessionKind = &resourceKind[*v1alpha1.AgenticSession]{
		"AgenticSession", &v1alpha1.AgenticSession{}, &v1alpha1.AgenticSessionList{Items: []v1alpha1.AgenticSession{}}, render.SessionTable,
		func(s *v1alpha1.AgenticSession) string { return string(s.Status.Phase) },
	}
)

// readyReason returns the reason of the condition Ready, or "" without one.
func readyReason(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return terminal.Sanitize(ready.Reason)
	}
	return ""
}

func deepCopy[T runtime.Object](object T) T {
	return object.DeepCopyObject().(T) //nolint:forcetypeassert // a copy is of the same type
}

// qualifiedName returns the object's name as kubectl prints it, such as
// sequentialjob.yardmaster.dev/etl.
func (k *resourceKind[T]) qualifiedName(object T) string {
	return strings.ToLower(k.kindName) + ".yardmaster.dev/" + object.GetName()
}

// getObject reads the named object from the namespace of the connection.
func (k *resourceKind[T]) getObject(ctx context.Context, cluster *clusterConnection, name string) (T, error) {
	object := deepCopy(k.emptyObject)
	return object, cluster.Get(ctx, client.ObjectKey{Namespace: cluster.namespace, Name: name}, object)
}

// connectAndGet connects to the cluster and reads the named object.
func (k *resourceKind[T]) connectAndGet(ctx context.Context, env *environment, name string) (*clusterConnection, T, error) {
	cluster, err := env.connect(env.clientConfig)
	if err != nil {
		return nil, k.emptyObject, err
	}
	object, err := k.getObject(ctx, cluster, name)
	return cluster, object, err
}

// newObjectCommand returns a command that reads the object with the NAME and passes it to run.
func (k *resourceKind[T]) newObjectCommand(
	env *environment, verb, short, long string, run func(ctx context.Context, cluster *clusterConnection, object T) error,
) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NAME",
		Short:             short,
		Long:              long,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: k.completeNames(env, 1),
		RunE: func(command *cobra.Command, args []string) error {
			cluster, object, err := k.connectAndGet(command.Context(), env, args[0])
			if err != nil {
				return err
			}
			return run(command.Context(), cluster, object)
		},
	}
}

// selectSingleObject returns list options that match only this object.
func selectSingleObject(object client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(object.GetNamespace()), client.MatchingFields{"metadata.name": object.GetName()}}
}

// extractItems returns the items of a list as typed objects.
func extractItems[T client.Object](list client.ObjectList) ([]T, error) {
	var items []T
	err := meta.EachListItem(list, func(object runtime.Object) error {
		if item, ok := object.(T); ok {
			items = append(items, item)
		}
		return nil
	})
	return items, err
}

// anyNumberOfNames is the maxNames of commands that take several names.
const anyNumberOfNames = math.MaxInt

// completeNames completes up to maxNames names that are not on the command line yet. The
// shell filters them by what the user typed.
func (k *resourceKind[T]) completeNames(env *environment, maxNames int) cobra.CompletionFunc {
	return func(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) >= maxNames {
			return nil, noFileCompletion
		}
		ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
		defer cancel()
		list := deepCopy(k.emptyList)
		if _, _, err := (&objectSelection{}).connectAndList(ctx, env, list, 0); err != nil {
			return nil, noFileCompletion
		}
		items, err := extractItems[T](list)
		if err != nil {
			return nil, noFileCompletion
		}
		var names []cobra.Completion
		for _, item := range items {
			if !slices.Contains(given, item.GetName()) {
				names = append(names, cobra.CompletionWithDesc(item.GetName(), k.completionHint(item)))
			}
		}
		return names, noFileCompletion
	}
}
