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

// resourceKind is one of those that commands are about.
type resourceKind[T client.Object] struct {
	// kindName of it, and resource as kubectl names one of it.
	kindName, singularName string
	newList                func() client.ObjectList
	// rows of a table.
	rows, rowsOfNamespaces func(terminal.Style, []T, time.Time) []string
	// completionHint stands beside a name that is completed.
	completionHint func(T) string
}

func sequentialJobKind() *resourceKind[*v1alpha1.SequentialJob] {
	return &resourceKind[*v1alpha1.SequentialJob]{
		kindName: "SequentialJob", singularName: "sequentialjob",
		newList: func() client.ObjectList { return &v1alpha1.SequentialJobList{Items: []v1alpha1.SequentialJob{}} },
		rows:    render.Rows, rowsOfNamespaces: render.RowsOfNamespaces,
		completionHint: func(sj *v1alpha1.SequentialJob) string { return string(sj.Status.Phase) },
	}
}

func queueKind() *resourceKind[*v1alpha1.Queue] {
	return &resourceKind[*v1alpha1.Queue]{
		kindName: "Queue", singularName: "queue",
		newList: func() client.ObjectList { return &v1alpha1.QueueList{Items: []v1alpha1.Queue{}} },
		rows:    render.Queues, rowsOfNamespaces: render.QueuesOfNamespaces,
		completionHint: func(q *v1alpha1.Queue) string { return readyReason(q.Status.Conditions) },
	}
}

func workerPoolKind() *resourceKind[*v1alpha1.WorkerPool] {
	return &resourceKind[*v1alpha1.WorkerPool]{
		kindName: "WorkerPool", singularName: "workerpool",
		newList: func() client.ObjectList { return &v1alpha1.WorkerPoolList{Items: []v1alpha1.WorkerPool{}} },
		rows:    render.Pools, rowsOfNamespaces: render.PoolsOfNamespaces,
		completionHint: func(wp *v1alpha1.WorkerPool) string { return readyReason(wp.Status.Conditions) },
	}
}

func readyReason(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return terminal.Sanitize(ready.Reason)
	}
	return ""
}

// qualifiedName is how kubectl names an object that it has done something to.
func (k *resourceKind[T]) qualifiedName(object T) string {
	return k.singularName + ".yardmaster.dev/" + object.GetName()
}

// getByName reads the object of that name.
func (c *clusterConnection) getByName(ctx context.Context, name string, into client.Object) error {
	return c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, into)
}

// selectSingleObject selects the one object.
func selectSingleObject(object client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(object.GetNamespace()), client.MatchingFields{"metadata.name": object.GetName()}}
}

// extractItems a list, by namespace and name.
func extractItems[T client.Object](list client.ObjectList) ([]T, error) {
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

// completeSingleName completes the name of one object.
func (k *resourceKind[T]) completeSingleName(e *environment) cobra.CompletionFunc {
	names := k.completeNames(e)
	return func(command *cobra.Command, given []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, noFileCompletion
		}
		return names(command, given, typed)
	}
}

// completeNames completes names that are not among those given. The shell itself leaves
// out what does not begin with what is typed.
func (k *resourceKind[T]) completeNames(e *environment) cobra.CompletionFunc {
	return func(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
		defer cancel()
		cluster, err := e.connect(e.clientConfig)
		if err != nil {
			return nil, noFileCompletion
		}
		list := k.newList()
		if err := cluster.List(ctx, list, client.InNamespace(cluster.namespace)); err != nil {
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

// noneFoundMessage tells that there is nothing to list.
func (k *resourceKind[T]) noneFoundMessage(s *objectSelection, namespace string) string {
	if s.allNamespaces {
		return fmt.Sprintf("No %ss found.", k.kindName)
	}
	return fmt.Sprintf("No %ss found in namespace %s.", k.kindName, namespace)
}
