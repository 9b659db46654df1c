package worker

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settled is how long after a change the configuration is read: several changes that come
// together are one.
const settled = 100 * time.Millisecond

// watch tells of changes of the configuration file, until ctx ends. What is watched is
// its directory: in a volume of a ConfigMap the file itself never changes, a link beside
// it is made to point elsewhere.
func (w *Worker) watch(ctx context.Context) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	if w.options.ConfigFile == "" {
		return changed, nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", w.options.ConfigFile, err)
	}
	if err := watcher.Add(filepath.Dir(w.options.ConfigFile)); err != nil {
		_ = watcher.Close()
		return nil, fmt.Errorf("watching %s: %w", w.options.ConfigFile, err)
	}
	w.background.Go(func() {
		defer func() { _ = watcher.Close() }()
		var wait <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Events:
				wait = time.After(settled)
			case err := <-watcher.Errors:
				w.log.Warn("Watching the configuration", "error", err)
				wait = time.After(settled)
			case <-wait:
				wait = nil
				select {
				case changed <- struct{}{}:
				default: // one is told already
				}
			}
		}
	})
	return changed, nil
}

// reload makes the configuration hold that is there now. With one that cannot be, the
// one before goes on to hold.
func (w *Worker) reload(ctx context.Context) {
	s, err := w.options.read()
	if err != nil {
		w.metrics.reloaded(false)
		w.log.Error("The configuration is not taken over", "error", err)
		return
	}
	if now := w.current(); s.broker != now.broker || s.adminAddress != now.adminAddress {
		w.log.Warn("The broker or the admin address changed: that takes a restart")
		s.broker, s.adminAddress = now.broker, now.adminAddress
	}
	w.apply(ctx, s)
	w.metrics.reloaded(true)
	w.log.Info("The configuration is taken over", "concurrency", s.concurrency, "queues", len(s.queues))
}
