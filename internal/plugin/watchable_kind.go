package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// watchableKind is a kind whose objects finish, so that a watch can end.
type watchableKind[T client.Object] struct {
	*resourceKind[T]

	// isFinished reports whether no further change is expected unless a user requests one.
	isFinished func(T) bool
	// isSuccessful reports whether a finished object has succeeded: it decides the exit code.
	isSuccessful func(T) bool
	// needsAttention reports whether the object has failed or cannot continue. A table has such objects first.
	needsAttention func(T) bool
	// describeChanges returns a line for each change. A nil before describes everything.
	describeChanges func(before, after T) []render.Change
	// renderDetail renders one object.
	renderDetail func(terminal.Style, T, time.Time) []string
	// renderLegend renders what is shown below a table.
	renderLegend func(terminal.Style) []string
}

var (
	watchableSequentialJobs = &watchableKind[*v1alpha1.SequentialJob]{
		resourceKind: sequentialJobKind,
		isFinished:   isRunFinished, describeChanges: render.SequenceChanges, renderDetail: render.SequenceDetail,
		renderLegend: func(style terminal.Style) []string { return []string{"", render.StepLegend(style)} },
		isSuccessful: func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Phase != v1alpha1.PhaseFailed },
		needsAttention: func(sj *v1alpha1.SequentialJob) bool {
			return sj.Status.Phase == v1alpha1.PhaseFailed || meta.IsStatusConditionTrue(sj.Status.Conditions, v1alpha1.ConditionBlocked)
		},
	}
	watchableSessions = &watchableKind[*v1alpha1.AgenticSession]{
		resourceKind: agenticSessionKind,
		isFinished:   isSessionInactive, describeChanges: render.SessionChanges, renderDetail: render.SessionDetail,
		renderLegend: func(terminal.Style) []string { return nil },
		isSuccessful: func(s *v1alpha1.AgenticSession) bool { return s.Status.Phase == v1alpha1.SessionCompleted },
		needsAttention: func(s *v1alpha1.AgenticSession) bool {
			return s.Status.Phase == v1alpha1.SessionFailed || meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStalled)
		},
	}
)

// watchCommand is `kubectl yardmaster seq watch` and `session watch`.
type watchCommand[T client.Object] struct {
	*environment
	objectSelection

	kind               *watchableKind[T]
	all, untilFinished bool
}

func newWatchCommand[T client.Object](env *environment, kind *watchableKind[T], short, long, untilFinished string) *cobra.Command {
	w := &watchCommand[T]{environment: env, kind: kind}
	command := &cobra.Command{
		Use:               "watch [NAME]",
		Short:             short,
		Long:              long,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: kind.completeNames(env, 1),
		RunE:              func(command *cobra.Command, args []string) error { return w.runWatch(command.Context(), args) },
	}
	w.addSelectionFlags(command)
	command.Flags().BoolVar(&w.all, "all", false, "Watch all objects in the namespace. This is the default without a NAME.")
	command.Flags().BoolVar(&w.untilFinished, "until-finished", false, untilFinished)
	return command
}

func (w *watchCommand[T]) runWatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return w.watchSelected(ctx)
	}
	if w.all || w.allNamespaces || w.selector != "" {
		return errors.New("a NAME cannot be combined with --all, --all-namespaces or --selector")
	}
	cluster, object, err := w.kind.connectAndGet(ctx, w.environment, args[0])
	if err != nil {
		return err
	}
	return w.kind.watchObject(ctx, w.environment, cluster, object, false)
}

func (w *watchCommand[T]) watchSelected(ctx context.Context) error {
	cluster, options, err := w.connectAndList(ctx, w.environment, deepCopy(w.kind.emptyList), 1)
	if err != nil {
		return err
	}
	view := newListView(w.environment, w.kind)
	view.showNamespaces, view.endless = w.allNamespaces, !w.untilFinished
	return watchObjects(ctx, w.environment, cluster, view, w.kind.resourceKind, options...)
}

// watchObject watches one object, starting from its latest known state. latestPrinted means
// that the user has already seen that state.
func (k *watchableKind[T]) watchObject(ctx context.Context, e *environment, cluster *clusterConnection, latest T, latestPrinted bool) error {
	view := &objectView[T]{environment: e, kind: k, latest: latest, latestPrinted: latestPrinted}
	return watchObjects(ctx, e, cluster, view, k.resourceKind, selectSingleObject(latest)...)
}
