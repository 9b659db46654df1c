package plugin

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// tick is how often the times on the screen go on.
const tick = time.Second

// watching is a watch under way.
type watching struct {
	*environment
	view

	screen  *terminal.Screen
	feed    *follow.Feed[*v1alpha1.SequentialJob]
	trouble error
}

func (w *watching) run(ctx context.Context) error {
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
func (w *watching) note(trouble error) {
	if trouble != nil && w.trouble == nil {
		w.say([]string{"connection lost: " + terminal.Clean(trouble.Error())})
	}
	if trouble == nil && w.trouble != nil {
		w.say([]string{"connected again"})
	}
	w.trouble = trouble
}

// say tells what is new where nothing is drawn.
func (w *watching) say(lines []string) {
	if w.screen.Live() {
		return
	}
	for _, line := range lines {
		w.screen.Say("%s %s", w.now().Format(time.TimeOnly), line)
	}
}

func (w *watching) draw() {
	lines := w.lines()
	if w.trouble != nil {
		lines = append(lines, "", w.screen.Bad("connection lost: "+terminal.Clean(w.trouble.Error())))
	}
	w.screen.Draw(lines)
}
