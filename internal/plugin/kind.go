package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// kind is one of those that commands are about.
type kind[T client.Object] struct {
	// name of it, and resource as kubectl names one of it.
	name, resource string
	list           func() client.ObjectList
	// rows of a table.
	rows, rowsOfNamespaces func(terminal.Style, []T, time.Time) []string
	// remark stands beside a name that is completed.
	remark func(T) string
}

func sequentialKind() *kind[*v1alpha1.SequentialJob] {
	return &kind[*v1alpha1.SequentialJob]{
		name: "SequentialJob", resource: "sequentialjob",
		list: func() client.ObjectList { return &v1alpha1.SequentialJobList{Items: []v1alpha1.SequentialJob{}} },
		rows: render.Rows, rowsOfNamespaces: render.RowsOfNamespaces,
		remark: func(sj *v1alpha1.SequentialJob) string { return string(sj.Status.Phase) },
	}
}

func queueKind() *kind[*v1alpha1.Queue] {
	return &kind[*v1alpha1.Queue]{
		name: "Queue", resource: "queue",
		list: func() client.ObjectList { return &v1alpha1.QueueList{Items: []v1alpha1.Queue{}} },
		rows: render.Queues, rowsOfNamespaces: render.QueuesOfNamespaces,
		remark: func(q *v1alpha1.Queue) string { return readiness(q.Status.Conditions) },
	}
}

func poolKind() *kind[*v1alpha1.WorkerPool] {
	return &kind[*v1alpha1.WorkerPool]{
		name: "WorkerPool", resource: "workerpool",
		list: func() client.ObjectList { return &v1alpha1.WorkerPoolList{Items: []v1alpha1.WorkerPool{}} },
		rows: render.Pools, rowsOfNamespaces: render.PoolsOfNamespaces,
		remark: func(wp *v1alpha1.WorkerPool) string { return readiness(wp.Status.Conditions) },
	}
}

func readiness(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return terminal.Clean(ready.Reason)
	}
	return ""
}

// called is how kubectl names an object that it has done something to.
func (k *kind[T]) called(object T) string { return k.resource + ".yardmaster.dev/" + object.GetName() }

// read reads the object of that name.
func (c *connection) read(ctx context.Context, name string, into client.Object) error {
	return c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, into)
}

// only selects the one object.
func only(object client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(object.GetNamespace()), client.MatchingFields{"metadata.name": object.GetName()}}
}

// itemsOf a list, by namespace and name.
func itemsOf[T client.Object](list client.ObjectList) ([]T, error) {
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var items []T
	for _, object := range objects {
		if item, is := object.(T); is {
			items = append(items, item)
		}
	}
	return items, nil
}

// completeName completes the name of one object.
func (k *kind[T]) completeName(e *environment) cobra.CompletionFunc {
	names := k.completeNames(e)
	return func(command *cobra.Command, given []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, noFiles
		}
		return names(command, given, typed)
	}
}

// completeNames completes names that are not among those given. The shell itself leaves
// out what does not begin with what is typed.
func (k *kind[T]) completeNames(e *environment) cobra.CompletionFunc {
	return func(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(command.Context(), patience)
		defer cancel()
		cluster, err := e.connect(e.config)
		if err != nil {
			return nil, noFiles
		}
		list := k.list()
		if err := cluster.List(ctx, list, client.InNamespace(cluster.namespace)); err != nil {
			return nil, noFiles
		}
		items, err := itemsOf[T](list)
		if err != nil {
			return nil, noFiles
		}
		var names []cobra.Completion
		for _, item := range items {
			if !slices.Contains(given, item.GetName()) {
				names = append(names, cobra.CompletionWithDesc(item.GetName(), k.remark(item)))
			}
		}
		return names, noFiles
	}
}

// none tells that there is nothing to list.
func (k *kind[T]) none(s *selection, namespace string) string {
	if s.allNamespaces {
		return fmt.Sprintf("No %ss found.", k.name)
	}
	return fmt.Sprintf("No %ss found in namespace %s.", k.name, namespace)
}
