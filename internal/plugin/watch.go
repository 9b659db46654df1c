package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newWatchCommand returns a command that watches the named object with watchOne, or else the selected objects in the view of newView.
func newWatchCommand[T client.Object](
	env *environment, kind *resourceKind[T], short, long string,
	watchOne func(ctx context.Context, cluster *clusterConnection, object T) error, newView func(showNamespaces bool) watchView[T],
) *cobra.Command {
	var selection objectSelection
	command := &cobra.Command{
		Use:               "watch [NAME]",
		Short:             short,
		Long:              long,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: kind.completeNames(env, 1),
		RunE: func(command *cobra.Command, args []string) error {
			ctx := command.Context()
			if err := selection.rejectWith(args); err != nil {
				return err
			}
			if len(args) > 0 {
				cluster, object, err := kind.connectAndGet(ctx, env, args[0])
				if err != nil {
					return err
				}
				return watchOne(ctx, cluster, object)
			}
			cluster, options, err := selection.connectAndList(ctx, env, deepCopy(kind.emptyList), 1)
			if err != nil {
				return err
			}
			return watchObjects(ctx, env, cluster, newView(selection.allNamespaces), kind, options...)
		},
	}
	selection.addSelectionFlags(command)
	return command
}

// newWatchUntilFinishedCommand returns a watch command for a kind whose objects finish.
func newWatchUntilFinishedCommand[T client.Object](env *environment, kind *resourceKind[T], short, long, untilFinishedUsage string) *cobra.Command {
	var untilFinished bool
	command := newWatchCommand(env, kind, short, long,
		func(ctx context.Context, cluster *clusterConnection, object T) error {
			return kind.watchObject(ctx, env, cluster, object, false)
		},
		func(showNamespaces bool) watchView[T] {
			view := newListView(env, kind)
			view.showNamespaces, view.endless = showNamespaces, !untilFinished
			return view
		})
	command.Flags().BoolVar(&untilFinished, "until-finished", false, untilFinishedUsage)
	return command
}

// redrawInterval is how often the times on the screen are updated.
const redrawInterval = time.Second

const watchOutputHelp = "On a terminal, the output is redrawn in place. Otherwise, a line is printed for each change.\n"

type watchView[T client.Object] interface {
	// applyUpdate records the new state of an object and returns its changes.
	applyUpdate(update follow.ObjectUpdate[T]) []render.Change
	// renderLines renders the current state for a terminal with this number of columns, or 0 if unknown. Objects that need attention
	// come first: a small terminal shows only the first lines.
	renderLines(columns int) []string
	// isFinished reports whether the watch can end, and with which error.
	isFinished() (bool, error)
}

type watchLoop[T client.Object] struct {
	*environment
	watchView[T]

	screen        *terminal.Screen
	feed          *follow.ObjectFeed[T]
	connectionErr error
}

// watchObjects shows the selected objects until the view is finished.
func watchObjects[T client.Object](
	ctx context.Context, e *environment, cluster *clusterConnection, view watchView[T], kind *resourceKind[T], options ...client.ListOption,
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	feed, err := follow.StartFeed(ctx, cluster.WithWatch, kind.emptyList, kind.emptyObject, options...)
	if err != nil {
		return err
	}
	w := &watchLoop[T]{environment: e, screen: terminal.NewScreen(e.out, e.outputStyle()), watchView: view, feed: feed}
	err = w.runUntilFinished(ctx)
	w.screen.KeepLines()
	return err
}

func (w *watchLoop[T]) runUntilFinished(ctx context.Context) error {
	synced := w.feed.Synced
	ticker := time.NewTicker(redrawInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case update := <-w.feed.Updates:
			w.printChanges(w.applyUpdate(update))
		case err := <-w.feed.Errors:
			if isPermissionError(err) {
				return err // a retry cannot succeed
			}
			switch {
			case err != nil && w.connectionErr == nil:
				w.printChanges([]render.Change{{Text: "connection lost: " + terminal.Sanitize(err.Error())}})
			case err == nil && w.connectionErr != nil:
				w.printChanges([]render.Change{{Text: "connection restored"}})
			}
			w.connectionErr = err
		case <-synced:
			synced = nil // all existing objects have been received
		case <-ticker.C:
		}
		if synced != nil {
			continue
		}
		lines := w.renderLines(w.screen.Columns())
		if w.connectionErr != nil {
			lines = append(lines, "", w.screen.Failure("connection lost: "+terminal.Sanitize(w.connectionErr.Error())))
		}
		w.screen.DrawLines(lines)
		if finished, err := w.isFinished(); finished {
			return err
		}
	}
}

// printChanges prints a line for each change, unless the output is a terminal, which shows the current state instead.
func (w *watchLoop[T]) printChanges(changes []render.Change) {
	if w.screen.IsTerminal() {
		return
	}
	for _, change := range changes {
		w.screen.PrintLine("%s %s", formatTime(change.Time, w.now()), change.Text)
	}
}

// formatTime returns the local time of day, and the date if it is not today. The zero time stands for now.
func formatTime(t, now time.Time) string {
	if t.IsZero() {
		t = now
	}
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}

// watchObject watches one object, starting from its latest known state. latestPrinted means that the user has already seen this
// state.
func (k *resourceKind[T]) watchObject(ctx context.Context, e *environment, cluster *clusterConnection, latest T, latestPrinted bool) error {
	view := &objectView[T]{environment: e, kind: k, latest: latest, latestPrinted: latestPrinted}
	return watchObjects(ctx, e, cluster, view, k, selectSingleObject(latest)...)
}

// objectView shows one object until it finishes.
type objectView[T client.Object] struct {
	*environment

	kind *resourceKind[T]
	// latest is the latest known state, and latestPrinted whether the user has seen it.
	latest        T
	latestPrinted bool
	// exists is whether the watch has seen the object and not its deletion.
	exists bool
}

func (v *objectView[T]) applyUpdate(update follow.ObjectUpdate[T]) []render.Change {
	sameObject := update.Object.GetUID() == v.latest.GetUID() // not a new object with the same name
	v.exists = sameObject && !update.Deleted
	// The API server may serve a list from a cache that is older than the latest known state. The status does not show this, but the
	// generation shows whether the state includes the request that this watch waits for.
	if !sameObject || update.Object.GetGeneration() < v.latest.GetGeneration() {
		return nil
	}
	var before T
	if v.latestPrinted {
		before = v.latest
	}
	v.latest, v.latestPrinted = update.Object, true
	return v.kind.describeChanges(before, update.Object)
}

func (v *objectView[T]) renderLines(int) []string {
	return v.kind.renderDetail(v.outputStyle(), v.latest, v.now())
}

func (v *objectView[T]) isFinished() (bool, error) {
	switch {
	case v.kind.isFinished(v.latest) && !v.kind.isSuccessful(v.latest):
		return true, errUnsuccessful
	case v.kind.isFinished(v.latest):
		return true, nil
	case !v.exists:
		return true, fmt.Errorf("%s was deleted", v.kind.qualifiedName(v.latest))
	default:
		return false, nil
	}
}

type listView[T client.Object] struct {
	*environment

	kind           *resourceKind[T]
	showNamespaces bool
	endless        bool
	objects        map[client.ObjectKey]T
	// anyFailed is set when a deleted object had failed or had not finished.
	anyFailed, anySeen bool
}

func newListView[T client.Object](e *environment, kind *resourceKind[T]) *listView[T] {
	return &listView[T]{environment: e, kind: kind, objects: map[client.ObjectKey]T{}}
}

func (v *listView[T]) applyUpdate(update follow.ObjectUpdate[T]) []render.Change {
	key := client.ObjectKeyFromObject(update.Object)
	name := displayName(key, v.showNamespaces)
	changes := prefixChanges(name, v.kind.describeChanges(v.objects[key], update.Object))
	v.anySeen = true
	if !update.Deleted {
		v.objects[key] = update.Object
		return changes
	}
	delete(v.objects, key)
	v.anyFailed = v.anyFailed || !v.kind.isFinished(update.Object) || !v.kind.isSuccessful(update.Object)
	return append(changes, render.Change{Text: name + " was deleted"})
}

func (v *listView[T]) renderLines(columns int) []string {
	objects := slices.SortedFunc(maps.Values(v.objects), func(a, b T) int {
		return cmp.Or(decision.CompareTrueFirst(v.kind.needsAttention(a), v.kind.needsAttention(b)), compareNames(a, b))
	})
	lines := v.kind.renderTable(v.outputStyle(), objects, v.now()).LinesWithin(columns, v.showNamespaces)
	if v.kind.renderLegend != nil {
		lines = append(lines, "", v.kind.renderLegend(v.outputStyle()))
	}
	return lines
}

func (v *listView[T]) isFinished() (bool, error) {
	if v.endless {
		return false, nil
	}
	if !v.anySeen {
		return true, fmt.Errorf("no %s to wait for", v.kind.kindName)
	}
	failed := v.anyFailed
	for _, object := range v.objects {
		if !v.kind.isFinished(object) {
			return false, nil
		}
		failed = failed || !v.kind.isSuccessful(object)
	}
	if failed {
		return true, errUnsuccessful
	}
	return true, nil
}

func compareNames(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

func displayName(key client.ObjectKey, showNamespace bool) string {
	if showNamespace {
		return key.String()
	}
	return key.Name
}

func prefixChanges(name string, changes []render.Change) []render.Change {
	for i := range changes {
		changes[i].Text = name + " " + changes[i].Text
	}
	return changes
}
