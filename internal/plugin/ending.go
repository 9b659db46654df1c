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

// ending is a kind whose objects come to an end, and can be watched until they do.
type ending[T client.Object] struct {
	*kind[T]

	empty func() T
	// ended reports whether nothing more is to be expected of an object, unless somebody
	// asks for it, and outcome what the exit code then tells of it.
	ended   func(T) bool
	outcome func(T) error
	// changes are lines about what is new; all, if there is nothing before.
	changes func(before, after T) []string
	// whole shows one object, and legend what stands below rows of several.
	whole  func(terminal.Style, T, time.Time) []string
	legend func(terminal.Style) []string
}

func sequentialEnding() *ending[*v1alpha1.SequentialJob] {
	return &ending[*v1alpha1.SequentialJob]{
		kind: sequentialKind(), empty: func() *v1alpha1.SequentialJob { return &v1alpha1.SequentialJob{} },
		ended: ended, outcome: outcome, changes: render.Changes, whole: render.Steps,
		legend: func(style terminal.Style) []string { return []string{"", render.Legend(style)} },
	}
}

func sessionEnding() *ending[*v1alpha1.AgenticSession] {
	return &ending[*v1alpha1.AgenticSession]{
		kind: sessionKind(), empty: func() *v1alpha1.AgenticSession { return &v1alpha1.AgenticSession{} },
		ended: rests, outcome: sessionOutcome, changes: render.SessionChanges, whole: render.Session,
		legend: func(terminal.Style) []string { return nil },
	}
}

// endingWatch is `kubectl yardmaster seq watch` and `session watch`.
type endingWatch[T client.Object] struct {
	*environment
	selection

	kind               *ending[T]
	all, untilFinished bool
}

// newEndingWatch is a watch of a kind; each says in its words how long.
func newEndingWatch[T client.Object](env *environment, kind *ending[T], short, long, untilFinished string) *cobra.Command {
	w := &endingWatch[T]{environment: env, kind: kind}
	command := &cobra.Command{
		Use:               "watch [NAME]",
		Short:             short,
		Long:              long,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: kind.completeName(env),
		RunE:              func(command *cobra.Command, args []string) error { return w.run(command.Context(), args) },
	}
	w.addFlags(command)
	command.Flags().BoolVar(&w.all, "all", false, "Watch all of the namespace, as without a NAME.")
	command.Flags().BoolVar(&w.untilFinished, "until-finished", false, untilFinished)
	return command
}

func (w *endingWatch[T]) run(ctx context.Context, args []string) error {
	if len(args) > 0 && (w.all || w.allNamespaces || w.selector != "") {
		return errors.New("a NAME cannot stand with --all, --all-namespaces or --selector")
	}
	cluster, err := w.connect(w.config)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return w.watchMany(ctx, cluster)
	}
	object := w.kind.empty()
	if err := cluster.read(ctx, args[0], object); err != nil {
		return err
	}
	return w.kind.watch(ctx, w.environment, cluster, object, false)
}

func (w *endingWatch[T]) watchMany(ctx context.Context, cluster *connection) error {
	options, err := w.options(cluster)
	if err != nil {
		return err
	}
	// What can never be read is told now, not as trouble that may pass.
	if err := cluster.List(ctx, w.kind.list(), append(options, client.Limit(1))...); err != nil {
		return err
	}
	view := newManyView(w.environment, w.kind)
	view.namespaces, view.endless = w.allNamespaces, !w.untilFinished
	return watch(ctx, w.environment, cluster, view, w.kind.list(), w.kind.empty(), options...)
}

// watch watches one object from how it was last seen, and was told of or not.
func (k *ending[T]) watch(ctx context.Context, e *environment, cluster *connection, last T, told bool) error {
	view := &oneView[T]{environment: e, kind: k, last: last, told: told}
	return watch(ctx, e, cluster, view, k.list(), k.empty(), only(last)...)
}
