package worker

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// reloadDelay is the time between the last change of the config file and its reload, so that changes in short succession cause one reload.
const reloadDelay = 100 * time.Millisecond

// watchConfigFile returns a channel that receives a value after each change of the config file, until ctx ends. It watches the directory of
// the file: in a ConfigMap volume the file is a symbolic link that never changes, and a link next to it changes its target.
func (w *Worker) watchConfigFile(ctx context.Context) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	if w.options.ConfigFile == "" {
		return changed, nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", w.options.ConfigFile, err)
	}
	file := newWatchedFile(w.options.ConfigFile) // before the watch, so that no change is missed
	if err := watcher.Add(filepath.Dir(w.options.ConfigFile)); err != nil {
		_ = watcher.Close()
		return nil, fmt.Errorf("watching %s: %w", w.options.ConfigFile, err)
	}
	w.background.Go(func() {
		defer func() { _ = watcher.Close() }()
		var delay <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-watcher.Events:
				if file.isChangedBy(event) {
					delay = time.After(reloadDelay)
				}
			case err := <-watcher.Errors:
				w.log.Warn("Failed to watch the configuration file; reloading it", "error", err)
				delay = time.After(reloadDelay)
			case <-delay:
				delay = nil
				select {
				case changed <- struct{}{}:
				default: // a reload is pending already
				}
			}
		}
	})
	return changed, nil
}

// watchedFile is a file in a directory whose other files may change at any time.
type watchedFile struct {
	path   string
	target string // without symbolic links; empty while the file is missing
}

func newWatchedFile(path string) *watchedFile {
	target, _ := filepath.EvalSymlinks(path)
	return &watchedFile{path: filepath.Clean(path), target: target}
}

// isChangedBy reports whether an event in its directory changed the file, or the target of its link.
func (f *watchedFile) isChangedBy(event fsnotify.Event) bool {
	target, _ := filepath.EvalSymlinks(f.path)
	moved := target != f.target
	f.target = target
	return moved || filepath.Clean(event.Name) == f.path && event.Op != fsnotify.Chmod
}

// reloadConfig applies the current configuration, or keeps the previous configuration if the current one is invalid.
func (w *Worker) reloadConfig(ctx context.Context) {
	s, err := w.options.loadSettings()
	if err != nil {
		w.metrics.reloads.WithLabelValues(successLabel(false)).Inc()
		w.log.Error("Failed to reload the configuration; the previous one stays in effect", "error", err)
		return
	}
	if current := w.currentSettings(); s.broker != current.broker || s.adminAddress != current.adminAddress || s.metricsAddress != current.metricsAddress {
		w.log.Warn("The broker, the admin address or the metrics address changed; restart the worker to apply this")
		s.broker, s.adminAddress, s.metricsAddress = current.broker, current.adminAddress, current.metricsAddress
	}
	w.applySettings(ctx, s)
	w.metrics.reloads.WithLabelValues(successLabel(true)).Inc()
	w.log.Info("Reloaded the configuration", "concurrency", s.concurrency, "queues", len(s.queues))
}
