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

// resourceKind describes one of the kinds that commands work on.
type resourceKind[T client.Object] struct {
	// kindName is the CamelCase name, such as SequentialJob.
	kindName string
	// singularName is the name in kubectl's output, such as sequentialjob.
	singularName string
	newObject    func() T
	newList      func() client.ObjectList
	renderTable  func(terminal.Style, []T, time.Time) *render.Table
	// completionHint is shown next to a completed name.
	completionHint func(T) string
}

func sequentialJobKind() *resourceKind[*v1alpha1.SequentialJob] {
	return &resourceKind[*v1alpha1.SequentialJob]{
		kindName: "SequentialJob", singularName: "sequentialjob",
		newObject:      func() *v1alpha1.SequentialJob { return &v1alpha1.SequentialJob{} },
		newList:        func() client.ObjectList { return &v1alpha1.SequentialJobList{Items: []v1alpha1.SequentialJob{}} },
		renderTable:    render.SequenceTable,
		completionHint: func(sj *v1alpha1.SequentialJob) string { return string(sj.Status.Phase) },
	}
}

func queueKind() *resourceKind[*v1alpha1.Queue] {
	return &resourceKind[*v1alpha1.Queue]{
		kindName: "Queue", singularName: "queue",
		newObject:      func() *v1alpha1.Queue { return &v1alpha1.Queue{} },
		newList:        func() client.ObjectList { return &v1alpha1.QueueList{Items: []v1alpha1.Queue{}} },
		renderTable:    render.QueueTable,
		completionHint: func(q *v1alpha1.Queue) string { return readyReason(q.Status.Conditions) },
	}
}

func workerPoolKind() *resourceKind[*v1alpha1.WorkerPool] {
	return &resourceKind[*v1alpha1.WorkerPool]{
		kindName: "WorkerPool", singularName: "workerpool",
		newObject:      func() *v1alpha1.WorkerPool { return &v1alpha1.WorkerPool{} },
		newList:        func() client.ObjectList { return &v1alpha1.WorkerPoolList{Items: []v1alpha1.WorkerPool{}} },
		renderTable:    render.PoolTable,
		completionHint: func(wp *v1alpha1.WorkerPool) string { return readyReason(wp.Status.Conditions) },
	}
}

func agenticSessionKind() *resourceKind[*v1alpha1.AgenticSession] {
	return &resourceKind[*v1alpha1.AgenticSession]{
		kindName: "AgenticSession", singularName: "agenticsession",
		newObject:      func() *v1alpha1.AgenticSession { return &v1alpha1.AgenticSession{} },
		newList:        func() client.ObjectList { return &v1alpha1.AgenticSessionList{Items: []v1alpha1.AgenticSession{}} },
		renderTable:    render.SessionTable,
		completionHint: func(s *v1alpha1.AgenticSession) string { return string(s.Status.Phase) },
	}
}

// readyReason returns the reason of the condition Ready, or "" without one.
func readyReason(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return terminal.Sanitize(ready.Reason)
	}
	return ""
}

// qualifiedName returns the object's name as kubectl prints it, such as
// sequentialjob.yardmaster.dev/etl.
func (k *resourceKind[T]) qualifiedName(object T) string {
	return k.singularName + ".yardmaster.dev/" + object.GetName()
}

// getObject reads the named object from the namespace of the connection.
func (k *resourceKind[T]) getObject(ctx context.Context, cluster *clusterConnection, name string) (T, error) {
	object := k.newObject()
	return object, cluster.Get(ctx, client.ObjectKey{Namespace: cluster.namespace, Name: name}, object)
}

// connectAndGet connects to the cluster and reads the named object.
func (k *resourceKind[T]) connectAndGet(ctx context.Context, env *environment, name string) (*clusterConnection, T, error) {
	cluster, err := env.connect(env.clientConfig)
	if err != nil {
		var none T
		return nil, none, err
	}
	object, err := k.getObject(ctx, cluster, name)
	return cluster, object, err
}

// selectSingleObject returns list options that match only this object.
func selectSingleObject(object client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(object.GetNamespace()), client.MatchingFields{"metadata.name": object.GetName()}}
}

// extractItems returns the items of a list as typed objects.
func extractItems[T client.Object](list client.ObjectList) ([]T, error) {
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var items []T
	for _, object := range objects {
		if item, ok := object.(T); ok {
			items = append(items, item)
		}
	}
	return items, nil
}

// completeSingleName completes the name of one object.
func (k *resourceKind[T]) completeSingleName(env *environment) cobra.CompletionFunc {
	completeNames := k.completeNames(env)
	return func(command *cobra.Command, given []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, noFileCompletion
		}
		return completeNames(command, given, typed)
	}
}

// completeNames completes names that are not on the command line yet. The shell filters
// them by what the user typed.
func (k *resourceKind[T]) completeNames(env *environment) cobra.CompletionFunc {
	return func(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
		defer cancel()
		items, err := k.listNamespace(ctx, env)
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

// listNamespace connects and lists the objects in the namespace of the connection.
func (k *resourceKind[T]) listNamespace(ctx context.Context, env *environment) ([]T, error) {
	cluster, err := env.connect(env.clientConfig)
	if err != nil {
		return nil, err
	}
	list := k.newList()
	if err := cluster.List(ctx, list, client.InNamespace(cluster.namespace)); err != nil {
		return nil, err
	}
	return extractItems[T](list)
}

// noneFoundMessage is printed instead of an empty table.
func (k *resourceKind[T]) noneFoundMessage(s *objectSelection, namespace string) string {
	if s.allNamespaces {
		return fmt.Sprintf("No %ss found.", k.kindName)
	}
	return fmt.Sprintf("No %ss found in namespace %s.", k.kindName, namespace)
}
