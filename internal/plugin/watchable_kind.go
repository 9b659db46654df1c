package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// watchableKind is a kind whose objects come to an end, and can be watched until they do.
type watchableKind[T client.Object] struct {
	*resourceKind[T]

	newObject func() T
	// isFinished reports whether nothing more is to be expected of an object, unless somebody
	// asks for it, and outcome what the exit code then tells of it.
	isFinished     func(T) bool
	checkSucceeded func(T) error
	// describeChanges are lines about what is new; all, if there is nothing before.
	describeChanges func(before, after T) []string
	// renderDetail shows one object, and legend what stands below rows of several.
	renderDetail func(terminal.Style, T, time.Time) []string
	renderLegend func(terminal.Style) []string
}

func watchableSequentialJobs() *watchableKind[*v1alpha1.SequentialJob] {
	return &watchableKind[*v1alpha1.SequentialJob]{
		resourceKind: sequentialJobKind(), newObject: func() *v1alpha1.SequentialJob { return &v1alpha1.SequentialJob{} },
		isFinished: isRunFinished, checkSucceeded: checkRunSucceeded, describeChanges: render.SequenceChanges, renderDetail: render.SequenceDetail,
		renderLegend: func(style terminal.Style) []string { return []string{"", render.StepLegend(style)} },
	}
}

func watchableSessions() *watchableKind[*v1alpha1.AgenticSession] {
	return &watchableKind[*v1alpha1.AgenticSession]{
		resourceKind: agenticSessionKind(), newObject: func() *v1alpha1.AgenticSession { return &v1alpha1.AgenticSession{} },
		isFinished: isSessionInactive, checkSucceeded: checkSessionSucceeded, describeChanges: render.SessionChanges, renderDetail: render.SessionDetail,
		renderLegend: func(terminal.Style) []string { return nil },
	}
}

// watchCommand is `kubectl yardmaster seq watch` and `session watch`.
type watchCommand[T client.Object] struct {
	*environment
	objectSelection

	kind               *watchableKind[T]
	all, untilFinished bool
}

// newWatchCommand is a watch of a kind; each says in its words how long.
func newWatchCommand[T client.Object](env *environment, kind *watchableKind[T], short, long, untilFinished string) *cobra.Command {
	w := &watchCommand[T]{environment: env, kind: kind}
	command := &cobra.Command{
		Use:               "watch [NAME]",
		Short:             short,
		Long:              long,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: kind.completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return w.runWatch(command.Context(), args) },
	}
	w.addSelectionFlags(command)
	command.Flags().BoolVar(&w.all, "all", false, "Watch all of the namespace, as without a NAME.")
	command.Flags().BoolVar(&w.untilFinished, "until-finished", false, untilFinished)
	return command
}

func (w *watchCommand[T]) runWatch(ctx context.Context, args []string) error {
	if len(args) > 0 && (w.all || w.allNamespaces || w.selector != "") {
		return errors.New("a NAME cannot stand with --all, --all-namespaces or --selector")
	}
	cluster, err := w.connect(w.clientConfig)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return w.watchSelected(ctx, cluster)
	}
	object := w.kind.newObject()
	if err := cluster.getByName(ctx, args[0], object); err != nil {
		return err
	}
	return w.kind.watchObject(ctx, w.environment, cluster, object, false)
}

func (w *watchCommand[T]) watchSelected(ctx context.Context, cluster *clusterConnection) error {
	options, err := w.listOptions(cluster)
	if err != nil {
		return err
	}
	// What can never be read is told now, not as trouble that may pass.
	if err := cluster.List(ctx, w.kind.newList(), append(options, client.Limit(1))...); err != nil {
		return err
	}
	view := newListView(w.environment, w.kind)
	view.showNamespaces, view.endless = w.allNamespaces, !w.untilFinished
	return watchObjects(ctx, w.environment, cluster, view, w.kind.newList(), w.kind.newObject(), options...)
}

// watchObject watches one object from how it was last seen, and was told of or not.
func (k *watchableKind[T]) watchObject(ctx context.Context, e *environment, cluster *clusterConnection, last T, told bool) error {
	view := &objectView[T]{environment: e, kind: k, latest: last, latestPrinted: told}
	return watchObjects(ctx, e, cluster, view, k.newList(), k.newObject(), selectSingleObject(last)...)
}
