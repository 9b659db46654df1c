package plugin

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// redrawInterval is how often the times on the screen are updated.
const redrawInterval = time.Second

const watchOutputHelp = "On a terminal, the output is redrawn in place. Otherwise, a line is printed for each change.\n"

// watchView is what a watch shows.
type watchView[T client.Object] interface {
	// applyUpdate records the new state of an object and returns its changes.
	applyUpdate(update follow.ObjectUpdate[T]) []render.Change
	// renderLines renders the current state for a terminal with this number of columns, or 0 if it is unknown. What
	// needs attention comes first: a small terminal shows only the first lines.
	renderLines(columns int) []string
	// isFinished reports whether the watch can end, and with which error.
	isFinished() (bool, error)
}

// watchLoop is a running watch.
type watchLoop[T client.Object] struct {
	*environment
	watchView[T]

	screen        *terminal.Screen
	feed          *follow.ObjectFeed[T]
	connectionErr error
}

// watchObjects shows the objects that the options select until the view is finished.
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
			w.recordConnectionError(err)
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

// recordConnectionError prints when the connection is lost and when it is restored.
func (w *watchLoop[T]) recordConnectionError(err error) {
	if err != nil && w.connectionErr == nil {
		w.printChanges([]render.Change{{Text: "connection lost: " + terminal.Sanitize(err.Error())}})
	}
	if err == nil && w.connectionErr != nil {
		w.printChanges([]render.Change{{Text: "connection restored"}})
	}
	w.connectionErr = err
}

// printChanges prints a line for each change, unless the output is a terminal: it shows the
// current state instead.
func (w *watchLoop[T]) printChanges(changes []render.Change) {
	if w.screen.IsTerminal() {
		return
	}
	for _, change := range changes {
		w.screen.PrintLine("%s %s", formatTime(change.Time, w.now()), change.Text)
	}
}

// formatTime returns the local time of day, and the date if it is not today's. For the zero time, it returns now.
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
