package plugin

import (
	"context"
	"math"
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

type resourceKind[T client.Object] struct {
	// kindName is the CamelCase name, such as SequentialJob.
	kindName string
	// emptyObject and emptyList are never changed.
	emptyObject T
	emptyList   client.ObjectList
	conditions  func(T) []metav1.Condition
	renderTable func(terminal.Style, []T, time.Time) *render.Table

	// The fields below are nil for kinds whose objects do not finish.

	// phase is the state of an object. Kinds without a phase have the reason of the condition Ready instead.
	phase func(T) string
	// isFinished reports whether no further change is expected unless a user requests it.
	isFinished func(T) bool
	// isSuccessful reports whether a finished object has succeeded, for the exit code.
	isSuccessful func(T) bool
	// needsAttention reports whether the object has failed or cannot continue. A table lists such objects first.
	needsAttention func(T) bool
	// describeChanges returns a line for each change. A nil before describes the whole state.
	describeChanges func(before, after T) []render.Change
	renderDetail    func(terminal.Style, T, time.Time) []string
	// renderLegend renders the line below a table. It is optional.
	renderLegend func(terminal.Style) string
}

var (
	sequentialJobKind = &resourceKind[*v1alpha1.SequentialJob]{
		kindName: "SequentialJob", emptyObject: &v1alpha1.SequentialJob{}, emptyList: &v1alpha1.SequentialJobList{},
		conditions:  func(sj *v1alpha1.SequentialJob) []metav1.Condition { return sj.Status.Conditions },
		renderTable: render.SequenceTable,
		phase:       func(sj *v1alpha1.SequentialJob) string { return string(sj.Status.Phase) },
		isFinished:  isRunFinished, describeChanges: render.SequenceChanges, renderDetail: render.SequenceDetail, renderLegend: render.StepLegend,
		isSuccessful: func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Phase != v1alpha1.PhaseFailed },
		needsAttention: func(sj *v1alpha1.SequentialJob) bool {
			return sj.Status.Phase == v1alpha1.PhaseFailed || meta.IsStatusConditionTrue(sj.Status.Conditions, v1alpha1.ConditionBlocked)
		},
	}
	agenticSessionKind = &resourceKind[*v1alpha1.AgenticSession]{
		kindName: "AgenticSession", emptyObject: &v1alpha1.AgenticSession{}, emptyList: &v1alpha1.AgenticSessionList{},
		conditions:  func(s *v1alpha1.AgenticSession) []metav1.Condition { return s.Status.Conditions },
		renderTable: render.SessionTable,
		phase:       func(s *v1alpha1.AgenticSession) string { return string(s.Status.Phase) },
		isFinished:  isSessionInactive, describeChanges: render.SessionChanges, renderDetail: render.SessionDetail,
		isSuccessful: func(s *v1alpha1.AgenticSession) bool { return s.Status.Phase == v1alpha1.SessionCompleted },
		needsAttention: func(s *v1alpha1.AgenticSession) bool {
			return s.Status.Phase == v1alpha1.SessionFailed || meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStalled)
		},
	}
	queueKind = &resourceKind[*v1alpha1.Queue]{
		kindName: "Queue", emptyObject: &v1alpha1.Queue{}, emptyList: &v1alpha1.QueueList{},
		conditions:  func(q *v1alpha1.Queue) []metav1.Condition { return q.Status.Conditions },
		renderTable: render.QueueTable,
	}
	workerPoolKind = &resourceKind[*v1alpha1.WorkerPool]{
		kindName: "WorkerPool", emptyObject: &v1alpha1.WorkerPool{}, emptyList: &v1alpha1.WorkerPoolList{},
		conditions:  func(wp *v1alpha1.WorkerPool) []metav1.Condition { return wp.Status.Conditions },
		renderTable: render.PoolTable,
	}
	scheduleKind = &resourceKind[*v1alpha1.Schedule]{
		kindName: "Schedule", emptyObject: &v1alpha1.Schedule{}, emptyList: &v1alpha1.ScheduleList{},
		conditions:  func(s *v1alpha1.Schedule) []metav1.Condition { return s.Status.Conditions },
		renderTable: render.ScheduleTable,
	}
)

func deepCopy[T runtime.Object](object T) T {
	return object.DeepCopyObject().(T) //nolint:forcetypeassert // a copy is of the same type
}

// state returns the phase of an object, or the reason of its condition Ready; empty without either.
func (k *resourceKind[T]) state(object T) string {
	if k.phase != nil {
		return k.phase(object)
	}
	if ready := meta.FindStatusCondition(k.conditions(object), v1alpha1.ConditionReady); ready != nil {
		return terminal.Sanitize(ready.Reason)
	}
	return ""
}

// qualifiedName returns the object's name as kubectl prints it, such as sequentialjob.yardmaster.dev/etl.
func (k *resourceKind[T]) qualifiedName(object T) string {
	return strings.ToLower(k.kindName) + ".yardmaster.dev/" + object.GetName()
}

// getObject reads the named object from the namespace of the connection.
func (k *resourceKind[T]) getObject(ctx context.Context, cluster *clusterConnection, name string) (T, error) {
	object := deepCopy(k.emptyObject)
	return object, cluster.Get(ctx, client.ObjectKey{Namespace: cluster.namespace, Name: name}, object)
}

func (k *resourceKind[T]) connectAndGet(ctx context.Context, env *environment, name string) (*clusterConnection, T, error) {
	cluster, err := env.connect(env.clientConfig)
	if err != nil {
		return nil, k.emptyObject, err
	}
	object, err := k.getObject(ctx, cluster, name)
	return cluster, object, err
}

// newObjectCommand returns a command that reads the object NAME and passes it to run.
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

func selectSingleObject(object client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(object.GetNamespace()), client.MatchingFields{"metadata.name": object.GetName()}}
}

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

// anyNumberOfNames is maxNames of commands with any number of names.
const anyNumberOfNames = math.MaxInt

func (k *resourceKind[T]) completeNames(env *environment, maxNames int) cobra.CompletionFunc {
	return func(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) >= maxNames {
			return nil, noFileCompletion
		}
		return completeObjects(command, env, given, &objectSelection{}, deepCopy(k.emptyList), k.state)
	}
}
