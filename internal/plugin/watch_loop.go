package plugin

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// redrawInterval is how often the times on the screen go on.
const redrawInterval = time.Second

// watchView is what a watch shows.
type watchView[T client.Object] interface {
	// applyUpdate takes note of how an object stands, and returns lines about what is new.
	applyUpdate(sight follow.ObjectUpdate[T]) []string
	// renderLines are all there is to see now.
	renderLines() []string
	// isFinished reports whether there is no more to wait for, and what that means.
	isFinished() (bool, error)
}

// watchLoop is a watch under way.
type watchLoop[T client.Object] struct {
	*environment
	watchView[T]

	screen        *terminal.Screen
	feed          *follow.ObjectFeed[T]
	connectionErr error
}

// watchObjects shows the objects that the options select until the view says it is over. List is
// an empty list of them.
func watchObjects[T client.Object](
	ctx context.Context, e *environment, cluster *clusterConnection, shown watchView[T], list client.ObjectList, object T, options ...client.ListOption,
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	feed, err := follow.StartFeed(ctx, cluster.WithWatch, list, object, options...)
	if err != nil {
		return err
	}
	w := &watchLoop[T]{environment: e, screen: terminal.NewScreen(e.out, e.outputStyle()), watchView: shown, feed: feed}
	err = w.runUntilFinished(ctx)
	w.screen.KeepLines()
	return err
}

func (w *watchLoop[T]) runUntilFinished(ctx context.Context) error {
	complete := w.feed.Synced
	ticker := time.NewTicker(redrawInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case sight := <-w.feed.Updates:
			w.printChanges(w.applyUpdate(sight))
		case err := <-w.feed.Errors:
			if isPermissionError(err) {
				return err // it will not pass
			}
			w.recordConnectionError(err)
		case <-complete:
			complete = nil // from now on what is seen is all there is
		case <-ticker.C:
		}
		if complete != nil {
			continue
		}
		w.redrawScreen()
		if over, err := w.isFinished(); over {
			return err
		}
	}
}

// recordConnectionError takes down why nothing can be seen, or that it can be again.
func (w *watchLoop[T]) recordConnectionError(trouble error) {
	if trouble != nil && w.connectionErr == nil {
		w.printChanges([]string{"connection lost: " + terminal.Sanitize(trouble.Error())})
	}
	if trouble == nil && w.connectionErr != nil {
		w.printChanges([]string{"connected again"})
	}
	w.connectionErr = trouble
}

// printChanges tells what is new where nothing is drawn.
func (w *watchLoop[T]) printChanges(lines []string) {
	if w.screen.IsTerminal() {
		return
	}
	for _, line := range lines {
		w.screen.PrintLine("%s %s", w.now().Format(time.TimeOnly), line)
	}
}

func (w *watchLoop[T]) redrawScreen() {
	lines := w.renderLines()
	if w.connectionErr != nil {
		lines = append(lines, "", w.screen.Failure("connection lost: "+terminal.Sanitize(w.connectionErr.Error())))
	}
	w.screen.DrawLines(lines)
}
