package plugin

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// tick is how often the times on the screen go on.
const tick = time.Second

// view is what a watch shows.
type view[T client.Object] interface {
	// see takes note of how an object stands, and returns lines about what is new.
	see(sight follow.Sight[T]) []string
	// lines are all there is to see now.
	lines() []string
	// over reports whether there is no more to wait for, and what that means.
	over() (bool, error)
}

// watching is a watch under way.
type watching[T client.Object] struct {
	*environment
	view[T]

	screen  *terminal.Screen
	feed    *follow.Feed[T]
	trouble error
}

// watch shows the objects that the options select until the view says it is over. List is
// an empty list of them.
func watch[T client.Object](
	ctx context.Context, e *environment, cluster *connection, shown view[T], list client.ObjectList, object T, options ...client.ListOption,
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	feed, err := follow.Start(ctx, cluster.WithWatch, list, object, options...)
	if err != nil {
		return err
	}
	w := &watching[T]{environment: e, screen: terminal.NewScreen(e.out, e.style()), view: shown, feed: feed}
	err = w.run(ctx)
	w.screen.Keep()
	return err
}

func (w *watching[T]) run(ctx context.Context) error {
	complete := w.feed.Complete
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case sight := <-w.feed.Sights:
			w.say(w.see(sight))
		case err := <-w.feed.Trouble:
			if lasting(err) {
				return err // it will not pass
			}
			w.note(err)
		case <-complete:
			complete = nil // from now on what is seen is all there is
		case <-ticker.C:
		}
		if complete != nil {
			continue
		}
		w.draw()
		if over, err := w.over(); over {
			return err
		}
	}
}

// note takes down why nothing can be seen, or that it can be again.
func (w *watching[T]) note(trouble error) {
	if trouble != nil && w.trouble == nil {
		w.say([]string{"connection lost: " + terminal.Clean(trouble.Error())})
	}
	if trouble == nil && w.trouble != nil {
		w.say([]string{"connected again"})
	}
	w.trouble = trouble
}

// say tells what is new where nothing is drawn.
func (w *watching[T]) say(lines []string) {
	if w.screen.Live() {
		return
	}
	for _, line := range lines {
		w.screen.Say("%s %s", w.now().Format(time.TimeOnly), line)
	}
}

func (w *watching[T]) draw() {
	lines := w.lines()
	if w.trouble != nil {
		lines = append(lines, "", w.screen.Bad("connection lost: "+terminal.Clean(w.trouble.Error())))
	}
	w.screen.Draw(lines)
}
